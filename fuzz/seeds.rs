//! Makes the seeds of every target from the kept recordings: `seeds FOLDER`.

use clap::Parser;
use ntp_fuzz::reader;
use ntp_join::{Joiner, Options};
use ntp_record::{Format, Item, Reader, Writer};
use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::Path;

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/cases");

/// Commands of a seed, and of its names some more: a fuzzer works best on little.
const FEW: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("seeds FOLDER")?;
    let seed = |target: &str, name: &str, bytes: &[u8]| -> std::io::Result<()> {
        let folder = Path::new(&folder).join(target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(name), bytes)
    };
    for case in fs::read_dir(CASES)? {
        let case = case?;
        if !case.file_type()?.is_dir() {
            continue;
        }
        let name = case
            .file_name()
            .into_string()
            .map_err(|_| "a case's name")?;
        let side = |file: &str| Reader::open(&case.path().join(file).display().to_string());
        let mut both = Writer::new(Vec::new(), Format::Binary);
        join([side("host.ntp")?, side("target.ntp")?], &mut both)?;
        let both = both.into_inner();
        for format in [Format::Binary, Format::Ndjson] {
            let host = few(side("host.ntp")?, format)?;
            let target = few(side("target.ntp")?, format)?;
            let joined = few(reader(&both, usize::MAX), format)?;
            let two = [&host[..], &target].concat();
            for (kind, bytes) in [("host", &host), ("two", &two), ("joined", &joined)] {
                // Resealed and in one read; as it is and in small ones.
                for manner in [0xff, 2] {
                    let plain = [&[manner], &bytes[..]].concat();
                    let name = format!("{name}-{kind}-{format}-{manner}");
                    seed("stream", &name, &plain)?;
                    seed("report", &name, &plain)?;
                }
                let mut gzip = flate2::write::GzEncoder::new(vec![2], Default::default());
                gzip.write_all(bytes)?;
                seed(
                    "stream",
                    &format!("{name}-{kind}-{format}.gz"),
                    &gzip.finish()?,
                )?;
                let zstd = [&[2], &zstd::encode_all(&bytes[..], 3)?[..]].concat();
                seed("stream", &format!("{name}-{kind}-{format}.zst"), &zstd)?;
            }
        }
        for more in [&[][..], &["-i", "1"]] {
            let args = ntp_stages::cli::Args::parse_from([&["ntp-stages"], more].concat());
            let mut rows = Vec::new();
            ntp_stages::cli::stages(&mut reader(&both, usize::MAX), &args, &mut rows)?;
            seed("rows", &format!("{name}-{}", more.len()), &rows)?;
        }
    }
    seed("btf", "three", &btf())?;
    Ok(())
}

fn join(mut sides: [Reader; 2], out: &mut Writer<Vec<u8>>) -> Result<(), Box<dyn Error>> {
    let mut joiner = Joiner::new(2, Options::default());
    while let Some(input) = joiner.next_input() {
        match sides[input].next()? {
            Some(item) => joiner.push(input, &item),
            None => joiner.end_input(input),
        }
        joiner.advance(out)?;
    }
    joiner.finish(out)?;
    Ok(())
}

/// The stream with few of each kind of item.
fn few(mut reader: Reader, format: Format) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut out = Writer::new(Vec::new(), format);
    let (mut names, mut counts, mut commands) = (0, 0, 0);
    while let Some(item) = reader.next()? {
        match item {
            Item::Connection(_) | Item::Device(_) if names < 2 * FEW => {
                names += 1;
                out.item(&item)?;
            }
            Item::Records(records) if commands < FEW => {
                let some = &records[..records.len().min(FEW)];
                commands += some.len();
                out.records(some)?;
            }
            Item::Joined(joined) if commands < FEW => {
                let some = &joined[..joined.len().min(FEW)];
                commands += some.len();
                out.joined(some)?;
            }
            Item::Counts(mut item) if counts == 0 => {
                counts += 1;
                item.groups.truncate(FEW);
                out.counts(&item)?;
            }
            Item::Header(mut header) => {
                header.hooks.truncate(1);
                out.header(&header)?;
            }
            Item::JoinHeader(mut join) => {
                let headers = join.hosts.iter_mut().chain(&mut join.targets);
                headers.for_each(|header| header.hooks.clear());
                out.join_header(&join)?;
            }
            Item::Totals(mut totals) => {
                totals.groups.truncate(1);
                out.totals(&totals)?;
            }
            Item::JoinTotals(mut totals) => {
                totals.counts.truncate(1);
                totals.sources.clear();
                out.join_totals(&totals)?;
            }
            _ => {}
        }
    }
    Ok(out.into_inner())
}

/// A kernel with an int, a struct and a pointer; a module with a typedef, a
/// struct and a function; a program that names the struct.
fn btf() -> Vec<u8> {
    let base = blob(
        "\0u32\0request\0tag\0",
        &[
            &[1, 1 << 24, 4, 32],
            &[5, 4 << 24 | 1, 4, 13, 1, 0],
            &[0, 2 << 24, 2],
            &[1, 19 << 24 | 1, 8, 5, 1, 2],
            &[1, 15 << 24 | 1, 8, 1, 0, 4],
        ],
    );
    let module = blob(
        "id\0cmd\0nvmet_req_init\0",
        &[
            &[17, 8 << 24, 1],
            &[20, 4 << 24 | 2, 16, 13, 3, 0, 17, 6, 64],
            &[0, 13 << 24 | 1, 0, 13, 3],
            &[24, 12 << 24 | 1, 8],
            &[0, 3 << 24, 0, 1, 1, 4],
        ],
    );
    let object = blob("\0cmd___old\0", &[&[1, 4 << 24, 0]]);
    let lengths = [base.len() as u16, module.len() as u16].map(u16::to_le_bytes);
    [&lengths.concat(), &base, &module, &object]
        .map(|part| &part[..])
        .concat()
}

fn blob(strings: &str, types: &[&[u32]]) -> Vec<u8> {
    let types: Vec<u8> = types
        .concat()
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .collect();
    let (t, s) = (types.len() as u32, strings.len() as u32);
    let head: Vec<u8> = [0x0001_eb9f, 24, 0, t, t, s]
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .collect();
    [&head, &types, strings.as_bytes()].concat()
}

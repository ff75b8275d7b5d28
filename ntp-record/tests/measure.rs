//! How fast streams are read and written; run on purpose:
//! `cargo test --release -p ntp-record --test measure -- --ignored --nocapture`

mod common;

use common::*;
use ntp_record::{Format, Item, Reader, Role, Writer};
use std::io::Write;
use std::time::Instant;

const RECORDS: usize = 1_000_000;

#[test]
#[ignore = "a measurement"]
fn reading_and_writing() {
    let folder = tempfile::tempdir().expect("folder");
    let mut random = Random(1);
    let records: Vec<_> = (0..RECORDS)
        .map(|_| {
            let mut record = record(&mut random);
            // Like a real one: moderate times.
            let begin = 1 << 45;
            for at in &mut record.at {
                *at = begin + random.below(1_000_000);
            }
            record.slba >>= 30;
            record
        })
        .collect();
    let per = |begin: Instant| begin.elapsed().as_nanos() as f64 / RECORDS as f64;
    let mut files = Vec::new();
    for (name, format) in [("bin", Format::Binary), ("ndjson", Format::Ndjson)] {
        let path = folder.path().join(name);
        let begin = Instant::now();
        let mut out = Writer::new(
            std::fs::File::create(&path)
                .map(std::io::BufWriter::new)
                .expect("file"),
            format,
        );
        out.header(&header(Role::Host, "h")).expect("written");
        (1..=3).for_each(|id| out.connection(&connection(id)).expect("written"));
        (1..=2).for_each(|id| out.device(&device(id)).expect("written"));
        out.records(&records).expect("written");
        out.totals(&totals()).expect("written");
        out.flush().expect("written");
        println!(
            "write {name}: {:.0} ns a record, {} bytes a record",
            per(begin),
            { std::fs::metadata(&path).expect("file").len() as usize / RECORDS }
        );
        files.push(path);
    }
    let bytes = std::fs::read(&files[0]).expect("file");
    let packed = folder.path().join("bin.gz");
    let mut out = flate2::write::GzEncoder::new(
        std::fs::File::create(&packed).expect("file"),
        flate2::Compression::fast(),
    );
    out.write_all(&bytes).expect("written");
    out.finish().expect("written");
    files.push(packed);
    let packed = folder.path().join("bin.zst");
    std::fs::write(
        &packed,
        zstd::encode_all(&bytes[..], 3).expect("compressed"),
    )
    .expect("file");
    files.push(packed);
    for path in files {
        for pipe in [false, true] {
            let name = path.to_str().expect("path");
            let begin = Instant::now();
            let mut reader = if pipe {
                Reader::from_read(name, Box::new(std::fs::File::open(name).expect("file")))
            } else {
                Reader::open(name).expect("opens")
            };
            let (mut count, mut sum) = (0, 0u64);
            while let Some(item) = reader.next().expect("reads") {
                if let Item::Records(records) = item {
                    count += records.len();
                    sum = records
                        .iter()
                        .fold(sum, |sum, record| sum.wrapping_add(record.at[3]));
                }
            }
            assert_eq!(count, RECORDS);
            let kind = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            println!(
                "read {kind}, {}: {:.0} ns a record ({sum})",
                if pipe { "pipe" } else { "file" },
                per(begin)
            );
        }
    }
}

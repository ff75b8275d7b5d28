//! Any bytes as a stream that is joined and reported on: what the tools make
//! of values that no recorder writes.
#![no_main]

use clap::Parser;
use libfuzzer_sys::fuzz_target;
use ntp_fuzz::{manner, reader};
use ntp_join::{Joiner, Options};
use ntp_record::{Format, Item, Writer};
use ntp_stages::cli::{Args, stages};
use std::sync::LazyLock;

/// Ways to report; a run tries one, by the input's first byte.
static WAYS: LazyLock<[Args; 2]> = LazyLock::new(|| {
    [
        &["-i", "1"][..],
        &["--by", "op,size,device,path,host,target,qid,status"],
    ]
    .map(|more| Args::parse_from([&["ntp-stages"], more].concat()))
});

fuzz_target!(|data: &[u8]| {
    let Some((bytes, step)) = manner(data) else {
        return;
    };
    let args = &WAYS[step / 13 % 2];
    if step / 26 % 2 == 0 {
        return report(&bytes, args);
    }
    let mut joined = Writer::new(Vec::new(), Format::Binary);
    if join(&bytes, &mut joined).is_some() {
        report(&joined.into_inner(), args);
    }
});

/// Segments go to two inputs in turn.
fn join(bytes: &[u8], out: &mut Writer<Vec<u8>>) -> Option<()> {
    let mut reader = reader(bytes, usize::MAX);
    let options = Options {
        window: 1 << 12,
        ..Options::default()
    };
    let mut joiner = Joiner::new(2, options);
    let mut headers = 0;
    while let Some(item) = reader.next().ok()? {
        match item {
            Item::Header(_) => headers += 1,
            Item::JoinHeader(_) => return None,
            _ => {}
        }
        joiner.push(headers % 2, &item);
        if matches!(item, Item::Records(_)) {
            joiner.advance(out).expect("memory takes all");
        }
    }
    joiner.end_input(0);
    joiner.end_input(1);
    joiner.advance(out).expect("memory takes all");
    joiner.finish(out).expect("memory takes all");
    let _ = ntp_join::lines(&joiner);
    let totals = joiner.totals();
    let left = |left: &std::collections::BTreeMap<String, u64>| left.values().sum::<u64>();
    assert_eq!(totals.host, totals.matched + left(&totals.host_left));
    assert_eq!(totals.target, totals.matched + left(&totals.target_left));
    Some(())
}

fn report(bytes: &[u8], args: &Args) {
    let mut rows = Vec::new();
    if stages(&mut reader(bytes, usize::MAX), args, &mut rows).is_err() {
        return;
    }
    for row in rows
        .split(|byte| *byte == b'\n')
        .filter(|row| !row.is_empty())
    {
        serde_json::from_slice::<ntp_record::row::Row>(row).expect("a row is read again");
    }
}

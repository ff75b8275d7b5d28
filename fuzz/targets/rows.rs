//! Any bytes as rows, in every look.
#![no_main]

use clap::Parser;
use libfuzzer_sys::fuzz_target;
use ntp_fmt::cli::{Args, Format, format};
use std::sync::LazyLock;

static LOOKS: LazyLock<[Args; 5]> = LazyLock::new(|| {
    [
        &["--format", "text"][..],
        &["--format", "text", "--detail"],
        &["--format", "markdown", "--detail"],
        &["--format", "json"],
        &["--format", "csv"],
    ]
    .map(|look| Args::parse_from([&["ntp-fmt"], look].concat()))
});

fuzz_target!(|data: &[u8]| {
    let ends = LOOKS.each_ref().map(|args| {
        let mut out = Vec::new();
        let end = format("fuzz", &mut &*data, args, false, &mut out).ok();
        let text = String::from_utf8(out).expect("text");
        if args.format == Format::Json && end.is_some() {
            serde_json::from_str::<serde_json::Value>(&text).expect("JSON");
        }
        // Nothing in a name moves a terminal's cursor.
        if args.format == Format::Text {
            let plain = |letter: char| letter == '\n' || !letter.is_control();
            assert!(text.chars().all(plain), "{text:?}");
        }
        end
    });
    // What is no one table, by two kinds of keys, may still be a report.
    let [first, others @ .., _csv] = ends;
    assert!(others.iter().all(|end| *end == first), "{ends:?}");
});

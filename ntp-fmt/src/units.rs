//! How figures are written.

use ntp_record::row::{Key, KeyValue};

/// What stands where nothing was measured.
pub const NOT_MEASURED: &str = "n/a";

/// Microseconds with two decimals.
pub fn us(ns: Option<f64>) -> String {
    ns.map_or_else(|| NOT_MEASURED.to_owned(), |ns| plain(ns / 1e3, 2))
}

/// [`us`] of whole nanoseconds.
pub fn us_of(ns: Option<i64>) -> String {
    us(ns.map(|ns| ns as f64))
}

/// Two decimals.
pub fn two(value: Option<f64>) -> String {
    value.map_or_else(|| NOT_MEASURED.to_owned(), |value| plain(value, 2))
}

/// A share as a whole percentage.
pub fn percent(share: Option<f64>) -> String {
    share.map_or_else(
        || NOT_MEASURED.to_owned(),
        |share| format!("{}%", plain(share * 100.0, 0)),
    )
}

/// A share of things that are meant to be complete: 100 only when it is.
pub fn percent_of(share: f64) -> String {
    if share >= 1.0 {
        return "100 %".to_owned();
    }
    let hundredths = (share * 10_000.0).floor() / 100.0;
    format!("{hundredths:.2} %")
}

/// No zero with a minus sign.
fn plain(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    match text.strip_prefix('-') {
        Some(digits) if digits.bytes().all(|b| b == b'0' || b == b'.') => digits.to_owned(),
        _ => text,
    }
}

/// A number with k, M or G: 12.2k.
pub fn si(value: f64) -> String {
    const STEPS: &[(f64, &str)] = &[(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    for (step, letter) in STEPS {
        // 999.95 thousand would round to 1000.0k.
        if value >= step * 0.99995 {
            return format!("{:.1}{letter}", value / step);
        }
    }
    if value < 100.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// Bytes a second: 46.5 MB/s.
pub fn bytes_per_s(value: f64) -> String {
    let text = si(value);
    match text.find(|c: char| c.is_ascii_alphabetic()) {
        Some(at) => format!("{} {}B/s", &text[..at], &text[at..]),
        None => format!("{text} B/s"),
    }
}

/// A size in bytes: 4KiB, 512B.
pub fn size(bytes: u64) -> String {
    const STEPS: &[(u64, &str)] = &[(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let fits = STEPS
        .iter()
        .find(|(step, _)| bytes >= *step && bytes.is_multiple_of(*step));
    match fits {
        Some((step, unit)) => format!("{}{unit}", bytes / step),
        None => format!("{bytes}B"),
    }
}

/// A time difference for people: 12.345678 s, 1.23 ms, 4.50 us, 12 ns.
pub fn duration(ns: f64) -> String {
    let magnitude = ns.abs();
    if magnitude >= 1e9 {
        format!("{:.6} s", ns / 1e9)
    } else if magnitude >= 1e6 {
        format!("{:.3} ms", ns / 1e6)
    } else if magnitude >= 1e3 {
        format!("{:.2} us", ns / 1e3)
    } else {
        format!("{ns:.0} ns")
    }
}

/// A group in a title: `read 4KiB nvme0n1 qid 3`.
pub fn label(key: &Key, other: bool) -> String {
    if other {
        return "all other commands".to_owned();
    }
    let words: Vec<String> = key
        .0
        .iter()
        .filter_map(|(name, value)| match (name.as_str(), value) {
            // A flush moves nothing: it has no size to name.
            ("size", KeyValue::Number(0)) if key.0.len() > 1 => None,
            ("size", KeyValue::Number(bytes)) => Some(size(*bytes)),
            ("op" | "device" | "path", KeyValue::Text(text)) => Some(text.clone()),
            ("status", KeyValue::Number(status)) => Some(format!("status {status:#x}")),
            (name, KeyValue::Number(number)) => Some(format!("{name} {number}")),
            (name, KeyValue::Text(text)) => Some(format!("{name} {text}")),
            (name, KeyValue::Unknown) => Some(format!("{name} unknown")),
        })
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_as_people_expect() {
        assert_eq!(us(Some(86_390.4)), "86.39");
        assert_eq!(us(None), "n/a");
        assert_eq!(us(Some(-1.0)), "0.00");
        assert_eq!(us(Some(-450.0)), "-0.45");
        assert_eq!(si(11_490.0), "11.5k");
        assert_eq!(si(999_960.0), "1.0M");
        assert_eq!(si(950.0), "950");
        assert_eq!(si(3.25), "3.2");
        assert_eq!(si(0.0), "0.0");
        assert_eq!(bytes_per_s(46_500_000.0), "46.5 MB/s");
        assert_eq!(bytes_per_s(512.0), "512 B/s");
        assert_eq!(
            (size(4096), size(512), size(1 << 20), size(1536), size(0)),
            (
                "4KiB".into(),
                "512B".into(),
                "1MiB".into(),
                "1536B".into(),
                "0B".into()
            )
        );
        assert_eq!(percent(Some(0.6961)), "70%");
        assert_eq!(percent_of(1.0), "100 %");
        assert_eq!(percent_of(2297.0 / 2298.0), "99.95 %");
        assert_eq!(percent_of(0.999999), "99.99 %");
        assert_eq!(duration(-2_500_000_000.0), "-2.500000 s");
        assert_eq!(duration(40.0), "40 ns");
    }

    #[test]
    fn a_label_names_what_the_commands_share() {
        let text = |s: &str| KeyValue::Text(s.into());
        let key = |parts: &[(&str, KeyValue)]| {
            Key(parts
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect())
        };
        let read = key(&[
            ("op", text("read")),
            ("size", KeyValue::Number(4096)),
            ("device", text("nvme0n1")),
        ]);
        assert_eq!(label(&read, false), "read 4KiB nvme0n1");
        let flush = key(&[
            ("op", text("flush")),
            ("size", KeyValue::Number(0)),
            ("device", KeyValue::Unknown),
        ]);
        assert_eq!(label(&flush, false), "flush device unknown");
        let more = key(&[
            ("qid", KeyValue::Number(3)),
            ("status", KeyValue::Number(0x281)),
        ]);
        assert_eq!(label(&more, false), "qid 3 status 0x281");
        assert_eq!(label(&Key::default(), true), "all other commands");
    }
}

//! Any bytes as a stream: binary, NDJSON, compressed.
//!
//! However the bytes come, the reader gives the same; what it gives, written
//! again, is read without damage and is the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ntp_fuzz::{decode, manner, reader};

fuzz_target!(|data: &[u8]| {
    let Some((bytes, step)) = manner(data) else {
        return;
    };
    let whole = decode(reader(&bytes, usize::MAX), false);
    let drip = decode(reader(&bytes, step), false);
    match (whole, drip) {
        // Where a decompressor notices damage depends on what it is asked for.
        (Ok(_), Ok(_)) if compressed(&bytes) => {}
        (Err(_), _) if compressed(&bytes) => return,
        (_, Err(_)) if compressed(&bytes) => {}
        (Ok((whole, lost)), Ok((drip, too))) => {
            assert_eq!(lost, too, "{step} bytes a read");
            assert!(whole == drip, "{step} bytes a read");
            let lost: u64 = lost.iter().map(|damage| damage.bytes).sum();
            assert!(lost <= bytes.len() as u64);
        }
        (Err(whole), Err(drip)) => return assert_eq!(whole.to_string(), drip.to_string()),
        (Err(error), _) | (_, Err(error)) => panic!("{step} bytes a read: {error}"),
    }
    let (whole, _) = decode(reader(&bytes, usize::MAX), true).expect("read before");
    if !whole.is_empty() {
        let (again, lost) = decode(reader(&whole, usize::MAX), true).expect("was written");
        assert_eq!(lost, []);
        assert!(again == whole);
    }
});

fn compressed(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..]
    )
}

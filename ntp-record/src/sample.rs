//! Which commands are recorded: a hash of what both machines see of a command.
//!
//! `ebpf/bpf/ntp.h` holds the same definition for the kernel programs and the
//! probes in SPDK; `vectors.txt` checks both. A change here breaks the match
//! with every recording made before.

/// What both machines see of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Key {
    /// First logical block, or command dwords 10 and 11.
    pub slba: u64,
    /// Namespace id.
    pub nsid: u32,
    /// Command id on the wire.
    pub cid: u16,
    /// Low half of command dword 12.
    pub length: u16,
    /// Opcode on the wire.
    pub opcode: u8,
}

/// Finaliser of splitmix64: every input bit reaches every output bit.
fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

/// The hash of a command; `salt` is [`crate::Header::salt`].
pub fn hash(key: &Key, salt: u32) -> u64 {
    let Key {
        slba,
        nsid,
        cid,
        length,
        opcode,
    } = *key;
    let rest = u64::from(nsid) << 32 | u64::from(cid) << 16 | u64::from(length);
    let h = mix(slba ^ u64::from(salt).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    mix(h ^ rest ^ u64::from(opcode) << 56)
}

/// Whether a command with this hash belongs to the sample of one in `n`.
///
/// The sample of a larger `n` is part of the sample of a smaller one, so that
/// recordings with different `-s` still share commands. 0 samples everything,
/// as 1 does.
pub fn sampled(hash: u64, n: u32) -> bool {
    (hash >> 32) * u64::from(n) < 1 << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_hold() {
        let mut lines = 0;
        for line in include_str!("vectors.txt")
            .lines()
            .filter(|line| !line.starts_with('#'))
        {
            let fields: Vec<u64> = line
                .split(' ')
                .map(|field| u64::from_str_radix(field, 16).expect("hexadecimal"))
                .collect();
            let [
                slba,
                nsid,
                cid,
                length,
                opcode,
                salt,
                expected,
                s10,
                s100,
                s1000,
            ] = fields[..]
            else {
                panic!("{line}: ten fields");
            };
            let key = Key {
                slba,
                nsid: nsid as u32,
                cid: cid as u16,
                length: length as u16,
                opcode: opcode as u8,
            };
            let hash = hash(&key, salt as u32);
            assert_eq!(hash, expected, "{line}");
            for (n, member) in [(1, 1), (10, s10), (100, s100), (1000, s1000)] {
                assert_eq!(sampled(hash, n), member == 1, "{line}: one in {n}");
            }
            lines += 1;
        }
        assert!(lines > 200);
    }

    #[test]
    fn one_in_n_is_one_in_n_and_part_of_one_in_less() {
        // What a host does: ids in sequence, blocks in sequence.
        let keys = (0..200_000u64).map(|i| Key {
            slba: i * 8,
            nsid: 1,
            cid: (i % 128) as u16 | ((i / 128 % 16) << 12) as u16,
            length: 7,
            opcode: 2,
        });
        let hashes: Vec<u64> = keys.map(|key| hash(&key, 0)).collect();
        for n in [2, 10, 100] {
            let count = hashes.iter().filter(|h| sampled(**h, n)).count() as f64;
            let mean = 200_000.0 / f64::from(n);
            // Five standard deviations of a fair draw.
            assert!(
                (count - mean).abs() < 5.0 * mean.sqrt(),
                "one in {n}: {count}"
            );
        }
        assert!(
            hashes
                .iter()
                .all(|h| !sampled(*h, 1000) || sampled(*h, 100))
        );
        assert!(hashes.iter().all(|h| sampled(*h, 1) && sampled(*h, 0)));
    }
}

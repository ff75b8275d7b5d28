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

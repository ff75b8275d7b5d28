//! The command line.

use clap::{Parser, ValueEnum};
use ntp_ebpf::plan::Functions;
use ntp_record::Format;
use ntp_record::record::IO_OPS;
use ntp_record::{Role, Transport};
use std::path::PathBuf;
use std::time::Duration;

/// Records one side of NVMe over Fabrics: what each command of a sample passed, and when.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "ntp-capture",
    version,
    after_help = "Examples:\n  \
        ntp-capture -r target -t tcp -o target.ntp     on the target, until Ctrl-C\n  \
        ntp-capture -t tcp -d 20 --session nvme1n1 | gzip > host.ntp\n  \
        ntp-capture -t rdma -d 20 -o host.ntp          a host over RDMA\n  \
        ntp-join host.ntp target.ntp | ntp-stages | ntp-fmt     afterwards, anywhere\n\n\
        Both sides need the same -s: each chooses commands by a hash of what both see.\n\
        Exit status: 0 recorded; 1 recorded, but something is missing; 2 could not record."
)]
pub struct Options {
    /// Side to record
    #[arg(short, long, value_enum, default_value = "host")]
    pub role: RoleArg,

    /// Transport to record
    #[arg(short, long, value_enum, default_value = "tcp")]
    pub transport: TransportArg,

    /// Record one command in N; the other side needs the same N
    #[arg(short, long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub sample: u32,

    /// Stop after this many seconds (default: until Ctrl-C)
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    pub duration: Option<Duration>,

    /// A progress line per group this often on standard error; 0 for none
    #[arg(short, long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub interval: Duration,

    /// Record only this device: nvme1n1 on the host, the backing path on the target (repeatable)
    #[arg(long, value_name = "DEV")]
    pub session: Vec<String>,

    /// Record only these operations: read, write, flush, ..., or an opcode as 0x2
    #[arg(long, value_name = "OP,...", value_delimiter = ',', value_parser = opcode)]
    pub op: Vec<u8>,

    /// Record only commands of this many bytes, or of MIN to MAX (4k, 128KiB, 4k-1m)
    #[arg(long, value_name = "MIN[-MAX]", value_parser = size_range)]
    pub size: Option<(u32, u32)>,

    /// Record admin, fabrics and keep-alive commands too
    #[arg(long)]
    pub admin: bool,

    /// Folder with BTF of modules that have none of their own
    #[arg(long, value_name = "DIR")]
    pub btf: Option<PathBuf>,

    /// How functions are hooked: best, or kprobe throughout, to compare
    #[arg(long, value_name = "HOW", default_value = "best")]
    pub hooks: Functions,

    /// Encoding of the recording
    #[arg(long, value_name = "FORMAT", default_value = "bin", value_parser = format)]
    pub format: Format,

    /// Compress the recording (zstd)
    #[arg(short = 'z', long)]
    pub compress: bool,

    /// Room for records between kernel and ntp-capture; a power of two
    #[arg(long, value_name = "BYTES", default_value = "8MiB", value_parser = buffer)]
    pub buffer: u32,

    /// Write the recording to this file (default: standard output)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<String>,
}

/// A role on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum RoleArg {
    /// The machine that sends commands
    Host,
    /// The machine that has the drive
    Target,
}

impl RoleArg {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            RoleArg::Host => "host",
            RoleArg::Target => "target",
        }
    }
}

impl From<RoleArg> for Role {
    fn from(arg: RoleArg) -> Role {
        match arg {
            RoleArg::Host => Role::Host,
            RoleArg::Target => Role::Target,
        }
    }
}

/// A transport on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum TransportArg {
    /// NVMe/TCP
    Tcp,
    /// NVMe/RDMA
    Rdma,
}

impl From<TransportArg> for Transport {
    fn from(arg: TransportArg) -> Transport {
        match arg {
            TransportArg::Tcp => Transport::Tcp,
            TransportArg::Rdma => Transport::Rdma,
        }
    }
}

impl Options {
    /// The filters in force, as words for the header.
    pub fn filters(&self) -> Vec<String> {
        let mut filters: Vec<String> = self
            .session
            .iter()
            .map(|dev| format!("session={dev}"))
            .collect();
        filters.extend(self.op.iter().map(|op| format!("op={}", op_word(*op))));
        filters.extend(self.size.map(|(min, max)| format!("size={min}-{max}")));
        filters.extend(self.admin.then(|| "admin=included".into()));
        filters
    }

    /// What the kernel programs are told.
    pub fn programs(&self) -> ntp_ebpf::Options {
        let (min, max) = self.size.unwrap_or((0, u32::MAX));
        ntp_ebpf::Options {
            sample: self.sample,
            salt: 0,
            admin: self.admin,
            size: min..=max,
            opcodes: self.op.clone(),
            devices: self.session.clone(),
            map_sizes: vec![("records", self.buffer)],
        }
    }
}

fn op_word(opcode: u8) -> String {
    let name = ntp_record::record::op_name(opcode, false);
    if name == "io" {
        format!("{opcode:#x}")
    } else {
        name.into()
    }
}

fn seconds(word: &str) -> Result<Duration, String> {
    let value: f64 = word
        .parse()
        .map_err(|_| "not a number of seconds".to_string())?;
    Duration::try_from_secs_f64(value).map_err(|_| "not a number of seconds from 0 up".to_string())
}

fn opcode(word: &str) -> Result<u8, String> {
    if let Some((op, _)) = IO_OPS.iter().find(|(_, name)| *name == word) {
        return Ok(*op);
    }
    if word == "discard" {
        return opcode("dsm");
    }
    if let Ok(op) = word.parse() {
        return Ok(op);
    }
    let hex = word
        .strip_prefix("0x")
        .and_then(|digits| u8::from_str_radix(digits, 16).ok());
    hex.ok_or_else(|| {
        let names: Vec<&str> = IO_OPS.iter().map(|(_, name)| *name).collect();
        format!(
            "no such operation: one of {}, or an opcode as 0x2",
            names.join(", ")
        )
    })
}

/// A size in bytes: `4096`, `4k`, `4KiB`, `1m`.
fn size(word: &str) -> Result<u32, String> {
    let lower = word.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| !c.is_ascii_digit());
    let factor: u64 = match &lower[digits.len()..] {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        _ => return Err(format!("`{word}` is not a size: 4096, 4k, 4KiB, 1m")),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(factor))
        .and_then(|n| u32::try_from(n).ok())
        .ok_or_else(|| format!("`{word}` is not a size below 4 GiB: 4096, 4k, 4KiB, 1m"))
}

fn size_range(word: &str) -> Result<(u32, u32), String> {
    let (min, max) = match word.split_once('-') {
        None => (size(word)?, size(word)?),
        Some((min, "")) => (size(min)?, u32::MAX),
        Some((min, max)) => (size(min)?, size(max)?),
    };
    if min > max {
        return Err(format!(
            "`{word}` is an empty range: the smaller size comes first"
        ));
    }
    Ok((min, max))
}

fn buffer(word: &str) -> Result<u32, String> {
    let bytes = size(word)?;
    if bytes.is_power_of_two() && bytes >= 4096 {
        return Ok(bytes);
    }
    Err(format!("`{word}` is not a power of two from 4KiB up"))
}

fn format(word: &str) -> Result<Format, String> {
    let found = Format::ALL.iter().find(|(name, _)| *name == word);
    found.map(|(_, format)| *format).ok_or_else(|| {
        let names: Vec<&str> = Format::ALL.iter().map(|(name, _)| *name).collect();
        format!("no such format: one of {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("4k"), Ok(4096));
        assert_eq!(size("128KiB"), Ok(131072));
        assert_eq!(size("1m"), Ok(1 << 20));
        for bad in ["", "k", "4x", "-1", "5g", "4.5k"] {
            assert!(size(bad).is_err(), "{bad}");
        }
        assert_eq!(size_range("4k-1m"), Ok((4096, 1 << 20)));
        assert_eq!(size_range("4k-"), Ok((4096, u32::MAX)));
        assert_eq!(size_range("512"), Ok((512, 512)));
        assert!(size_range("8k-4k").is_err());
    }

    #[test]
    fn operations() {
        assert_eq!(opcode("read"), Ok(2));
        assert_eq!(opcode("discard"), Ok(9));
        assert_eq!(opcode("0x7d"), Ok(0x7d));
        assert_eq!(opcode("2"), Ok(2));
        assert!(opcode("reed").is_err());
        let options = Options::parse_from(["ntp-capture", "--op", "read,0x41"]);
        assert_eq!(options.programs().opcodes, [2, 0x41]);
        assert_eq!(options.filters(), ["op=read", "op=0x41"]);
    }

    #[test]
    fn every_option_has_help() {
        use clap::CommandFactory;
        Options::command().debug_assert();
        for arg in Options::command().get_arguments() {
            assert!(arg.get_help().is_some(), "{}", arg.get_id());
        }
    }
}

//! Every kind of command and connection, as data.

use crate::check::{self, FILE, NO_DRIVE, Points, R2T, USUAL};
use crate::machine::Machine;
use ntp_lab::Fio;
use ntp_record::header::Count;
use ntp_record::record::op_name;
use ntp_record::{Flags, Record};

/// What a target serves: name, and the guest's script that makes it and prints
/// it. Made once a boot.
const DRIVES: &[(&str, &str)] = &[
    ("plain", "null_blk plain 60000 1024"),
    ("other", "null_blk other 60000 1024"),
    ("native4k", "null_blk native4k 60000 1024 0 blocksize=4096"),
    // 4 TiB: block numbers above 2^32.
    ("huge", "null_blk huge 60000 4194304"),
    ("kept", "null_blk kept 60000 64 1 discard=1"),
    // From 7.2 on the target tells the host of drives that have no cache: those get no flush.
    ("cached", "null_blk cached 60000 64 1 cache_size=1"),
    ("file", "n=$(null_blk under 60000 96 1) && file_drive $n 64"),
    ("nvme", "nvme_drive"),
];

/// One connection of a host.
#[derive(Clone, Copy, Debug)]
pub struct Connect {
    /// Subsystem: each serves all drives of the scenario.
    pub subsystem: u8,
    /// Port of the target.
    pub port: u8,
    /// Host NQN.
    pub host: u8,
    /// As /dev/nvme-fabrics takes them.
    pub options: &'static str,
}

const fn with(options: &'static str) -> Connect {
    Connect {
        subsystem: 1,
        port: 1,
        host: 1,
        options,
    }
}

/// What runs while both sides record.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// fio at depth 1, 8 and 32 on all disks, with these arguments.
    Fio(&'static str),
    /// A script that has the disks as `$D1`, `$D2`; and how many commands of
    /// each opcode it gives, with whether they fail.
    Script(&'static str, &'static [(u8, u64, bool)]),
}

/// One kind of commands over one kind of connection.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Name.
    pub name: &'static str,
    /// Whether it is among those that every `make test` runs.
    pub always: bool,
    /// Kernels of which the driver cannot do it.
    pub not_on: &'static [&'static str],
    /// What is served, as namespaces 1, 2, ...
    pub drives: &'static [&'static str],
    /// Connections.
    pub connect: &'static [Connect],
    /// What runs.
    pub load: Load,
    /// What every command must have.
    pub points: Points,
    /// Flags that every command has.
    pub flags: &'static [Flags],
}

const BASE: Scenario = Scenario {
    name: "",
    always: false,
    not_on: &[],
    drives: &["plain"],
    connect: &[with("")],
    load: Load::Fio(""),
    points: USUAL,
    flags: &[],
};

/// Every combination of the matrix.
pub const COMMANDS: &[Scenario] = &[
    Scenario {
        name: "reads of 512 B",
        load: Load::Fio("--rw=randread --bs=512"),
        ..BASE
    },
    Scenario {
        name: "reads of 4 KiB",
        load: Load::Fio("--rw=randread --bs=4k"),
        ..BASE
    },
    Scenario {
        name: "reads of 128 KiB",
        load: Load::Fio("--rw=randread --bs=128k"),
        ..BASE
    },
    Scenario {
        name: "reads of 1 MiB",
        load: Load::Fio("--rw=randread --bs=1m"),
        ..BASE
    },
    Scenario {
        name: "reads ended by the SUCCESS flag",
        connect: &[with("disable_sqflow")],
        load: Load::Fio("--rw=randread --bs=4k"),
        flags: &[Flags::SuccessFlag],
        ..BASE
    },
    Scenario {
        name: "reads of 1 MiB ended by the SUCCESS flag",
        connect: &[with("disable_sqflow")],
        load: Load::Fio("--rw=randread --bs=1m"),
        flags: &[Flags::SuccessFlag],
        ..BASE
    },
    Scenario {
        name: "in-capsule writes of 4 KiB",
        load: Load::Fio("--rw=randwrite --bs=4k"),
        flags: &[Flags::InCapsule],
        ..BASE
    },
    Scenario {
        name: "R2T writes of 64 KiB",
        load: Load::Fio("--rw=randwrite --bs=64k"),
        points: R2T,
        flags: &[Flags::R2t],
        ..BASE
    },
    Scenario {
        name: "R2T writes of 1 MiB",
        always: true,
        load: Load::Fio("--rw=randwrite --bs=1m"),
        points: R2T,
        flags: &[Flags::R2t],
        ..BASE
    },
    Scenario {
        name: "reads and writes of 4 to 128 KiB",
        load: Load::Fio("--rw=randrw --bsrange=4k-128k"),
        ..BASE
    },
    Scenario {
        name: "reads and writes with flushes",
        drives: &["cached"],
        load: Load::Fio("--rw=randrw --bs=4k --fsync=4"),
        points: NO_DRIVE,
        ..BASE
    },
    Scenario {
        name: "discards",
        drives: &["kept"],
        load: Load::Fio("--rw=randtrim --bs=64k"),
        ..BASE
    },
    Scenario {
        name: "every other command",
        always: true,
        drives: &["kept"],
        load: Load::Script(
            "dd if=/dev/zero of=/tmp/4k bs=4k count=1 2> /dev/null
            for i in 0 1 2 3 4 5 6 7; do
                nvme flush $D1
                nvme write-zeroes $D1 -s $((i * 8)) -c 7
                nvme dsm $D1 -d -s $((i * 8)) -b 8
                nvme compare $D1 -s $((i * 8)) -c 7 -z 4096 -d /tmp/4k
                nvme write-uncor $D1 -s $((i * 8)) -c 7
                nvme verify $D1 -s $((i * 8)) -c 7
                # A read and a write by passthrough, and a read beyond the end.
                nvme io-passthru $D1 -o 2 -n 1 -4 $((i * 8)) -6 7 -l 4096 -r -b
                nvme io-passthru $D1 -o 1 -n 1 -4 $((i * 8)) -6 7 -l 4096 -w -i /tmp/4k
                nvme io-passthru $D1 -o 2 -n 1 -4 4294967295 -5 1 -6 7 -l 4096 -r -b
                # An opcode of nobody's; of one that says it brings data 5.10 makes a fatal error.
                nvme io-passthru $D1 -o 0x9c -n 1
            done > /tmp/said 2>&1
            true",
            &[
                (0x00, 8, false),
                (0x08, 8, false),
                (0x09, 8, false),
                (0x05, 8, true),
                (0x04, 8, true),
                (0x0c, 8, true),
                (0x02, 16, true),
                (0x01, 8, false),
                (0x9c, 8, true),
            ],
        ),
        points: NO_DRIVE,
        flags: &[Flags::Passthrough],
        ..BASE
    },
    Scenario {
        name: "blocks of 4096 B",
        drives: &["native4k"],
        load: Load::Fio("--rw=randrw --bsrange=4k-16k"),
        ..BASE
    },
    Scenario {
        name: "512 and 4096 B blocks in one controller",
        drives: &["plain", "native4k"],
        load: Load::Fio("--rw=randread --bs=4k"),
        ..BASE
    },
    Scenario {
        name: "offsets above 2^32 blocks",
        drives: &["huge"],
        load: Load::Fio("--rw=randrw --bs=4k --offset=2560g --norandommap"),
        ..BASE
    },
    Scenario {
        name: "header and data digest",
        always: true,
        connect: &[with("hdr_digest,data_digest")],
        load: Load::Fio("--rw=randrw --bsrange=4k-64k"),
        ..BASE
    },
    Scenario {
        name: "header digest, R2T writes",
        connect: &[with("hdr_digest")],
        load: Load::Fio("--rw=randwrite --bs=64k"),
        points: R2T,
        flags: &[Flags::R2t],
        ..BASE
    },
    Scenario {
        name: "data digest, reads of 1 MiB, SUCCESS flag",
        connect: &[with("data_digest,disable_sqflow")],
        load: Load::Fio("--rw=randread --bs=1m"),
        flags: &[Flags::SuccessFlag],
        ..BASE
    },
    Scenario {
        name: "several queues",
        connect: &[with("nr_io_queues=2,nr_write_queues=2")],
        load: Load::Fio("--rw=randrw --bs=4k --numjobs=2"),
        ..BASE
    },
    Scenario {
        name: "polled queues",
        always: true,
        // The disk above the paths cannot be polled: no queue_flag QUEUE_FLAG_POLL in nvme_mpath_alloc_disk().
        not_on: &["5.10"],
        connect: &[with("nr_io_queues=1,nr_poll_queues=2")],
        load: Load::Fio("--rw=randread --bs=4k --ioengine=io_uring --hipri"),
        flags: &[Flags::Polled],
        ..BASE
    },
    Scenario {
        name: "several namespaces",
        drives: &["plain", "other", "kept"],
        load: Load::Fio("--rw=randrw --bs=4k"),
        ..BASE
    },
    Scenario {
        name: "several controllers of one host",
        connect: &[
            with(""),
            Connect {
                subsystem: 2,
                ..with("")
            },
        ],
        load: Load::Fio("--rw=randrw --bs=4k"),
        ..BASE
    },
    Scenario {
        name: "two host NQNs, the same few blocks",
        always: true,
        connect: &[
            with("queue_size=16,nr_io_queues=1"),
            Connect {
                subsystem: 2,
                host: 2,
                ..with("queue_size=16,nr_io_queues=1")
            },
        ],
        load: Load::Fio("--rw=randrw --bs=4k --size=32k --norandommap"),
        ..BASE
    },
    Scenario {
        name: "the same few blocks over and over, 15 command ids",
        connect: &[with("queue_size=16,nr_io_queues=1")],
        load: Load::Fio("--rw=randrw --bs=4k --size=16k --norandommap --numjobs=2"),
        ..BASE
    },
    Scenario {
        name: "multipath over two ports",
        always: true,
        connect: &[
            with(""),
            Connect {
                port: 2,
                ..with("")
            },
        ],
        load: Load::Fio("--rw=randrw --bs=4k"),
        ..BASE
    },
    Scenario {
        name: "file-backed namespace",
        always: true,
        drives: &["file"],
        load: Load::Fio("--rw=randrw --bs=4k"),
        points: FILE,
        ..BASE
    },
    Scenario {
        name: "an NVMe drive behind the target",
        drives: &["nvme"],
        load: Load::Fio("--rw=randrw --bsrange=4k-64k"),
        ..BASE
    },
];

/// Whatever a scenario before left behind when it failed.
const CLEAR: &str = "
for p in /run/lab/*.pid; do
    [ ! -f $p ] || [ -f ${p%.pid}.rc ] || kill -INT $(cat $p)
done
nvme_disconnect
nvmet_clear
";

impl Scenario {
    /// Whether commands wait for a command id.
    fn few_ids(&self) -> bool {
        self.connect
            .iter()
            .any(|c| c.options.contains("queue_size"))
    }

    fn serve(&self) -> String {
        let mut script = String::from(CLEAR);
        for name in self.drives {
            let (_, make) = DRIVES.iter().find(|(n, _)| n == name).expect("drive");
            script += &format!(
                "[ -f /run/{name} ] || d=$({make}) || exit\n\
                 [ -f /run/{name} ] || echo $d > /run/{name}\n"
            );
        }
        let drives: String = self
            .drives
            .iter()
            .map(|d| format!(" $(cat /run/{d})"))
            .collect();
        let mut subsystems: Vec<u8> = self.connect.iter().map(|c| c.subsystem).collect();
        subsystems.dedup();
        for s in subsystems {
            script += &format!("nvmet_subsys nqn.2024-01.lab:s{s}{drives} || exit\n");
        }
        for c in self.connect {
            script += &format!(
                "[ -d $CONFIG/nvmet/ports/{0} ] || nvmet_port {0} 127.0.0.1 442{0} nqn.2024-01.lab:s{1} || exit\n\
                 [ -e $CONFIG/nvmet/ports/{0}/subsystems/nqn.2024-01.lab:s{1} ] ||\n\
                 ln -s $CONFIG/nvmet/subsystems/nqn.2024-01.lab:s{1} $CONFIG/nvmet/ports/{0}/subsystems/ || exit\n",
                c.port, c.subsystem
            );
        }
        script
    }

    /// Connects, and names the disks `$D1`, `$D2`, ... and all of them `$D`.
    fn connect(&self) -> String {
        let mut script = String::from("D=\n");
        let mut disks: Vec<(u8, usize)> = Vec::new();
        for c in self.connect {
            script += &format!(
                "c=$(nvme_connect nqn.2024-01.lab:s{} 127.0.0.1 442{} '{}' tcp {}) || exit\n",
                c.subsystem, c.port, c.options, c.host
            );
            for nsid in 1..=self.drives.len() {
                // A second path leads to the same disk.
                if disks.contains(&(c.subsystem, nsid)) {
                    continue;
                }
                disks.push((c.subsystem, nsid));
                script += &format!(
                    "D{0}=$(nvme_disk $c {nsid}) || exit\nD=$D${{D:+:}}$D{0}\n",
                    disks.len()
                );
            }
        }
        script + "for p in /sys/class/nvme-subsystem/*/iopolicy; do echo round-robin > $p; done\n"
    }

    /// Records and checks the scenario with one command in so many, one after the other.
    #[track_caller]
    pub fn run(
        &self,
        kernel: &str,
        machine: &mut Machine,
        samplings: &[u64],
    ) -> Vec<(String, check::Checked)> {
        machine.sh(120, &self.serve());
        let connected =
            self.connect() + "for i in 1 2 3 4; do eval echo D$i=\\$D$i; done; echo D=$D";
        let disks = machine.sh(120, &connected);
        let load = match self.load {
            Load::Fio(args) => format!("fio_depths $D {args}"),
            Load::Script(script, _) => script.to_owned(),
        };
        let load = disks + &load;
        let mut all = Vec::new();
        for &sampling in samplings {
            if sampling > 1 && matches!(self.load, Load::Script(..)) {
                continue;
            }
            let what = format!("{kernel}, {}, 1/{sampling}", self.name);
            let dir = machine.record("scenario", &format!("-s {sampling}"), &load);
            let checked = check::one_clock(&what, &dir, 32 / sampling, self.points);
            self.books(&what, &dir, &checked);
            all.push((what, checked));
        }
        machine.sh(60, "nvme_disconnect");
        all
    }

    /// What was seen is what was asked for, to the command.
    #[track_caller]
    fn books(&self, what: &str, dir: &std::path::Path, checked: &check::Checked) {
        for flag in self.flags {
            let with = checked.host.records.iter().filter(|r| r.has(*flag)).count();
            assert_eq!(with, checked.host.records.len(), "{what}: {flag:?}");
        }
        match self.load {
            Load::Fio(_) => {
                let fio = Fio::read(&dir.join("fio.json")).expect("fio");
                let asked = fio.ios + fio.syncs;
                for totals in [&checked.host.totals, &checked.target.totals] {
                    println!("{what}: {asked} of fio, {} seen", totals.seen);
                    // Neighbours that wait for a command id are merged: fewer commands,
                    // the same bytes. A discard's bytes are those of its range list.
                    let moved = |count: &&Count| op_name(count.opcode, false) != "dsm";
                    let groups = totals.groups.iter().filter(moved);
                    let bytes: u64 = groups.map(|g| g.commands * u64::from(g.bytes)).sum();
                    assert_eq!(bytes, fio.bytes, "{what}: bytes");
                    assert!(totals.seen <= asked, "{what}: {} seen", totals.seen);
                    assert!(
                        totals.seen == asked || self.few_ids(),
                        "{what}: {} seen",
                        totals.seen
                    );
                }
            }
            Load::Script(_, ops) => {
                for (opcode, count, fails) in ops {
                    let of = |r: &&Record| r.opcode == *opcode;
                    for (side, r) in [("host", &checked.host), ("target", &checked.target)] {
                        let n = r.records.iter().filter(of).count() as u64;
                        assert_eq!(n, *count, "{what}: {side} saw of opcode {opcode:#x}");
                        let failed = r.records.iter().filter(of).any(|r| r.status != 0);
                        assert_eq!(failed, *fails, "{what}: {side}, opcode {opcode:#x}");
                    }
                }
            }
        }
    }
}

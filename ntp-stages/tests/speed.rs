//! What a command costs: `cargo test --release -p ntp-stages --test speed -- --ignored --nocapture`.

mod util;

use ntp_record::{Item, Joined};
use ntp_stages::{Engine, Options};
use util::*;

/// CPU time of this thread so far, ns: what others do on the machine does not count.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Reads and writes mixed, on two devices, times spread as real ones are.
fn commands(count: u64) -> Vec<Joined> {
    let mut seed = 1u64;
    let mut next = move |around: i64| {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        around + (seed >> 40) as i64 % (around / 4).max(1)
    };
    (0..count)
        .map(|i| {
            let times = ReadTimes {
                host: [next(400), next(2600)],
                wire_out: next(5000),
                target: [5200, 650, 100, 500, 58_000, 100, 300, 1500].map(&mut next),
                wire_back: next(5800),
                host_back: [3800, 0, 690, 100, 70].map(&mut next),
            };
            let mut joined = joined_read(times, START + i * 10_000, 250_000_000_000, 4200);
            joined.host.dev = 1 + (i % 3 == 0) as u32;
            joined
        })
        .collect()
}

#[test]
#[ignore = "a measurement, of a release build"]
fn cost_of_a_command() {
    // As much as a chunk of a stream brings, still in the cache where the pipe left it.
    let mut joined = commands(2048);
    for (what, interval_ns) in [
        ("whole recording", None),
        ("intervals of 1 s", Some(1_000_000_000)),
    ] {
        let mut engine = Engine::new(Options {
            interval_ns,
            ..Options::default()
        });
        for item in joined_names(100) {
            engine.apply(&item);
        }
        let begin = cpu_ns();
        for _ in 0..500 {
            engine.apply(&Item::Joined(&joined));
            engine.take_rows();
            // On goes the clock of both machines.
            for joined in &mut joined {
                joined
                    .host
                    .at
                    .iter_mut()
                    .chain(&mut joined.target.at)
                    .for_each(|at| *at += 20_480_000);
            }
        }
        let each = (cpu_ns() - begin) as f64 / (500.0 * joined.len() as f64);
        println!("{what}: {each:.0} ns a joined command");
        engine.finish();
    }
}

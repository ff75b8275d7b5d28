//! Four joined reads whose component times are given: every figure of the
//! report was computed apart, from that list alone.

mod util;

use ntp_record::Item;
use ntp_record::row::{Kind, RateIs, Row, View};
use util::*;

const OFFSET: i64 = 250_000_000_000;

fn four_reads() -> Vec<ntp_record::Joined> {
    let times = [
        ReadTimes {
            host: [400, 2600],
            wire_out: 5000,
            target: [5200, 650, 100, 500, 58000, 100, 300, 1500],
            wire_back: 5800,
            host_back: [3800, 0, 690, 100, 70],
        },
        ReadTimes {
            host: [420, 2500],
            wire_out: 5100,
            target: [5300, 600, 120, 520, 60000, 110, 310, 1450],
            wire_back: 5700,
            host_back: [3700, 10, 700, 90, 80],
        },
        ReadTimes {
            host: [380, 2700],
            wire_out: 4900,
            target: [5100, 700, 110, 480, 57000, 90, 290, 1550],
            wire_back: 5900,
            host_back: [3900, 0, 680, 110, 60],
        },
        // The wire of this one is negative, both ways, by less than the clocks are known.
        ReadTimes {
            host: [400, 2600],
            wire_out: -700,
            target: [5250, 650, 110, 500, 63000, 100, 300, 1500],
            wire_back: -100,
            host_back: [3850, 30, 650, 100, 70],
        },
    ];
    let begin = |i: usize| START + 1_000_000 + i as u64 * 5_000_000;
    times
        .iter()
        .enumerate()
        .map(|(i, times)| joined_read(*times, begin(i), OFFSET, 1000))
        .collect()
}

fn report() -> Vec<Row> {
    let joined = four_reads();
    let mut items = joined_names(100);
    items.push(Item::Joined(&joined));
    items.push(Item::JoinTotals(join_totals(5, 9, 4)));
    rows(&items)
}

#[test]
fn a_group_has_its_latency_and_rate() {
    let rows = report();
    let [group] = groups(&rows)[..] else {
        panic!("one group")
    };
    assert_eq!(
        serde_json::to_string(&group.key).unwrap(),
        r#"{"op":"read","size":4096,"device":"nvme0n1"}"#
    );
    assert_eq!((group.view, group.with_target), (View::Joined, 4));
    let time = &group.latency;
    assert_eq!(
        (time.n, time.mean_ns, time.min_ns, time.max_ns),
        (4, Some(83445.0), Some(78310), Some(86710))
    );
    assert!(
        (time.stddev_ns.unwrap() - 3612.3261203828206).abs() < 1e-6,
        "{:?}",
        time.stddev_ns
    );
    // Nearest rank of 78310, 83950, 84810, 86710: the second, and the last; to three digits.
    assert!(
        (time.p50_ns.unwrap() - 83950).abs() <= 42,
        "{:?}",
        time.p50_ns
    );
    assert_eq!(
        time.p99_ns,
        Some(86710).map(|v| time.p99_ns.unwrap().clamp(v - 43, v + 43))
    );
    assert_eq!(time.few, ["p50", "p99", "p99.9"]);
    // 4 commands, each for 100, in the 15 078 310 ns from the first's begin to the last's end.
    assert_eq!(group.rate_is, Some(RateIs::Estimated));
    assert!((group.rate.unwrap() - 26528.171923776605).abs() < 1e-6);
    assert!((group.bytes_per_s.unwrap() - 26528.171923776605 * 4096.0).abs() < 1e-3);
    assert!((group.l.unwrap() - 26528.171923776605 * 83445.0 / 1e9).abs() < 1e-9);
    assert_eq!(
        group.largest.as_deref(),
        Some("storage (target block layer, drive)")
    );
    assert!((group.largest_share.unwrap() - 240_400.0 / 333_780.0).abs() < 1e-12);
}

#[test]
fn stages_add_up_to_the_latency() {
    let rows = report();
    let got: Vec<(&str, f64)> = stages(&rows)
        .iter()
        .map(|s| (s.title.as_str(), s.per_command_ns * 4.0))
        .collect();
    assert_eq!(
        got,
        [
            ("host block layer", 2280.0),
            ("host driver (nvme-tcp)", 13120.0),
            ("network (TCP/IP, NICs, wire)", 67740.0),
            ("target driver (nvmet-tcp)", 10240.0),
            ("storage (target block layer, drive)", 240_400.0),
        ]
    );
    let shares: f64 = stages(&rows).iter().map(|s| s.share.unwrap()).sum();
    assert!((shares - 1.0).abs() < 1e-12);
    let l: f64 = stages(&rows).iter().map(|s| s.l.unwrap()).sum();
    assert!((l - groups(&rows)[0].l.unwrap()).abs() < 1e-9);
}

#[test]
fn components_have_their_own_sums() {
    let rows = report();
    let sums: Vec<(&str, Kind, f64)> = components(&rows)
        .iter()
        .map(|c| {
            (
                c.component.as_str(),
                c.kind,
                c.time.mean_ns.unwrap() * c.time.n as f64,
            )
        })
        .collect();
    assert_eq!(
        sums,
        [
            ("host block layer, submission", Kind::Sum, 1600.0),
            ("host driver, submission", Kind::Sum, 10400.0),
            ("network: wire and NICs (computed)", Kind::Sum, 31600.0),
            ("host to target (estimated)", Kind::Within, 14300.0),
            ("target to host (estimated)", Kind::Within, 17300.0),
            ("network: target receive path", Kind::Sum, 20850.0),
            ("target driver, submission", Kind::Sum, 2600.0),
            (
                "target driver, handing to the block layer",
                Kind::Sum,
                440.0
            ),
            (
                "storage: target block layer and drive",
                Kind::Sum,
                240_400.0
            ),
            ("target block layer, submission", Kind::Part, 2000.0),
            ("drive", Kind::Part, 238_000.0),
            ("target block layer, completion", Kind::Part, 400.0),
            ("target driver, completion", Kind::Sum, 1200.0),
            (
                "target driver, response waiting for the worker",
                Kind::Sum,
                6000.0
            ),
            ("network: host receive path", Kind::Sum, 15250.0),
            ("network: rest of the data arriving", Kind::Sum, 40.0),
            ("host driver, processing the data", Kind::Sum, 2720.0),
            ("handoff to nvme_complete_rq", Kind::Sum, 400.0),
            ("host block layer, completion", Kind::Sum, 280.0),
        ]
    );
    let wire = component(&rows, "network: wire and NICs (computed)");
    assert_eq!(
        (wire.time.negative, wire.time.min_ns, wire.time.max_ns),
        (1, Some(-800), Some(10800))
    );
    assert_eq!(
        wire.time.p50_ns.map(|ns| (ns - 10800).abs() <= 6),
        Some(true)
    );
    assert_eq!(
        component(&rows, "host to target (estimated)").bound_ns,
        Some(1000)
    );
    assert_eq!(
        component(&rows, "drive").parent.as_deref(),
        Some("storage: target block layer and drive")
    );
}

#[test]
fn the_books_name_what_is_odd() {
    let rows = report();
    let totals = totals_row(&rows);
    assert_eq!(
        (totals.host, totals.target, totals.matched, totals.reported),
        (5, 9, Some(4), 4)
    );
    assert_eq!(
        (totals.matched_of_host, totals.sum_mismatches),
        (Some(0.8), 0)
    );
    assert_eq!((totals.wire_negative, totals.out_of_order), (1, 0));
    // 700 ns before its cause, with clocks known to 1000 ns: no contradiction.
    assert_eq!((totals.in_order, totals.in_order_of), (4, 4));
    assert_eq!(warnings(&rows), ["few-samples", "wire-negative"]);
    let [clock] = rows
        .iter()
        .filter_map(|r| if let Row::Clock(c) = r { Some(c) } else { None })
        .collect::<Vec<_>>()[..]
    else {
        panic!("one clock")
    };
    assert_eq!(
        (clock.host.as_str(), clock.target.as_str(), clock.n),
        ("alpha", "beta", 4)
    );
    assert_eq!(
        (clock.offset_ns, clock.last_offset_ns, clock.drift_ppm),
        (OFFSET, OFFSET, Some(0.0))
    );
    assert_eq!(
        (clock.bound_mean_ns, clock.bound_max_ns),
        (Some(1000.0), Some(1000))
    );
}

#[test]
fn an_effect_before_its_cause_is_counted() {
    let mut joined = four_reads();
    // Known to 100 ns, 700 ns too early is a contradiction.
    joined.iter_mut().for_each(|j| j.offset_bound_ns = 100);
    // And without a bound nothing can be said.
    joined[0].offset_bound_ns = u64::MAX;
    let mut items = joined_names(100);
    items.push(Item::Joined(&joined));
    items.push(Item::JoinTotals(join_totals(4, 4, 4)));
    let rows = rows(&items);
    let totals = totals_row(&rows);
    assert_eq!((totals.in_order, totals.in_order_of), (2, 3));
    assert_eq!(component(&rows, "host to target (estimated)").time.n, 3);
    assert!(warnings(&rows).contains(&"not-in-order") && warnings(&rows).contains(&"no-bound"));
}

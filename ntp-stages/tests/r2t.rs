//! A write that waits for an R2T: two round trips, each with its own wire.

mod util;

use ntp_record::point::{host as h, target as t};
use ntp_record::row::{Kind, Row};
use ntp_record::{Flags, Item, Joined, Point, Record};
use util::*;

const OFFSET: u64 = 77_000_000_000;

/// The write, with the times of each step in its code.
fn joined() -> Joined {
    let host = Way::new(write(Flags::R2t), START, h::BLOCK_START)
        .step(500, h::DRIVER_START)
        .step(3000, h::SEND_BEGIN);
    let target = Record {
        conn: 2,
        dev: 2,
        ..write(Flags::R2t)
    };
    let target = Way::new(target, host.now() + 6000 + OFFSET, t::ARRIVED)
        .step(4000, t::RECEIVED)
        .step(300, t::R2T_QUEUED)
        .step(1200, t::R2T_SEND);
    let host = host
        .pass(6000 + 4000 + 300 + 1200)
        .step(7000, h::R2T_ARRIVED)
        .step(2000, h::R2T_READ);
    let host = host.step(5000, h::DATA_SEND_BEGIN);
    let target = target
        .pass(7000 + 2000 + 5000)
        .step(8000, t::DATA_ARRIVED)
        .step(2500, t::DATA_READ)
        .step(90_000, t::EXECUTE)
        .step(400, t::BIO_SUBMIT)
        .step(600, t::DRIVE_ISSUE)
        .step(45_000, t::DRIVE_DONE)
        .step(150, t::BIO_DONE)
        .step(350, t::RESP_QUEUED)
        .step(1100, t::SEND_BEGIN);
    let held = 2500 + 90_000 + 400 + 600 + 45_000 + 150 + 350 + 1100;
    let host = host
        .pass(8000 + held)
        .step(6500, h::RESP_ARRIVED)
        .step(3600, h::RESP_READ)
        .step(0, h::RESP_LAST)
        .step(1500, h::COMPLETED)
        .step(200, h::COMPLETE_RQ)
        .step(100, h::BLOCK_DONE);
    Joined {
        host: host.record,
        target: target.record,
        offset_ns: OFFSET as i64,
        offset_bound_ns: 50,
    }
}

fn sums(rows: &[Row]) -> Vec<(String, f64)> {
    let all = components(rows);
    let sums = all.iter().filter(|c| c.kind == Kind::Sum);
    sums.map(|c| (c.component.clone(), c.time.mean_ns.unwrap()))
        .collect()
}

fn report(joined: Joined) -> Vec<Row> {
    let mut items = joined_names(1);
    let joined = [joined];
    items.push(Item::Joined(&joined));
    rows(&items)
}

#[test]
fn both_round_trips_have_their_wire() {
    let rows = report(joined());
    let want = [
        ("host block layer, submission", 500.0),
        ("host driver, submission", 3000.0),
        (
            "network: wire and NICs, capsule and R2T (computed)",
            13_000.0,
        ),
        ("network: target receive path", 4000.0),
        ("target driver, submission", 300.0),
        ("target driver, R2T waiting for the worker", 1200.0),
        ("network: host receive path, R2T", 2000.0),
        ("host driver, sending the data", 5000.0),
        (
            "network: wire and NICs, data and response (computed)",
            14_500.0,
        ),
        ("network: target receive path, data", 2500.0),
        ("network: rest of the data arriving at the target", 90_000.0),
        ("target driver, handing to the block layer", 400.0),
        ("storage: target block layer and drive", 45_750.0),
        ("target driver, completion", 350.0),
        ("target driver, response waiting for the worker", 1100.0),
        ("network: host receive path", 3600.0),
        ("network: rest of the response arriving", 0.0),
        ("host driver, completion", 1500.0),
        ("handoff to nvme_complete_rq", 200.0),
        ("host block layer, completion", 100.0),
    ];
    let want: Vec<(String, f64)> = want
        .iter()
        .map(|(name, ns)| ((*name).to_owned(), *ns))
        .collect();
    assert_eq!(sums(&rows), want);
    assert_eq!(groups(&rows)[0].latency.mean_ns, Some(189_000.0));
    for (way, ns) in [
        ("capsule, host to target (estimated)", 6000.0),
        ("R2T, target to host (estimated)", 7000.0),
        ("data, host to target (estimated)", 8000.0),
        ("response, target to host (estimated)", 6500.0),
    ] {
        assert_eq!(component(&rows, way).time.mean_ns, Some(ns), "{way}");
    }
    assert_eq!(
        (totals_row(&rows).in_order, totals_row(&rows).in_order_of),
        (1, 1)
    );
}

#[test]
fn each_crossing_is_checked_for_order() {
    let early = |point: Point, on_host: bool| {
        let mut joined = joined();
        let record = if on_host {
            &mut joined.host
        } else {
            &mut joined.target
        };
        // 51 ns more than the wire took: beyond the bound of 50.
        record.at[usize::from(point.index)] -= match point.name {
            "r2t_arrived" => 7000 + 51,
            "data_arrived" => 8000 + 51,
            _ => unreachable!(),
        };
        totals_row(&report(joined)).in_order
    };
    assert_eq!(early(h::R2T_ARRIVED, true), 0);
    assert_eq!(early(t::DATA_ARRIVED, false), 0);
}

#[test]
fn an_r2t_the_host_did_not_see_is_not_split() {
    let mut joined = joined();
    for point in [h::R2T_ARRIVED, h::R2T_READ, h::DATA_SEND_BEGIN] {
        joined.host.present &= !(1 << point.index);
    }
    let rows = report(joined);
    // R2T's way, the host's part, the data's way.
    assert_eq!(
        component(&rows, "network and host, R2T to data (not split)")
            .time
            .mean_ns,
        Some(7000.0 + 2000.0 + 5000.0 + 8000.0)
    );
    assert_eq!(
        component(&rows, "network: wire and NICs (computed)")
            .time
            .mean_ns,
        Some(6000.0 + 6500.0)
    );
    assert_eq!(groups(&rows)[0].latency.mean_ns, Some(189_000.0));
}

//! A command that was retried: the request is that of the first attempt, all
//! else that of the last.

mod util;

use ntp_record::point::{host as h, target as t};
use ntp_record::row::{Kind, Row};
use ntp_record::{Flags, Item, Joined, Point, Record, Role};
use util::*;

const ATTEMPTS: &str = "earlier attempts and requeueing";
const BLOCK: &str = "host block layer, submission";

/// 30 s of a timeout before the driver is called again.
fn retried() -> Joined {
    let mut joined = joined_read(
        ReadTimes {
            host: [30_000_000_000, 2000],
            wire_out: 3000,
            target: [1000; 8],
            wire_back: 4000,
            host_back: [1000; 5],
        },
        START,
        0,
        0,
    );
    joined.host.flags |= Flags::Retried as u16 | Flags::TimedOut as u16;
    joined
}

fn of_host(record: Record) -> Vec<Row> {
    let records = [record];
    let mut items = names(Role::Host, 1);
    items.push(Item::Records(&records));
    rows(&items)
}

fn of_both(joined: Joined) -> Vec<Row> {
    let joined = [joined];
    let mut items = joined_names(1);
    items.push(Item::Joined(&joined));
    rows(&items)
}

/// The same as a write that waits for an R2T, with what the target saw of it.
fn r2t() -> Joined {
    let mut joined = retried();
    for record in [&mut joined.host, &mut joined.target] {
        record.opcode = 1;
        record.flags |= Flags::R2t as u16;
    }
    let sent = joined.host.time(h::SEND_BEGIN).unwrap();
    let got = joined.target.time(t::RECEIVED).unwrap();
    for (point, ns) in [
        (t::R2T_QUEUED, 10),
        (t::R2T_SEND, 20),
        (t::DATA_ARRIVED, 500),
        (t::DATA_READ, 600),
    ] {
        joined.target.set(point, got + ns);
    }
    for (point, ns) in [
        (h::R2T_ARRIVED, 4100),
        (h::R2T_READ, 4150),
        (h::DATA_SEND_BEGIN, 4200),
    ] {
        joined.host.set(point, sent + ns);
    }
    joined
}

fn without(mut joined: Joined, points: &[Point]) -> Joined {
    for point in points {
        let record = match point.side {
            Role::Host => &mut joined.host,
            Role::Target => &mut joined.target,
        };
        record.present &= !(1 << point.index);
    }
    joined
}

#[test]
fn earlier_attempts_are_no_time_of_the_block_layer() {
    let r2t_on_host = [h::R2T_ARRIVED, h::R2T_READ, h::DATA_SEND_BEGIN];
    for rows in [
        of_both(retried()),
        of_both(r2t()),
        of_both(without(r2t(), &r2t_on_host)),
        of_host(retried().host),
        of_host(r2t().host),
    ] {
        let attempts = component(&rows, ATTEMPTS);
        assert_eq!(attempts.time.max_ns, Some(30_000_000_000));
        assert_eq!(
            (attempts.stage.as_str(), attempts.kind),
            ("host driver", Kind::Sum)
        );
        let block = component(&rows, BLOCK);
        assert_eq!((block.time.n, block.missing), (0, 1));
        assert_eq!(
            block.reason.as_deref(),
            Some("retried: the driver's start is the last attempt's")
        );
        assert_eq!(block.shows_in.as_deref(), Some(ATTEMPTS));
        assert_eq!(totals_row(&rows).sum_mismatches, 0);
        assert_eq!(
            groups(&rows)[0].largest.as_deref(),
            Some("host driver (nvme-tcp)")
        );
    }
}

#[test]
fn they_take_what_cannot_be_told_apart_on_the_host() {
    for points in [&[h::DRIVER_START][..], &[h::DRIVER_START, h::SEND_BEGIN]] {
        let rows = of_host(without(retried(), points).host);
        assert!(component(&rows, ATTEMPTS).time.max_ns >= Some(30_000_000_000));
        assert_eq!(component(&rows, BLOCK).shows_in.as_deref(), Some(ATTEMPTS));
    }
    // Without the begin nobody knows how long they were.
    let rows = of_host(without(retried(), &[h::BLOCK_START]).host);
    assert_eq!(component(&rows, ATTEMPTS).time.n, 0);
    assert_eq!(component(&rows, BLOCK).shows_in, None);
}

#[test]
fn a_command_of_one_attempt_has_no_earlier_ones() {
    let mut joined = retried();
    joined.host.flags = 0;
    let rows = of_both(joined);
    assert!(components(&rows).iter().all(|c| c.component != ATTEMPTS));
    assert_eq!(component(&rows, BLOCK).time.n, 1);
}

//! What becomes of the components of commands that lack points.

use super::*;
use ntp_record::point::{host as h, target as t};
use ntp_record::row::View;

fn kind(view: View, host: &[Point], target: &[Point]) -> Kind {
    let bits = |points: &[Point]| {
        points
            .iter()
            .fold(0, |bits, point| bits | 1u32 << slot(*point))
    };
    Kind {
        present: bits(host) | bits(target),
        view,
        r2t: false,
        passthrough: false,
        tls: false,
        when: 0,
    }
}

fn shows_in(plan: &Plan, id: Id) -> Option<Id> {
    plan.absorbed
        .iter()
        .find(|a| a.id == id)
        .expect("absorbed")
        .shows_in
}

fn measures(plan: &Plan, id: Id) -> bool {
    plan.measured.iter().any(|m| m.id == id)
}

const HOST: &[Point] = &[
    h::BLOCK_START,
    h::DRIVER_START,
    h::SEND_BEGIN,
    h::RESP_ARRIVED,
    h::RESP_READ,
    h::RESP_LAST,
    h::COMPLETED,
    h::COMPLETE_RQ,
    h::BLOCK_DONE,
];

#[test]
fn a_backend_without_bios_is_storage_whole() {
    let target = [
        t::ARRIVED,
        t::RECEIVED,
        t::EXECUTE,
        t::RESP_QUEUED,
        t::SEND_BEGIN,
    ];
    let plan = plan(kind(View::Joined, HOST, &target)).unwrap();
    assert!(measures(&plan, Id::Storage));
    for id in [
        Id::TargetHandoff,
        Id::Drive,
        Id::TargetBlockSubmission,
        Id::TargetBlockCompletion,
        Id::TargetCompletion,
    ] {
        assert_eq!(shows_in(&plan, id), Some(Id::Storage));
    }
}

#[test]
fn a_drive_whose_issue_was_not_seen_holds_the_submission() {
    let target = [
        t::ARRIVED,
        t::RECEIVED,
        t::EXECUTE,
        t::BIO_SUBMIT,
        t::DRIVE_DONE,
        t::BIO_DONE,
        t::RESP_QUEUED,
        t::SEND_BEGIN,
    ];
    let plan = plan(kind(View::Target, &[], &target)).unwrap();
    assert_eq!(shows_in(&plan, Id::TargetBlockSubmission), Some(Id::Drive));
    assert!(measures(&plan, Id::Drive) && measures(&plan, Id::TargetBlockCompletion));
    assert!(
        measures(&plan, Id::Storage),
        "the parent is the sum of its parts"
    );
}

#[test]
fn arrivals_that_were_not_seen_are_inside_the_wire() {
    let host: Vec<Point> = HOST
        .iter()
        .copied()
        .filter(|p| *p != h::RESP_ARRIVED)
        .collect();
    let target = [
        t::RECEIVED,
        t::EXECUTE,
        t::BIO_SUBMIT,
        t::BIO_DONE,
        t::RESP_QUEUED,
        t::SEND_BEGIN,
    ];
    let plan = plan(kind(View::Joined, &host, &target)).unwrap();
    assert_eq!(shows_in(&plan, Id::TargetReceive), Some(Id::Wire));
    assert_eq!(shows_in(&plan, Id::HostReceive), Some(Id::Wire));
    assert_eq!(plan.crossings.len(), 2);
}

#[test]
fn tls_is_why_arrivals_are_absent_and_nothing_else_is() {
    let host: Vec<Point> = HOST
        .iter()
        .copied()
        .filter(|p| *p != h::RESP_ARRIVED)
        .collect();
    let target = [t::RECEIVED, t::EXECUTE, t::RESP_QUEUED, t::SEND_BEGIN];
    let why = |tls| {
        let kind = Kind {
            tls,
            ..kind(View::Joined, &host, &target)
        };
        let plan = plan(kind).unwrap();
        [Id::TargetReceive, Id::HostReceive, Id::Drive].map(|id| {
            let absorbed = plan.absorbed.iter().find(|a| a.id == id);
            absorbed.expect("absorbed").why
        })
    };
    let [arrived, resp_arrived] = [slot(t::ARRIVED), slot(h::RESP_ARRIVED)];
    let drive = Why::Point(slot(t::DRIVE_DONE));
    assert_eq!(
        why(true),
        [Why::Tls(arrived), Why::Tls(resp_arrived), drive]
    );
    assert_eq!(
        why(false),
        [Why::Point(arrived), Why::Point(resp_arrived), drive]
    );
}

#[test]
fn half_a_command_has_no_plan() {
    assert_eq!(
        plan(kind(View::Host, &HOST[2..], &[])),
        Err("the start on the host")
    );
    assert_eq!(
        plan(kind(View::Host, &HOST[..6], &[])),
        Err("the end on the host")
    );
    assert_eq!(
        plan(kind(View::Target, &[], &[t::ARRIVED, t::EXECUTE])),
        Err("the end on the target")
    );
    // A joined command without a whole target side is what the host saw.
    let alone = plan(kind(View::Joined, HOST, &[t::ARRIVED])).unwrap();
    assert!(!alone.with_target && measures(&alone, Id::TargetUnrecorded));
}

#[test]
fn every_combination_of_points_cancels_the_clocks() {
    // Not one combination may reach the error that is there to be safe.
    let mut seed = 7u64;
    for round in 0..200_000u32 {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let view = [View::Joined, View::Host, View::Target][(seed >> 60) as usize % 3];
        let present = match view {
            View::Joined => (seed >> 20) as u32,
            View::Host => (seed >> 20) as u32 & 0xffff,
            View::Target => (seed >> 20) as u32 & 0xffff_0000,
        };
        let kind = Kind {
            present,
            view,
            r2t: round & 1 == 0,
            passthrough: round & 2 == 0,
            tls: round & 32 == 0,
            when: (round >> 2) as u8 & 7,
        };
        match plan(kind) {
            Err(what) => assert_ne!(what, "both ways over the wire", "{kind:?}"),
            Ok(plan) => assert!(plan.measured.len() <= MEASURED),
        }
    }
}

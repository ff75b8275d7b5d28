use super::*;

fn limits(sent: i64, heard: i64, upper: i64, lower: i64) -> Limits {
    Limits {
        upper: Bound {
            at: sent,
            ns: upper,
        },
        lower: Some(Bound {
            at: heard,
            ns: lower,
        }),
        r2t: None,
    }
}

/// Theta of the simulated clocks.
fn theta(at: i64, ppm: i64) -> i64 {
    7_000_000_000 + at / 1_000_000 * ppm
}

/// Pairs every ms, delays 20 us and more, one in 16 the shortest.
fn feed(track: &mut Track, times: std::ops::Range<i64>, ppm: i64) {
    for i in times {
        let (sent, heard) = (i * 1_000_000, i * 1_000_000 + 200_000);
        let extra = (i * 7919 % 16) * 3_000;
        track.add(&limits(
            sent,
            heard,
            theta(sent, ppm) + 20_000 + extra,
            theta(heard, ppm) - 20_000 - extra,
        ));
    }
}

#[test]
fn slack_is_never_less_than_the_rate_says() {
    for time in [0, 1, 999, 1_024, 1_000_000, 1_234_567_891, i64::MAX / 8] {
        let exact = i128::from(time) * i128::from(MAX_PPM) / 1_000_000;
        assert!(i128::from(slack(time)) >= exact, "{time}");
        assert!(i128::from(slack(time)) <= exact + exact / 500 + 2, "{time}");
        assert_eq!(slack(time), slack(-time));
    }
}

#[test]
fn the_interval_holds_theta_and_is_about_the_delays_wide() {
    for ppm in [-500, -200, 0, 3, 200, 500] {
        let mut track = Track::new(0, Span::ALL);
        feed(&mut track, 0..20_000, ppm);
        track.settle();
        for i in 0..20_000 {
            let at = i * 1_000_000 + 77_777;
            let span = track.offset(at, at, &mut Gap::default());
            let truth = theta(at, ppm);
            assert!(
                span.lo <= truth && truth <= span.hi,
                "{ppm} {i} {span:?} {truth}"
            );
            let bound = span.middle().map(|(_, bound)| bound);
            assert!(
                bound.is_some_and(|bound| (19_900..21_500).contains(&bound)),
                "{ppm} {i} {bound:?}"
            );
        }
        let estimate = track.drift_ppm();
        assert!(
            estimate.is_some_and(|estimate| (estimate - ppm as f64).abs() < 5.0),
            "{ppm} {estimate:?}"
        );
    }
}

#[test]
fn the_interval_holds_theta_through_a_change_of_the_rate() {
    let mut track = Track::new(0, Span::ALL);
    feed(&mut track, 0..10_000, 100);
    let bent = |at: i64| theta(at, 100) - (at - 10_000_000_000).max(0) / 1_000_000 * 30;
    for i in 10_000..20_000i64 {
        let (sent, heard) = (i * 1_000_000, i * 1_000_000 + 200_000);
        let extra = (i * 7919 % 16) * 3_000;
        let l = limits(
            sent,
            heard,
            bent(sent) + 20_000 + extra,
            bent(heard) - 20_000 - extra,
        );
        assert!(track.allows(&l), "{i}");
        track.add(&l);
    }
    track.settle();
    for i in 0..20_000 {
        let at = i * 1_000_000;
        let span = track.offset(at, at, &mut Gap::default());
        assert!(
            span.lo <= bent(at) && bent(at) <= span.hi,
            "{i} {span:?} {}",
            bent(at)
        );
    }
}

#[test]
fn bounds_from_later_count_at_earlier_moments() {
    let mut track = Track::new(0, Span::ALL);
    track.add(&limits(0, 100, 1_000_000, -1_000_000));
    track.add(&limits(1_000_000_000, 1_000_000_100, 10, -10));
    track.settle();
    let span = track.offset(0, 0, &mut Gap::default());
    let reach = MAX_PPM * 1_000; // of one second, ns
    assert!(
        span.hi >= 10 + reach && span.hi < 20 + reach + reach / 500,
        "{span:?}"
    );
    assert!(
        span.lo <= -10 - reach && span.lo > -20 - reach - reach / 500,
        "{span:?}"
    );
}

#[test]
fn a_pair_out_of_order_is_not_allowed() {
    let mut track = Track::new(0, Span::ALL);
    feed(&mut track, 0..1_000, 0);
    let base = theta(0, 0);
    // Response sent by the target after the host had it, under every theta left.
    assert!(!track.allows(&limits(
        1_000_000_000,
        1_000_100_000,
        base + 400_000,
        base + 60_000
    )));
    // Capsule there before it was sent.
    assert!(!track.allows(&limits(
        1_000_000_000,
        1_000_100_000,
        base - 60_000,
        base - 400_000
    )));
    // Held for longer than waited.
    let mut blank = Track::new(0, Span::ALL);
    assert!(!blank.allows(&limits(0, 1_000, base, base + 5)));
    blank.add(&limits(0, 1_000, base, base - 5));
    assert!(blank.allows(&limits(2_000, 3_000, base + 4, base - 9)));
}

#[test]
fn nothing_known_has_no_middle() {
    assert_eq!(Span::ALL.middle(), None);
    assert_eq!(Span { lo: 3, hi: 2 }.middle(), None);
    assert_eq!(Span { lo: -3, hi: 4 }.middle(), Some((0, 4)));
    assert_eq!(Span { lo: 5, hi: 5 }.middle(), Some((5, 0)));
}

#[test]
fn memory_is_bounded_and_the_past_is_kept_for_a_while() {
    let mut track = Track::new(0, Span::ALL);
    for i in 0..100_000i64 {
        let at = i * 20_000_000;
        track.add(&limits(at, at + 1_000, 20_000, -20_000));
    }
    assert_eq!(track.knots.len(), KNOTS);
    track.settle();
    let at = 100_000 * 20_000_000 - 60_000_000_000;
    assert!(
        track
            .offset(at, at, &mut Gap::default())
            .middle()
            .is_some_and(|(_, bound)| bound < 35_000)
    );
}

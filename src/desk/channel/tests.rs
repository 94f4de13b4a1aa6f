use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::limiter::{Algorithm, Rule};
use crate::store::{NothingAccepted, Suspension};

fn census() -> ChannelCensus {
    ChannelCensus {
        channel: "acme".to_owned(),
        counts: BTreeMap::from([(State::Ready, 101), (State::Succeeded, 7)]),
        oldest_ready_age: Some(Duration::from_millis(1500)),
        sends_last_minute: 90,
        accepted_last_minute: 90,
        accepted_last_seconds: 20,
        max_backlog: Some(1_000_000),
        run_by: vec!["node-a#1".to_owned()],
        drain: Some(Duration::from_millis(100_200)),
        ..ChannelCensus::default()
    }
}

/// One limit of 20 a second.
fn limited() -> Vec<LimitStatus> {
    let rule = Rule {
        algorithm: Algorithm::FixedWindow { zone: None },
        permits: 20,
        per: Duration::from_secs(1),
        lateness: Duration::ZERO,
    };
    vec![LimitStatus::new("acme", &rule)]
}

fn suspension(by: SuspendedBy) -> Suspension {
    let (at, is_cooling) = (Timestamp::UNIX_EPOCH, by == SuspendedBy::Cooling);
    Suspension {
        channel: Some("acme".to_owned()),
        by,
        reason: "a reason".to_owned(),
        who: "ann".to_owned(),
        since: (!is_cooling).then_some(at),
        until: is_cooling.then_some(at),
        left: None,
        probe_in: None,
    }
}

fn report(bank: &Value) -> Vec<(String, NodeReport)> {
    let report = json!({ "banks": { "acme": bank } });
    vec![("node-a".to_owned(), serde_json::from_value(report).unwrap())]
}

#[test]
fn a_status_has_the_census_and_what_a_node_reports() {
    let mut status = ChannelStatus::of(&census());
    status.limits = Some(limited());
    status.note_depth(Some(50));
    status.note_reports(&report(&json!({
        "binds": "limit", "binds_limit": "acme", "binds_share": 0.93, "bank_p50_ms": 120.5, "request_ms": 130.0,
        "set_up_ms": 12.0, "of_another_version": 1,
    })));
    assert_eq!((status.backlog, status.expected_seconds_to_drain), (101, Some(101)));
    assert!((status.observed_per_second - 2.0).abs() < 1e-9, "twenty in the last ten seconds");
    insta::assert_json_snapshot!(status);
}

#[test]
fn a_slow_channel_shows_its_pace_over_a_minute_and_a_fast_one_over_ten_seconds() {
    let slow = ChannelCensus { accepted_last_minute: 10, accepted_last_seconds: 0, ..census() };
    assert_eq!(slow.observed(), (10.0 / 60.0, 60));
    let stopped = ChannelCensus { accepted_last_minute: 600, accepted_last_seconds: 0, ..census() };
    assert_eq!(stopped.observed(), (0.0, 10));
    let paused = ChannelCensus { suspensions: vec![suspension(SuspendedBy::Person)], ..slow };
    assert_eq!(paused.observed(), (0.0, 10), "a slow channel that was stopped");
}

#[test]
fn a_suspended_channel_is_bound_by_its_suspension_whatever_was_measured() {
    let limited = report(&json!({ "binds": "limit", "binds_share": 1.0 }));
    let of = |causes: &[SuspendedBy]| {
        let suspensions = causes.iter().copied().map(suspension).collect();
        let mut status = ChannelStatus::of(&ChannelCensus { suspensions, ..census() });
        status.note_reports(&limited);
        (status.state.as_str(), status.binds.as_str())
    };
    assert_eq!(of(&[]), ("running", "limit"));
    assert_eq!(of(&[SuspendedBy::Person]), ("paused", "paused"));
    assert_eq!(of(&[SuspendedBy::Cooling]), ("cooling", "cooling"));
    assert_eq!(of(&[SuspendedBy::Breaker, SuspendedBy::Cooling]), ("breaker", "breaker"));
}

#[test]
fn a_channel_whose_bank_refuses_everything_says_so_and_not_that_its_rate_climbs() {
    let refusing = NothingAccepted {
        since: Timestamp::UNIX_EPOCH,
        lasts: Duration::from_mins(16),
        is_older: false,
        sends: 40,
        asked_to_wait: 40,
    };
    let status = |nothing_accepted: Option<NothingAccepted>| {
        let drain = census().drain.filter(|_| nothing_accepted.is_none());
        ChannelStatus::of(&ChannelCensus { nothing_accepted, drain, slowed: Some(10), ..census() })
    };
    let text = |one: &NothingAccepted| NothingAcceptedStatus::from(one).text;
    assert_eq!(text(&refusing), "nothing was accepted for 16 min: the bank asked to wait 40 times");
    let mixed = NothingAccepted { is_older: true, asked_to_wait: 38, ..refusing.clone() };
    assert_eq!(
        text(&mixed),
        "nothing was accepted for at least 16 min: the bank refused 40 sends, 38 of them with the request to wait"
    );
    let refused = status(Some(refusing.clone()));
    assert_eq!(refused.drain(), Drain::Unknown(text(&refusing)));
    assert_eq!(
        refused.reasons()[..2],
        [
            format!("acme: {}", text(&refusing)),
            "acme sends at 10 % of its rate, because the bank asked for slower".to_owned(),
        ]
    );
    let slowed = status(None);
    assert_eq!(slowed.drain(), Drain::In(Duration::from_secs(101)));
    let ends =
        "the rate climbs back while it accepts; for the full rate at once: refundd resume acme --cooling";
    assert!(slowed.reasons()[0].ends_with(ends), "{:?}", slowed.reasons());
}

#[test]
fn of_several_nodes_the_longest_wait_binds_and_trouble_is_shown() {
    let mut reports = report(&json!({ "binds": "limit", "binds_share": 0.4 }));
    let other = json!({ "binds": "in_flight", "binds_share": 0.9, "unreachable": "connect: refused" });
    reports.extend(report(&other));
    let mut status = ChannelStatus::of(&census());
    status.note_reports(&reports);
    assert_eq!((status.state, status.binds), (Standing::Unreachable, Binds::InFlight));
    assert_eq!(status.bank.and_then(|bank| bank.unreachable).as_deref(), Some("connect: refused"));
}

#[test]
fn of_two_nodes_in_different_trouble_the_unreachable_bank_counts_and_its_reason_is_shown() {
    let unreachable = json!({ "unreachable": "connect: refused" });
    let blocked = json!({ "blocked": "the clocks disagree" });
    for (first, second) in [(&unreachable, &blocked), (&blocked, &unreachable)] {
        let mut reports = report(first);
        reports.extend(report(second));
        let mut status = ChannelStatus::of(&census());
        status.note_reports(&reports);
        assert_eq!(status.state, Standing::Unreachable, "{first} before {second}");
        let bank = status.bank.unwrap_or_default();
        assert_eq!(bank.unreachable.as_deref(), Some("connect: refused"), "{first} before {second}");
        assert_eq!(bank.blocked, None, "{first} before {second}");
    }
}

#[test]
fn a_channel_with_an_outage_has_no_forecast_and_says_why_until_the_outage_is_over() {
    let of = |bank: &Value, redis: Option<&str>| {
        let mut reports = report(bank);
        reports[0].1.redis = redis.map(str::to_owned);
        let mut status = ChannelStatus::of(&census());
        status.note_reports(&reports);
        status
    };
    let [none, away, blocked] =
        [json!({}), json!({ "unreachable": "connect: refused" }), json!({ "blocked": "clocks" })];
    for (bank, redis, why) in [
        (&away, None, "its bank is unreachable"),
        (&none, Some("connect: refused"), "Redis is away or refuses"),
        (&blocked, None, "it is blocked: Redis or Postgres fails, or their clocks disagree"),
    ] {
        let status = of(bank, redis);
        assert_eq!(status.expected_seconds_to_drain, None, "{why}");
        assert_eq!(status.no_forecast_because.as_deref(), Some(why));
        assert_eq!(status.why_stopped().as_deref(), Some(why));
        assert_eq!(status.drain(), Drain::Unknown(why.to_owned()));
    }
    let well = of(&none, None);
    assert_eq!((well.expected_seconds_to_drain, well.no_forecast_because.clone()), (Some(101), None));
    let idle = ChannelCensus { counts: BTreeMap::new(), drain: Some(Duration::ZERO), ..census() };
    let mut idle = ChannelStatus::of(&idle);
    idle.note_reports(&report(&away));
    assert_eq!((idle.expected_seconds_to_drain, idle.drain()), (Some(0), Drain::Empty));
}

#[test]
fn the_outage_of_one_node_leaves_the_forecast_of_a_channel_that_another_node_sends() {
    let run_by = vec!["node-a#1".to_owned(), "node-b#2".to_owned()];
    // So slow that it sent nothing in the last minute.
    let shared = ChannelCensus {
        run_by,
        sends_last_minute: 0,
        accepted_last_minute: 0,
        accepted_last_seconds: 0,
        ..census()
    };
    let of = |nodes: &[(&str, &Value)]| {
        let read = |(name, report): &(&str, &Value)| {
            ((*name).to_owned(), serde_json::from_value::<NodeReport>((*report).clone()).unwrap())
        };
        let reports: Vec<(String, NodeReport)> = nodes.iter().map(read).collect();
        let mut status = ChannelStatus::of(&shared);
        status.note_reports(&reports);
        status
    };
    let away = json!({ "redis": "connect: refused" });
    let unreachable = json!({ "banks": { "acme": { "unreachable": "connect: refused" } } });
    let well = json!({ "banks": { "acme": { "binds": "limit", "binds_share": 0.9 } } });
    for (nodes, state, why) in [
        (&[("node-a", &away), ("node-b", &well)][..], Standing::Blocked, None),
        // A node that has nothing to report has no report.
        (&[("node-a", &unreachable)], Standing::Unreachable, None),
        // A node that does not run the channel says nothing about its sends.
        (&[("node-b", &well), ("node-c", &away)], Standing::Blocked, None),
        (&[("node-a", &away), ("node-b", &away)], Standing::Blocked, Some("Redis is away or refuses")),
        (
            &[("node-a", &away), ("node-b", &unreachable)],
            Standing::Unreachable,
            Some("no node that runs it can send"),
        ),
    ] {
        let status = of(nodes);
        assert_eq!(status.state, state, "{nodes:?}");
        assert_eq!(status.no_forecast_because.as_deref(), why, "{nodes:?}");
        assert_eq!(status.outage, why, "{nodes:?}");
        assert_eq!(status.expected_seconds_to_drain, why.is_none().then_some(101), "{nodes:?}");
    }
    let mut own = ChannelStatus::of(&shared);
    let seen = BindsSeen { binds: Binds::Nothing, share: 0.0, over_seconds: 60, limit: None };
    own.note_own_node(BankStatus::default(), seen, true);
    assert_eq!(
        own.no_forecast_because.as_deref(),
        Some("Redis is away or refuses"),
        "one node asks no other"
    );
}

#[test]
fn deadlines_are_promised_only_to_a_channel_that_goes_at_the_full_rate_of_its_limits() {
    let of = |census: &ChannelCensus, limits: Option<Vec<LimitStatus>>| {
        let mut status = ChannelStatus::of(census);
        status.limits = limits;
        status
    };
    let suspended = |by| ChannelCensus { suspensions: vec![suspension(by)], ..census() };
    let well = "none at the full rate of its limits";
    for (status, said) in [
        (of(&census(), Some(limited())), well),
        (
            of(&suspended(SuspendedBy::Person), Some(limited())),
            "not forecast: it is paused until somebody resumes",
        ),
        (
            of(&suspended(SuspendedBy::Cooling), Some(limited())),
            "not forecast: it is suspended until 1970-01-01T00:00:00Z",
        ),
        (
            of(&ChannelCensus { run_by: Vec::new(), ..census() }, Some(limited())),
            "not forecast: no living node runs it",
        ),
        (
            of(&ChannelCensus { slowed: Some(10), ..census() }, Some(limited())),
            "not forecast: it sends at 10 % of its rate",
        ),
        (of(&census(), Some(Vec::new())), "not forecast: it is unlimited"),
        (of(&census(), None), "not forecast: its limits are not known here"),
        (
            of(&ChannelCensus { counts: BTreeMap::new(), ..suspended(SuspendedBy::Person) }, None),
            "none: no refund is ready",
        ),
    ] {
        assert_eq!(status.none_late(), said);
    }
    for (binds, said) in [
        (Binds::InFlight, "not forecast: `in_flight` binds the channel, not its limits"),
        (Binds::Bank, "not forecast: `bank` binds the channel, not its limits"),
        (Binds::Limit, well),
    ] {
        let mut bound = of(&census(), Some(limited()));
        bound.note_binds(vec![BindsSeen { binds, share: 0.9, over_seconds: 60, limit: None }]);
        assert_eq!(bound.none_late(), said);
    }
    let mut away = of(&census(), Some(limited()));
    away.note_reports(&report(&json!({ "unreachable": "connect: refused" })));
    assert_eq!(away.none_late(), "not forecast: its bank is unreachable");
}

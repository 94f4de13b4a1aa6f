use std::sync::Arc;

use super::*;
use crate::limiter::{Algorithm, Placement, Rule};
use crate::refund::LimitName;
use crate::refund::retry::RetryPolicy;

fn limit(name: &str, permits: u32, per: Duration) -> Arc<Limit> {
    let name = LimitName::new(name).unwrap();
    let algorithm = Algorithm::FixedWindow { zone: None };
    let rule = Rule { algorithm, permits, per, lateness: Duration::ZERO };
    Arc::new(Limit { name, rule, ahead: Duration::ZERO, placement: Placement::Shared })
}

fn channel(limits: Vec<Arc<Limit>>) -> Channel {
    Channel {
        name: ChannelName::new("acme").unwrap(),
        endpoint: "http://127.0.0.1:9001/refunds".parse().unwrap(),
        authorization: None,
        token: None,
        roots: None,
        client_identity: None,
        signing: None,
        networks: crate::channel::Networks::default(),
        limits,
        timeout: Duration::from_secs(10),
        connect_timeout: Duration::from_secs(3),
        idle_timeout: Channel::IDLE_TIMEOUT,
        lease: Duration::from_secs(30),
        max_in_flight: 16,
        max_backlog: Some(1_000_000),
        on_unknown: crate::refund::OnUnknown::Review,
        inquiry: None,
        bank_ref: None,
        accepts_card_numbers: false,
        amount_bounds: crate::refund::AmountBounds::default(),
        retry: RetryPolicy::default(),
        cool_down: Duration::from_secs(5),
        adaptive: true,
        breaker: None,
        answer_rules: Vec::new(),
    }
}

fn census() -> ChannelCensus {
    ChannelCensus {
        channel: "acme".to_owned(),
        counts: BTreeMap::from([(RefundState::Ready, 101), (RefundState::Succeeded, 7)]),
        oldest_ready_age: Some(Duration::from_millis(1500)),
        sends_last_minute: 90,
        paused: None,
        breaker: None,
        suspended_by: Vec::new(),
        cool_until: None,
        slowed: None,
        late: None,
        full: false,
        run_by: vec!["node-a#1".to_owned()],
    }
}

#[test]
fn the_tightest_limit_says_when_the_backlog_is_gone() {
    let minute = Duration::from_mins(1);
    let channel = channel(vec![limit("acme", 20, Duration::from_secs(1)), limit("acme-slow", 60, minute)]);
    let status = channel_status(&census(), Some(&channel), Some(50));
    assert_eq!((status.backlog, status.expected_seconds_to_drain), (101, Some(101)));
    assert!((status.observed_per_second - 1.5).abs() < 1e-9);
    insta::assert_json_snapshot!(status);
}

#[test]
fn nobody_can_say_when_an_unlimited_an_unknown_or_a_paused_channel_is_drained() {
    let unlimited = channel_status(&census(), Some(&channel(Vec::new())), None);
    assert_eq!((unlimited.expected_seconds_to_drain, unlimited.limits), (None, Some(Vec::new())));
    let unknown = channel_status(&census(), None, None);
    assert_eq!((unknown.expected_seconds_to_drain, unknown.limits), (None, None));
    let mut census = census();
    census.suspended_by = vec!["person".to_owned()];
    census.paused = Some(("maintenance".to_owned(), "ops".to_owned(), Timestamp::UNIX_EPOCH));
    let limited = channel(vec![limit("acme", 20, Duration::from_secs(1))]);
    assert_eq!(channel_status(&census, Some(&limited), None).expected_seconds_to_drain, None);
}

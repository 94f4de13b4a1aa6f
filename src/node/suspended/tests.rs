//! What a worker may do, as the suspensions come and go.

use jiff::Timestamp;

use super::*;
use crate::node::breakers::Failure;
use crate::store::Suspension;

const MINUTE: Duration = Duration::from_mins(1);

fn acme() -> ChannelName {
    ChannelName::new("acme").unwrap()
}

fn one(
    channel: Option<&str>,
    by: SuspendedBy,
    left: Option<Duration>,
    probe_in: Option<Duration>,
) -> Suspension {
    let (reason, who) = (String::new(), String::new());
    Suspension {
        channel: channel.map(str::to_owned),
        by,
        reason,
        who,
        since: None,
        until: None,
        left,
        probe_in,
    }
}

fn noted(until: Instant) -> NotedRefusal {
    NotedRefusal { until, named_until: None, began: Instant::now(), reason: String::new() }
}

fn now(suspensions: Vec<Suspension>) -> Suspensions {
    let known = Suspensions::default();
    known.update(&Suspended { suspensions, slowed: Vec::new() });
    known
}

#[test]
fn each_cause_suspends_on_its_own_and_the_breaker_sends_alone() {
    let both = [Purpose::Send, Purpose::Inquire];
    for by in [SuspendedBy::Person, SuspendedBy::Credentials] {
        let known = now(vec![one(Some("acme"), by, None, None)]);
        for purpose in both {
            assert_eq!(known.clearance(&acme(), purpose), Clearance::Suspended(Until::Ended), "{by}");
        }
        assert_eq!(known.clearance(&ChannelName::new("globex").unwrap(), Purpose::Send), Clearance::Free);
    }
    let known = now(vec![one(None, SuspendedBy::All, Some(MINUTE), None)]);
    assert!(
        both.iter()
            .all(|purpose| matches!(known.clearance(&acme(), *purpose), Clearance::Suspended(Until::At(_))))
    );
    let known = now(vec![one(Some("acme"), SuspendedBy::Cooling, Some(Duration::ZERO), None)]);
    assert_eq!(known.clearance(&acme(), Purpose::Send), Clearance::Free, "its time is over");
    let known = now(vec![one(Some("acme"), SuspendedBy::Breaker, None, Some(MINUTE))]);
    assert!(matches!(known.clearance(&acme(), Purpose::Send), Clearance::Suspended(Until::At(_))));
    assert_eq!(known.clearance(&acme(), Purpose::Inquire), Clearance::Free);
}

#[test]
fn a_probe_is_due_then_reserved_then_under_way() {
    let tripped = || vec![one(Some("acme"), SuspendedBy::Breaker, None, Some(Duration::ZERO))];
    let known = now(tripped());
    assert_eq!(known.clearance(&acme(), Purpose::Send), Clearance::ProbeIsDue);
    let until = Instant::now() + MINUTE;
    let probe = ReservedProbe { until, since: Timestamp::UNIX_EPOCH };
    known.reserve_probe(&acme(), probe);
    assert_eq!(known.clearance(&acme(), Purpose::Send), Clearance::Probe(probe));
    known.update(&Suspended { suspensions: tripped(), slowed: Vec::new() });
    assert_eq!(
        known.clearance(&acme(), Purpose::Send),
        Clearance::Probe(probe),
        "an older reading takes nothing away"
    );
    known.note_breaker(&acme(), Some(until));
    assert_eq!(known.clearance(&acme(), Purpose::Send), Clearance::Suspended(Until::At(until)));
    assert_eq!(known.tripped(), ["acme"]);
    known.update(&Suspended::default());
    assert_eq!(known.clearance(&acme(), Purpose::Send), Clearance::Free);
}

#[test]
fn a_pause_does_not_hide_the_probe_of_a_breaker() {
    let known = now(vec![
        one(Some("acme"), SuspendedBy::Breaker, None, Some(Duration::ZERO)),
        one(Some("acme"), SuspendedBy::Person, None, None),
    ]);
    assert_eq!(known.clearance(&acme(), Purpose::Send), Clearance::Suspended(Until::Ended));
}

#[test]
fn permits_for_others_stop_with_everything_or_with_every_channel_that_shares_them() {
    let known = now(vec![
        one(Some("acme"), SuspendedBy::Person, None, None),
        one(Some("globex"), SuspendedBy::Credentials, None, None),
    ]);
    assert_eq!(known.pause_of(["acme"].into_iter()), Some(Until::Ended));
    assert_eq!(known.pause_of(["acme", "globex"].into_iter()), None, "a person paused only one of them");
    assert_eq!(known.pause_of([].into_iter()), None);
    let known = now(vec![one(None, SuspendedBy::All, None, None)]);
    assert_eq!(known.pause_of([].into_iter()), Some(Until::Ended));
}

#[test]
fn a_pause_that_gets_another_end_is_seen_behind_refused_credentials() {
    let paused = |left| {
        let credentials = one(Some("acme"), SuspendedBy::Credentials, None, None);
        vec![credentials, one(Some("acme"), SuspendedBy::Person, Some(left), None)]
    };
    let known = now(paused(MINUTE));
    let first = known.pause_of(["acme"].into_iter()).unwrap();
    known.update(&Suspended { suspensions: paused(MINUTE * 2), slowed: Vec::new() });
    let second = known.pause_of(["acme"].into_iter()).unwrap();
    assert_eq!(first.later(second), second);
    assert_ne!(first, second);
}

#[test]
fn a_refusal_that_postgres_has_not_got_stays_until_it_is_written_or_over() {
    let known = Suspensions::default();
    let read = |suspensions| {
        known.update(&Suspended { suspensions, slowed: Vec::new() });
        known.clearance(&acme(), Purpose::Send)
    };
    let until = Instant::now() + MINUTE;
    for (refused, by, left) in [
        (Refused::Requests, SuspendedBy::Cooling, Some(MINUTE)),
        (Refused::Credentials, SuspendedBy::Credentials, None),
    ] {
        let refusal = noted(until);
        known.note(&acme(), refused, refusal.clone());
        assert_eq!(read(Vec::new()), Clearance::Suspended(Until::At(until)), "{refused:?}");
        known.note_written(&acme(), refused, &refusal, Some(Until::after(left)));
        assert_eq!(read(Vec::new()), Clearance::Free, "a person resumed it: {refused:?}");
        // Postgres took it, and this node has not seen the commit.
        known.note(&acme(), refused, noted(until));
        assert!(matches!(read(vec![one(Some("acme"), by, left, None)]), Clearance::Suspended(_)));
        assert_eq!(read(Vec::new()), Clearance::Free, "a person resumed it: {refused:?}");
        known.note(&acme(), refused, noted(Instant::now()));
        assert_eq!(read(Vec::new()), Clearance::Free, "its time is over: {refused:?}");
    }
}

#[test]
fn one_task_writes_a_refusal_again_until_the_last_one_is_written() {
    let (known, refused) = (Suspensions::default(), Refused::Requests);
    assert!(!known.begin_retries(&acme(), refused), "there is none");
    let (first, last) = (noted(Instant::now() + MINUTE), noted(Instant::now() + MINUTE * 2));
    known.note(&acme(), refused, first.clone());
    assert!(known.begin_retries(&acme(), refused));
    known.note(&acme(), refused, last.clone());
    assert!(!known.begin_retries(&acme(), refused), "a task does so already");
    known.note_written(&acme(), refused, &first, None);
    assert_eq!(known.next_retry(&acme(), refused), Some(last.clone()));
    known.note_written(&acme(), refused, &last, None);
    assert_eq!(known.next_retry(&acme(), refused), None);
    known.note(&acme(), refused, last);
    assert!(known.begin_retries(&acme(), refused), "the task ended");
}

#[test]
fn the_last_refusal_is_written_and_shortens_no_other() {
    let (known, refused) = (Suspensions::default(), Refused::Requests);
    let began = Instant::now();
    let first = NotedRefusal {
        until: began + MINUTE,
        named_until: Some(began + MINUTE),
        began,
        reason: "the first".to_owned(),
    };
    let last = NotedRefusal {
        until: began + Duration::from_secs(10),
        named_until: None,
        began: began + Duration::from_secs(1),
        reason: "the last".to_owned(),
    };
    known.note(&acme(), refused, first.clone());
    known.note(&acme(), refused, last.clone());
    let both = NotedRefusal { until: first.until, named_until: first.named_until, ..last };
    assert_eq!(known.next_retry(&acme(), refused), Some(both));
}

#[test]
fn a_wait_that_the_bank_named_stays_though_a_longer_guess_is_written() {
    let (known, refused) = (Suspensions::default(), Refused::Requests);
    let guessed = noted(Instant::now() + MINUTE);
    let half = Instant::now() + MINUTE / 2;
    let named = NotedRefusal { named_until: Some(half), ..noted(half) };
    known.note(&acme(), refused, guessed.clone());
    known.note(&acme(), refused, named.clone());
    known.note_written(&acme(), refused, &guessed, None);
    assert!(known.begin_retries(&acme(), refused));
    assert_eq!(known.next_retry(&acme(), refused), Some(named));
}

#[test]
fn a_channel_with_other_credentials_forgets_that_the_bank_refused_the_old_ones() {
    let (known, until) = (Suspensions::default(), Instant::now() + MINUTE);
    known.note(&acme(), Refused::Credentials, noted(until));
    assert!(known.begin_retries(&acme(), Refused::Credentials));
    known.note_change(&acme());
    assert_eq!(known.clearance(&acme(), Purpose::Send), Clearance::Free);
    assert_eq!(known.next_retry(&acme(), Refused::Credentials), None);
    known.note(&acme(), Refused::Requests, noted(until));
    known.note_change(&acme());
    assert_eq!(known.clearance(&acme(), Purpose::Send), Clearance::Suspended(Until::At(until)));
}

#[test]
fn a_trip_that_postgres_has_not_got_suspends_sends_alone_until_it_is_written() {
    let (known, until) = (Suspensions::default(), Instant::now() + MINUTE);
    let trip = Refused::Sends { failure: Failure::Rejected, times: 5, probe: MINUTE };
    known.note(&acme(), trip, noted(until));
    known.update(&Suspended::default());
    assert_eq!(known.clearance(&acme(), Purpose::Send), Clearance::Suspended(Until::At(until)));
    assert_eq!(known.clearance(&acme(), Purpose::Inquire), Clearance::Free);
    assert_eq!(known.tripped(), ["acme"]);
    assert!(known.begin_retries(&acme(), trip));
    let suspensions = vec![one(Some("acme"), SuspendedBy::Breaker, None, Some(Duration::ZERO))];
    known.update(&Suspended { suspensions, slowed: Vec::new() });
    assert_eq!(known.clearance(&acme(), Purpose::Send), Clearance::ProbeIsDue);
    assert_eq!(known.next_retry(&acme(), trip), None);
}

#[test]
fn a_trip_whose_time_on_its_node_is_over_is_not_written_again() {
    let known = Suspensions::default();
    let trip = Refused::Sends { failure: Failure::Rejected, times: 5, probe: MINUTE };
    known.note(&acme(), trip, noted(Instant::now()));
    assert_eq!(known.clearance(&acme(), Purpose::Send), Clearance::Free);
    assert!(!known.begin_retries(&acme(), trip));
    assert_eq!(known.next_retry(&acme(), trip), None);
}

#[test]
fn a_wait_that_was_over_before_it_could_be_written_is_still_written() {
    let (known, refused) = (Suspensions::default(), Refused::Requests);
    let refusal = noted(Instant::now());
    known.note(&acme(), refused, refusal.clone());
    known.update(&Suspended::default());
    assert_eq!(known.clearance(&acme(), Purpose::Send), Clearance::Free);
    assert!(known.begin_retries(&acme(), refused));
    assert_eq!(known.next_retry(&acme(), refused), Some(refusal));
}

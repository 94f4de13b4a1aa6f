//! Tests of the schedule of inquiries and of what their answers do to a refund.

use super::*;
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);
const FINAL: Trust = Trust { not_found_is_final: true, grace: Duration::from_secs(30) };

fn inquiry(state: State, uncertain_for: Duration) -> LeasedInquiry {
    LeasedInquiry {
        id: RefundId(1),
        state,
        epoch: 1,
        number: 1,
        uncertain_at_us: None,
        attempts: 1,
        request_id: RequestId(uuid::Uuid::nil()),
        expected: ExpectedEcho { refund_id: RefundId(1), ..ExpectedEcho::sample() },
        age: uncertain_for,
        uncertain_for: Some(uncertain_for),
    }
}

fn settle(outcome: &InquiryOutcome, inquiry: &LeasedInquiry, trust: Trust) -> InquirySettlement {
    InquirySettlement::of(outcome, inquiry, Duration::ZERO, trust, &RetryPolicy::default(), 5 * SECOND, 0.5)
}

#[test]
fn the_schedule_is_ten_seconds_to_six_hours_and_then_daily_for_a_week() {
    let mut age = Duration::ZERO;
    let mut at = Vec::new();
    while let Some(wait) = wait_at(age) {
        age += wait;
        at.push(age.as_secs());
    }
    let day = 86_400;
    assert_eq!(
        at,
        [10, 30, 120, 600, 3600, 21_600, day, 2 * day, 3 * day, 4 * day, 5 * day, 6 * day, 7 * day]
    );
    assert_eq!(wait_at(DAY * 7), None);
}

#[test]
fn not_found_counts_only_where_it_is_final_and_after_its_grace() {
    let after = inquiry(State::Unknown, 30 * SECOND);
    assert_eq!(settle(&InquiryOutcome::NotFound, &after, FINAL).next, State::Ready);
    let before = inquiry(State::Unknown, 29 * SECOND);
    assert_eq!(settle(&InquiryOutcome::NotFound, &before, FINAL).next, State::Unknown);
    let not_final = Trust { not_found_is_final: false, ..FINAL };
    assert_eq!(settle(&InquiryOutcome::NotFound, &after, not_final).next, State::Unknown);
    let since_nobody_knows = LeasedInquiry { uncertain_for: None, ..after };
    assert_eq!(settle(&InquiryOutcome::NotFound, &since_nobody_knows, FINAL).next, State::Unknown);
}

#[test]
fn about_an_accepted_refund_not_found_proves_nothing() {
    let settled = settle(&InquiryOutcome::NotFound, &inquiry(State::Accepted, DAY), FINAL);
    assert_eq!((settled.next, settled.outcome), (State::Accepted, "unknown"));
    assert_eq!(settled.inquire_in, Some(DAY));
}

#[test]
fn an_inquiry_that_failed_moves_the_schedule_and_nothing_else() {
    for outcome in [InquiryOutcome::Nothing, InquiryOutcome::HandedBack, InquiryOutcome::Unauthorised] {
        for state in [State::Unknown, State::Accepted] {
            let settled = settle(&outcome, &inquiry(state, 30 * SECOND), FINAL);
            assert_eq!((settled.next, settled.outcome), (state, "unknown"), "{outcome:?}");
            assert!(settled.inquire_in.is_some());
        }
    }
    assert_eq!(
        settle(&InquiryOutcome::Nothing, &inquiry(State::Unknown, 30 * SECOND), FINAL).inquire_in,
        Some(90 * SECOND)
    );
}

#[test]
fn after_a_week_a_person_decides() {
    for state in [State::Unknown, State::Accepted] {
        let settled = settle(&InquiryOutcome::Nothing, &inquiry(state, 7 * DAY), FINAL);
        assert_eq!((settled.next, settled.used_up), (State::Review, Some("inquiries_used_up")));
    }
    // A clear answer counts even when the schedule is used up.
    assert_eq!(
        settle(&InquiryOutcome::Succeeded, &inquiry(State::Unknown, 8 * DAY), FINAL).next,
        State::Succeeded
    );
}

#[test]
fn no_wait_that_a_bank_names_hides_a_refund_from_a_person() {
    const A_MINUTE_BEFORE_THE_END: Duration = Duration::from_mins(7 * 24 * 60 - 1);
    let asked_to_wait = InquiryOutcome::SlowDown { retry_after: Some(DAY) };
    for state in [State::Unknown, State::Accepted] {
        let next_in = |age: Duration| settle(&asked_to_wait, &inquiry(state, age), FINAL).inquire_in;
        assert_eq!(next_in(6 * DAY), Some(DAY));
        assert_eq!(next_in(A_MINUTE_BEFORE_THE_END), Some(660 * SECOND));
    }
    // The time of the inquiry itself counts, and no wait is shorter than the first one.
    let late = InquirySettlement::of(
        &asked_to_wait,
        &inquiry(State::Unknown, A_MINUTE_BEFORE_THE_END),
        50 * SECOND,
        FINAL,
        &RetryPolicy::default(),
        5 * SECOND,
        0.5,
    );
    assert_eq!(late.inquire_in, Some(610 * SECOND));
    let brief = InquiryOutcome::SlowDown { retry_after: Some(SECOND) };
    assert_eq!(settle(&brief, &inquiry(State::Unknown, DAY), FINAL).inquire_in, Some(FIRST));
}

#[test]
fn an_absent_refund_is_sent_again_only_while_sends_are_left() {
    let twelve = LeasedInquiry { attempts: 12, ..inquiry(State::Unknown, DAY) };
    let settled = settle(&InquiryOutcome::NotFound, &twelve, FINAL);
    assert_eq!((settled.next, settled.used_up), (State::Review, Some("sends_used_up")));
}

#[test]
fn pending_leads_to_another_inquiry() {
    let newly = settle(&InquiryOutcome::Pending, &inquiry(State::Unknown, DAY), FINAL);
    assert_eq!((newly.next, newly.inquire_in), (State::Accepted, Some(FIRST)));
    assert_eq!(newly.wait, Some(ACCEPTED_PATIENCE));
    let still = settle(&InquiryOutcome::Pending, &inquiry(State::Accepted, 10 * SECOND), FINAL);
    assert_eq!((still.next, still.inquire_in, still.wait), (State::Accepted, Some(20 * SECOND), None));
}

proptest! {
    #[test]
    fn every_settlement_stays_or_is_a_legal_move(which in 0usize..9, accepted: bool, secs in 0u64..1_000_000, attempts in 0u32..20) {
        let all = [
            InquiryOutcome::Succeeded, InquiryOutcome::Pending, InquiryOutcome::Rejected, InquiryOutcome::NotFound,
            InquiryOutcome::SlowDown { retry_after: None }, InquiryOutcome::Unauthorised, InquiryOutcome::HandedBack, InquiryOutcome::Nothing, InquiryOutcome::Review,
        ];
        let state = if accepted { State::Accepted } else { State::Unknown };
        let inquiry = LeasedInquiry { attempts, ..inquiry(state, Duration::from_secs(secs)) };
        let settled = settle(&all[which], &inquiry, FINAL);
        prop_assert!(settled.next == state || state.may_move_to(settled.next));
        prop_assert_eq!(settled.inquire_in.is_some(), matches!(settled.next, State::Unknown | State::Accepted));
    }
}

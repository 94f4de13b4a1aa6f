use super::*;
use crate::refund::{Money, RefundId, RequestId};

fn evidence(kind: EvidenceKind) -> Evidence {
    Evidence {
        channel: "acme".to_owned(),
        kind,
        number: 1,
        lease_epoch: 1,
        node: "node-a#0000002a/7".to_owned(),
        permit: Some("acme@2026-11-23T13:20:00Z#4".to_owned()),
        started_at: Some(Timestamp::UNIX_EPOCH),
        finished_at: Some(Timestamp::from_millisecond(130).unwrap()),
        outcome: "succeeded".to_owned(),
        moved_to: Some("succeeded".to_owned()),
        status: Some(200),
        code: Some("succeeded".to_owned()),
        message: None,
    }
}

#[test]
fn a_time_just_before_the_end_of_a_window_is_shown_as_its_end() {
    let shown = |text: &str| whole_second(text.parse().unwrap()).map(|at| at.to_string());
    assert_eq!(shown("2026-11-23T23:59:59.999998Z").as_deref(), Some("2026-11-24T00:00:00Z"));
    assert_eq!(shown("2026-11-24T00:00:00.4Z").as_deref(), Some("2026-11-24T00:00:00Z"));
}

#[test]
fn a_line_of_the_journal_is_a_sentence() {
    assert_eq!(
        sentence(&evidence(EvidenceKind::Send), 1),
        "send 1 from node node-a: succeeded, HTTP 200, after 0.130 s, moved to succeeded \
         (permit acme@2026-11-23T13:20:00Z#4)"
    );
    let not_sent = "not_executed".to_owned();
    let unsent = Evidence { started_at: None, permit: None, ..evidence(EvidenceKind::Send) };
    let late = Evidence { moved_to: None, outcome: not_sent, ..unsent.clone() };
    assert!(sentence(&late, 1).ends_with("no byte was sent, too late to move it"), "{}", sentence(&late, 1));
    let code = Some("lease_lapsed".to_owned());
    let lapsed = Evidence { outcome: "unknown".to_owned(), code, status: None, ..unsent };
    assert_eq!(
        sentence(&lapsed, 1),
        "send 1 from node node-a: unknown, lease_lapsed, nobody knows whether a byte was sent, moved to succeeded"
    );
    let decided = Evidence {
        node: "ann".to_owned(),
        permit: None,
        status: None,
        outcome: "decided".to_owned(),
        code: None,
        message: Some("on the bank's statement".to_owned()),
        ..evidence(EvidenceKind::Manual)
    };
    assert_eq!(sentence(&decided, 1), "ann decided, moved to succeeded: on the bank's statement");
    let proposed = Evidence {
        outcome: "proposed".to_owned(),
        code: Some("confirmed_not_executed".to_owned()),
        moved_to: None,
        message: Some("proposal 1, ready: looked it up".to_owned()),
        ..decided.clone()
    };
    assert_eq!(
        sentence(&proposed, 1),
        "ann proposed, confirmed_not_executed: proposal 1, ready: looked it up"
    );
    let moved = Evidence {
        code: Some(MOVED_OUT.to_owned()),
        message: Some("to globex: acme is down".to_owned()),
        ..decided
    };
    assert_eq!(sentence(&moved, 1), "ann moved it from acme to globex: acme is down");
}

#[test]
fn sends_have_their_numbers_in_order_of_time_also_when_the_line_of_the_first_one_came_last() {
    let refund = Refund {
        id: RefundId(1),
        refund_ref: "R-1".to_owned(),
        channel: "acme".to_owned(),
        payment_ref: "P-1".to_owned(),
        money: Money { amount_minor: 777, currency: "EUR".to_owned() },
        payload: None,
        due_at: Timestamp::UNIX_EPOCH,
        deadline_at: None,
        request_id: RequestId(uuid::Uuid::nil()),
        state: State::Succeeded,
        version: 1,
        uncertain_since: None,
        attempts: 2,
        reason: None,
        bank_ref: None,
        created_at: Timestamp::UNIX_EPOCH,
        settled_at: None,
    };
    let second = |second| Timestamp::from_second(second).unwrap();
    let sent_at = |at, node: &str| Evidence {
        started_at: Some(second(at)),
        finished_at: Some(second(at + 1)),
        node: node.to_owned(),
        ..evidence(EvidenceKind::Send)
    };
    let late = Evidence { moved_to: None, ..sent_at(10, "first#1") };
    let story = happened(&refund, vec![sent_at(20, "second#1"), late], &[], second(60));
    let told: Vec<_> = story.iter().map(|one| (one.nth, one.text.get(..18).unwrap_or_default())).collect();
    let expected =
        [(None, "saved for channel "), (Some(1), "send 1 from node f"), (Some(2), "send 2 from node s")];
    assert_eq!(told, expected);
}

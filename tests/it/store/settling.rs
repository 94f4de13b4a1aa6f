//! Outcomes that come late, or twice.

use refundd::refund::{Code, Outcome, RefundId, State};
use refundd::store::Store;

use super::{claim, limited_scratch_with, settled, settled_all, settlement_of, unlimited};

#[tokio::test]
async fn a_late_answer_cannot_move_a_refund_leased_again() {
    let scratch = limited_scratch_with(1).await;
    let first = claim(&scratch, "a", &[unlimited(1)]).await;
    // The first lease ended in a hand-back, and the same node leased it again.
    let back = settled(&first, Outcome::HandedBack);
    assert_eq!(scratch.store.settle("a", &[back], false).await.unwrap().moved, [RefundId(1)]);
    let second = claim(&scratch, "a", &[unlimited(1)]).await;
    assert_eq!(second.leased.len(), 1);
    let late = settled(&first, Outcome::Succeeded);
    assert!(scratch.store.settle("a", &[late], false).await.unwrap().moved.is_empty());
    assert_eq!(scratch.count(State::Sending).await, 1);
    let evidence = scratch.store.evidence(RefundId(1)).await.unwrap();
    assert_eq!(evidence.len(), 2);
    assert_eq!((evidence[1].outcome.as_str(), evidence[1].moved_to.as_deref()), ("succeeded", None));
    assert_eq!(
        scratch.store.settle("a", &[settled(&second, Outcome::Succeeded)], false).await.unwrap().moved,
        [RefundId(1)]
    );
}

/// A failover to a standby that lags forgets a claim, and the next claim gets the number of its lease again.
#[tokio::test]
async fn an_answer_under_a_claim_that_a_failover_lost_moves_nothing_of_the_next_claim() {
    let scratch = limited_scratch_with(1).await;
    let lost = claim(&scratch, "a", &[unlimited(1)]).await;
    scratch.sql("update refundd.refunds set state = 'ready', attempts = 0, lease_epoch = 0, lease_node = null, lease_until = null").await;
    let next = claim(&scratch, "b", &[unlimited(1)]).await;
    assert_eq!(lost.leased[0].epoch, next.leased[0].epoch);
    let later = settled(&lost, Outcome::SlowDown { retry_after: None });
    assert!(scratch.store.settle("a", &[later], false).await.unwrap().moved.is_empty());
    assert_eq!(scratch.count(State::Sending).await, 1, "the request of b is under way");
    // Both answers may come together: the one is late evidence, and the other moves the refund.
    let both = [settled(&lost, Outcome::Succeeded), settled(&next, Outcome::HandedBack)];
    assert_eq!(scratch.store.settle("b", &both, false).await.unwrap().moved, [RefundId(1)]);
    let lines = "select string_agg(concat(outcome, ' ', moved_to), ', ' order by outcome, moved_to nulls last) from refundd.attempts";
    assert_eq!(scratch.text(lines).await, "not_executed ready, not_executed , review review, succeeded ");
    assert_eq!(scratch.count(State::Review).await, 1, "the bank has it");
}

#[tokio::test]
async fn settling_again_after_a_lost_commit_keeps_the_evidence_once() {
    let scratch = limited_scratch_with(1).await;
    let claimed = claim(&scratch, "a", &[unlimited(1)]).await;
    let over = settled(&claimed, Outcome::Succeeded);
    assert_eq!(
        scratch.store.settle("a", std::slice::from_ref(&over), false).await.unwrap().moved,
        [RefundId(1)]
    );
    assert!(scratch.store.settle("a", &[over], true).await.unwrap().moved.is_empty());
    assert_eq!(scratch.store.evidence(RefundId(1)).await.unwrap().len(), 1);
}

#[tokio::test]
async fn settling_again_after_a_try_that_did_not_commit_moves_the_refund_with_its_line() {
    let scratch = limited_scratch_with(1).await;
    let claimed = claim(&scratch, "a", &[unlimited(1)]).await;
    let over = [settled(&claimed, Outcome::Succeeded)];
    assert_eq!(scratch.store.settle("a", &over, true).await.unwrap().moved, [RefundId(1)]);
    let kept = scratch.store.evidence(RefundId(1)).await.unwrap();
    assert_eq!((kept.len(), kept[0].moved_to.as_deref()), (1, Some("succeeded")));
}

#[tokio::test]
async fn settling_again_while_the_first_commit_is_under_way_keeps_the_evidence_once() {
    let scratch = limited_scratch_with(1).await;
    let claimed = claim(&scratch, "a", &[unlimited(1)]).await;
    let over = [settled(&claimed, Outcome::Succeeded)];
    let line = "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, outcome, moved_to, code)
                select id, channel, 'send', 1, lease_epoch, 'a', now(), 'succeeded', 'succeeded', 'mapped' from refundd.refunds";
    let first = [
        "update refundd.refunds set state = 'succeeded', lease_node = null, lease_until = null, settled_at = now()",
        line,
    ];
    let again = scratch.while_a_commit_hangs(&first, scratch.store.settle("a", &over, true)).await.unwrap();
    assert!(again.moved.is_empty());
    assert_eq!(scratch.store.evidence(RefundId(1)).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_refund_that_the_bank_paid_by_a_late_answer_is_not_sent_again() {
    let scratch = limited_scratch_with(3).await;
    let all = [unlimited(1), unlimited(2), unlimited(3)];
    let first = claim(&scratch, "a", &all).await;
    // A node that was cut off answers late, after the others found reasons to send again.
    scratch.release("id = 1", "state = 'unknown'").await;
    scratch.release("id > 1", "state = 'ready'").await;
    let second = claim(&scratch, "b", &[unlimited(3)]).await;
    let late = settled_all(&first, &Outcome::Succeeded);
    assert!(scratch.store.settle("a", &late, false).await.unwrap().moved.is_empty());
    assert_eq!(
        scratch.text("select string_agg(state || ' ' || coalesce(split_part(reason, ':', 1), '-'), ', ' order by id) from refundd.refunds").await,
        "review said_paid, review said_paid, sending -"
    );
    let lines = "select string_agg(kind || ' ' || moved_to, ', ' order by refund_id) from refundd.attempts where moved_to is not null";
    assert_eq!(
        scratch.text(lines).await,
        "recovery review, recovery review",
        "programs that read changes see them"
    );
    // What the third one comes to now cannot say that nothing was paid.
    let over = [settled(&second, Outcome::Rejected)];
    assert_eq!(scratch.store.settle("b", &over, false).await.unwrap().moved, [RefundId(3)]);
    assert_eq!(
        scratch.text("select state || ' ' || split_part(reason, ':', 1) || ' ' || (settled_at is null) from refundd.refunds where id = 3").await,
        "review said_paid true"
    );
    let kept = scratch.store.evidence(RefundId(3)).await.unwrap();
    assert_eq!(kept.last().unwrap().moved_to.as_deref(), Some("review"));
}

#[tokio::test]
async fn a_late_answer_waits_for_who_makes_its_refund_ready_and_then_stops_it() {
    let scratch = limited_scratch_with(1).await;
    let first = claim(&scratch, "a", &[unlimited(1)]).await;
    scratch.release("true", "state = 'unknown', inquire_at = now()").await;
    let late = settled_all(&first, &Outcome::Accepted);
    let ready = ["update refundd.refunds set state = 'ready'"];
    let settled = scratch.while_a_commit_hangs(&ready, scratch.store.settle("a", &late, false)).await;
    assert!(settled.unwrap().moved.is_empty());
    assert_eq!(scratch.count(State::Review).await, 1);
}

#[tokio::test]
async fn a_late_outcome_that_is_settled_again_while_its_first_commit_is_under_way_is_kept_once() {
    let scratch = limited_scratch_with(1).await;
    let claimed = claim(&scratch, "a", &[unlimited(1)]).await;
    scratch.release("true", "state = 'unknown', inquire_at = now()").await;
    let line = "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, outcome, code)
                select id, channel, 'send', 1, lease_epoch, 'a', now(), 'succeeded', 'mapped' from refundd.refunds";
    let over = [settled(&claimed, Outcome::Succeeded)];
    let again = scratch.while_a_commit_hangs(&[line], scratch.store.settle("a", &over, true)).await;
    assert!(again.unwrap().moved.is_empty());
    assert_eq!(scratch.store.evidence(RefundId(1)).await.unwrap().len(), 1);
}

#[tokio::test]
async fn what_ended_without_a_payment_goes_to_a_person_when_a_late_answer_says_that_the_bank_has_it() {
    let scratch = limited_scratch_with(6).await;
    let all = [unlimited(1), unlimited(2), unlimited(3), unlimited(4), unlimited(5), unlimited(6)];
    let first = claim(&scratch, "a", &all).await;
    // People found no payment: the lease lapsed, they looked, and the answer came only then. The bank rejected the fourth refund
    // by its answer to an inquiry, so it may have taken it before. Of the fifth, people knew that the bank had taken it. Of the
    // sixth, they knew it of an earlier send.
    scratch.release("true", "state = 'review'").await;
    scratch
        .sql(
            "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, code)
             select id, channel, 'inquiry', 1, lease_epoch - case id when 6 then 1 else 0 end, 'a', 'accepted', 'mapped'
               from refundd.refunds where id >= 5",
        )
        .await;
    for refund in [1, 2, 3, 5, 6] {
        let next = if refund == 2 { State::Cancelled } else { State::Failed };
        scratch.decide(RefundId(refund), next, "not on the statement", "ann").await;
    }
    let steps = [
        "update refundd.refunds set state = 'failed', reason = 'rejected', settled_at = now() where id = 4",
        "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to, code)
         select id, channel, 'inquiry', 1, lease_epoch, 'a', 'rejected', 'failed', 'mapped' from refundd.refunds where id = 4",
    ];
    for step in steps {
        scratch.sql(step).await;
    }
    let taken = [Outcome::Accepted, Outcome::Accepted, Outcome::Accepted, Outcome::Accepted];
    let answers = [Outcome::Succeeded, Outcome::Review].into_iter().chain(taken);
    let late: Vec<_> =
        first.leased.iter().zip(answers).map(|(lease, answer)| settlement_of(lease, answer)).collect();
    assert!(scratch.store.settle("a", &late, false).await.unwrap().moved.is_empty());
    let rows = "select string_agg(concat_ws(' ', state, split_part(reason, ':', 1), uncertain_at is not null, settled_at is null), ', ' order by id) from refundd.refunds";
    assert_eq!(
        scratch.text(rows).await,
        "review said_paid t t, review said_paid t t, review said_paid t t, failed rejected t f, failed decided by ann t f, review said_paid t t"
    );
    let lines = "select string_agg(refund_id || ' ' || kind || ' ' || code, ', ' order by refund_id) from refundd.attempts where moved_to = 'review'";
    assert_eq!(
        scratch.text(lines).await,
        "1 recovery said_paid, 2 recovery said_paid, 3 recovery said_paid, 6 recovery said_paid",
        "programs that read changes see them"
    );
    // Whoever decides now sees that the bank paid, and may say so.
    scratch.decide(RefundId(1), State::Succeeded, "on the statement after all", "ann").await;
    assert_eq!(scratch.count(State::Succeeded).await, 1);
}

#[tokio::test]
async fn a_late_answer_about_another_refund_goes_to_a_person_and_one_that_nobody_can_read_does_not() {
    let scratch = limited_scratch_with(4).await;
    let all = [unlimited(1), unlimited(2), unlimited(3), unlimited(4)];
    let first = claim(&scratch, "a", &all).await;
    // The leases lapsed. Of the first two refunds the bank's "not found" was final; about the others it is still asked.
    scratch.release("true", "state = 'unknown', inquire_at = now() + interval '1 hour'").await;
    scratch.sql("update refundd.refunds set state = 'ready' where id <= 2").await;
    let mut late = settled_all(&first, &Outcome::Review);
    for place in [1, 3] {
        late[place].answer.code = Code::NoJson;
    }
    assert!(scratch.store.settle("a", &late, false).await.unwrap().moved.is_empty());
    assert_eq!(
        scratch.text("select string_agg(concat_ws(' ', state, left(reason, 92)), ', ' order by id) from refundd.refunds").await,
        "review said_paid: an answer that came late says that the bank has this refund: echo_differs: test, ready, \
         review said_paid: an answer that came late says that the bank has this refund: echo_differs: test, unknown"
    );
    scratch.sql("update refundd.refunds set state = 'ready' where id = 4").await;
}

#[tokio::test]
async fn a_late_answer_that_the_bank_has_it_becomes_the_reason_of_a_refund_in_review() {
    let scratch = limited_scratch_with(1).await;
    let first = claim(&scratch, "a", &[unlimited(1)]).await;
    scratch.release("true", "state = 'review', reason = 'lease_lapsed: a did not settle'").await;
    let late = settled_all(&first, &Outcome::Succeeded);
    assert!(scratch.store.settle("a", &late, false).await.unwrap().moved.is_empty());
    assert_eq!(
        scratch.text("select reason from refundd.refunds").await,
        "said_paid: an answer that came late says that the bank has this refund: succeeded; before: lease_lapsed: a did not settle"
    );
}

#[tokio::test]
async fn a_claim_that_is_taken_back_after_a_late_answer_goes_to_a_person_and_leaves_a_line() {
    for is_owner in [false, true] {
        let scratch = limited_scratch_with(1).await;
        claim(&scratch, "a", &[unlimited(1)]).await;
        scratch
            .sql(
                "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, code)
                 select id, channel, 'send', 1, 0, 'b', 'succeeded', 'mapped' from refundd.refunds",
            )
            .await;
        let lease = scratch.text("select lease_node from refundd.refunds").await;
        let url = if is_owner { &scratch.owner_url } else { &scratch.database_url };
        let store = Store::open(url, None, 1).unwrap();
        assert_eq!(store.unclaim(&[RefundId(1)], &lease).await.unwrap(), 1);
        assert_eq!(scratch.count(State::Review).await, 1);
        let lines = "select string_agg(concat_ws(' ', number, code, moved_to), ', ' order by id) from refundd.attempts";
        assert_eq!(scratch.text(lines).await, "1 mapped, 1 taken_back review", "owner: {is_owner}");
    }
}

#[tokio::test]
async fn the_migration_shows_what_was_paid_after_it_ended_and_not_what_people_knew() {
    let scratch = limited_scratch_with(3).await;
    claim(&scratch, "a", &[unlimited(1), unlimited(2), unlimited(3)]).await;
    // Before the migration, a late answer left ended refunds as they were, and one that was `ready` could miss its deadline. Of the
    // second refund, a person saw the answer and decided after that.
    let late = "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, code)
                select id, channel, 'send', 1, lease_epoch, 'a', 'succeeded', 'mapped' from refundd.refunds where id =";
    let ended = |by: &str| {
        format!(
            "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to, code)
             select id, channel, {by}, 1, lease_epoch, 'ann', 'decided', 'failed', {code} from refundd.refunds where id =",
            code = if by == "'manual'" { "'decided'" } else { "'deadline_passed'" }
        )
    };
    let (decided, missed) = (ended("'manual'"), ended("'recovery'"));
    let before = format!(
        "set session_replication_role = replica;
         update refundd.refunds set state = 'failed', lease_node = null, lease_until = null, settled_at = now();
         {decided} 1; {late} 1; {late} 2; {decided} 2; {late} 3; {missed} 3;
         set session_replication_role = origin"
    );
    let mut owner = scratch.connect().await;
    for script in [&before, include_str!("../../../migrations/0056_what_was_paid_before_is_shown.sql")] {
        sqlx::raw_sql(sqlx::AssertSqlSafe(script)).execute(&mut owner).await.unwrap();
    }
    let states =
        "select string_agg(concat_ws(' ', state, settled_at is null), ', ' order by id) from refundd.refunds";
    assert_eq!(scratch.text(states).await, "review t, failed f, review t");
    let lines = "select string_agg(refund_id || ' ' || kind || ' ' || moved_to, ', ' order by refund_id) from refundd.attempts where code = 'said_paid'";
    assert_eq!(scratch.text(lines).await, "1 recovery review, 3 recovery review");
}

#[tokio::test]
async fn a_refund_that_is_sent_anew_has_the_bank_reference_of_its_last_send() {
    let scratch = limited_scratch_with(1).await;
    let settle = async |reference: &str, outcome| {
        let claimed = claim(&scratch, "a", &[unlimited(1)]).await;
        let mut over = settled(&claimed, outcome);
        over.answer.bank_ref = Some(reference.to_owned());
        scratch.store.settle("a", &[over], false).await.unwrap();
        scratch.text("select state || ' ' || bank_ref from refundd.refunds").await
    };
    assert_eq!(settle("B-1", Outcome::Rejected).await, "failed B-1");
    scratch.decide(RefundId(1), State::Ready, "the account is open again", "ann").await;
    assert_eq!(settle("B-2", Outcome::Succeeded).await, "succeeded B-2");
    let before =
        scratch.text("select before ->> 'bank_ref' from refundd.events where kind = 'decided'").await;
    assert_eq!(before, "B-1", "the event has the reference of the send that is over");
}

//! Refunds that no index finds: recovery looks at many others for them, a few rows at a time.

use refundd::refund::{RefundId, State};
use refundd::store::{LookPlace, RecoveryLook};

use super::failing::make_unknown;
use super::recovery_of;
use crate::harness::failing::{fail_at, fail_no_more};
use crate::harness::{Scratch, until};

/// As the owner, makes all refunds `unknown`, each with an inquiry that is due later than that of the refund before. The time
/// for inquiries is over for those of which `is_overdue` is true.
async fn ask_about(scratch: &Scratch, is_overdue: &str) {
    scratch.sql("update refundd.channels set inquires = true, on_unknown = 'inquire'").await;
    make_unknown(scratch).await;
    scratch
        .sql(&format!(
            "update refundd.refunds set inquire_at = now() - interval '1 hour' + id * interval '1 second',
                    uncertain_at = now() - case when {is_overdue} then interval '8 days' else interval '1 day' end"
        ))
        .await;
}

/// As the owner, makes all refunds `unknown`, each due later than the refund before. Those of which `is_used_up` is true may
/// not be sent again.
async fn send_again(scratch: &Scratch, is_used_up: &str) {
    scratch.sql("update refundd.channels set on_unknown = 'resend', resend_within = interval '1 hour'").await;
    make_unknown(scratch).await;
    scratch
        .sql(&format!(
            "update refundd.refunds set due_at = now() + id * interval '1 second',
                    first_sent_at = now() - case when {is_used_up} then interval '2 hours' else interval '1 second' end"
        ))
        .await;
}

/// The ids that each call finds which looks at two rows.
async fn found<const CALLS: usize>(scratch: &Scratch, which: RecoveryLook) -> [Vec<i64>; CALLS] {
    let (mut place, mut found) = (LookPlace::default(), [const { Vec::new() }; CALLS]);
    for ids in &mut found {
        let looked = scratch.store.look_for(which, 10, 2, &place, &[]).await.unwrap();
        ids.extend(looked.shown.iter().map(|refund| refund.id.0));
        ids.sort_unstable();
        place = looked.next;
    }
    assert_eq!(place, LookPlace::default(), "the next round begins");
    found
}

#[tokio::test]
async fn refunds_whose_time_for_inquiries_is_over_are_found_a_few_rows_at_a_time() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 6).await;
    ask_about(&scratch, "id in (2, 5, 6)").await;
    assert_eq!(found::<4>(&scratch, RecoveryLook::Overdue).await, [vec![2_i64], vec![], vec![5, 6], vec![]]);
    assert_eq!(scratch.count(State::Review).await, 3);
}

#[tokio::test]
async fn refunds_that_may_not_be_sent_again_are_found_a_few_rows_at_a_time() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 6).await;
    send_again(&scratch, "id in (2, 5, 6)").await;
    assert_eq!(found::<4>(&scratch, RecoveryLook::UsedUp).await, [vec![2_i64], vec![], vec![5, 6], vec![]]);
    let shown =
        "select count(*) from refundd.attempts where kind = 'recovery' and code = 'nothing_left_to_try'";
    assert_eq!(scratch.number(shown).await, 3);
}

#[tokio::test]
async fn refunds_that_may_not_be_sent_again_are_asked_about_where_the_bank_can_be_asked() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 3).await;
    send_again(&scratch, "id = 2").await;
    scratch
        .sql(
            "insert into refundd.addresses (channel, endpoint, inquiry, published_by)
             values ('acme', 'http://127.0.0.1:8/', 'http://127.0.0.1:8/', 'test')",
        )
        .await;
    scratch
        .sql("update refundd.channels set inquires = true, address = (select max(a.address) from refundd.addresses a)")
        .await;
    let mut recovery = recovery_of(&scratch).await;
    assert_eq!(recovery.pass().await.unwrap().shown, 0);
    let planned = "select string_agg(id::text, ' ') from refundd.refunds where inquire_at is not null and state = 'unknown'";
    assert_eq!(scratch.text(planned).await, "2");
}

/// The refunds of `other` are not read at all: its bank never moved.
#[tokio::test]
async fn refunds_that_went_to_another_address_are_found_a_few_rows_at_a_time() {
    let scratch = Scratch::new().await;
    for channel in ["acme", "other"] {
        scratch.publish(channel).await;
        scratch.insert(channel, &format!("{channel}-"), 6).await;
    }
    scratch
        .sql(
            "insert into refundd.addresses (channel, endpoint, inquiry, published_by)
             values ('acme', 'http://127.0.0.1:8/', '', 'test'), ('acme', 'http://127.0.0.1:9/', '', 'test'), ('other', 'http://127.0.0.1:9/', '', 'test')",
        )
        .await;
    scratch
        .sql(
            "update refundd.channels c set address_since = now() - interval '2 minutes',
                    address = (select max(a.address) from refundd.addresses a where a.channel = c.channel)",
        )
        .await;
    make_unknown(&scratch).await;
    scratch
        .sql(
            "update refundd.refunds r set sent_to = (select case when r.id in (2, 5, 6) then min(a.address) else max(a.address) end
                                                       from refundd.addresses a where a.channel = r.channel)",
        )
        .await;
    scratch.sql("update refundd.refunds set state = 'accepted' where id in (3, 5)").await;
    assert_eq!(found::<4>(&scratch, RecoveryLook::Moved).await, [vec![2_i64], vec![], vec![5, 6], vec![]]);
    let reason = scratch.text("select reason from refundd.refunds where id = 5").await;
    assert!(
        reason.starts_with("address_changed: it may have been sent to http://127.0.0.1:8/, "),
        "{reason}"
    );
}

#[tokio::test]
async fn a_look_leaves_out_the_refunds_that_it_is_told_to_leave_out() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 3).await;
    send_again(&scratch, "true").await;
    let look = async |without: &[RefundId]| {
        let looked =
            scratch.store.look_for(RecoveryLook::UsedUp, 10, 10, &LookPlace::default(), without).await;
        looked.unwrap().shown.len()
    };
    assert_eq!(look(&[RefundId(2)]).await, 2);
    assert_eq!(look(&[]).await, 1);
}

/// Whatever shows such a refund names both banks: the old one may have executed it.
#[tokio::test]
async fn a_refund_that_went_to_another_address_is_shown_with_both_addresses_by_each_move() {
    for (age, setup) in [
        ("2 minutes", "update refundd.channels set on_unknown = 'review'"),
        ("1 second", "update refundd.channels set on_unknown = 'review'"),
        (
            "2 minutes",
            "update refundd.refunds set state = 'accepted', due_at = now() - interval '1 second'",
        ),
        (
            "2 minutes",
            "update refundd.channels set on_unknown = 'resend', resend_within = interval '1 hour', retired_at = now();
             update refundd.refunds set first_sent_at = now()",
        ),
        (
            "1 second",
            "update refundd.channels set on_unknown = 'resend', resend_within = interval '1 hour';
             update refundd.refunds set first_sent_at = now() - interval '2 hours'",
        ),
    ] {
        let scratch = Scratch::new().await;
        scratch.publish("acme").await;
        scratch.insert("acme", "R-", 2).await;
        scratch
            .sql(
                "insert into refundd.addresses (channel, endpoint, inquiry, published_by)
                 values ('acme', 'http://127.0.0.1:8/', '', 'test'), ('acme', 'http://127.0.0.1:9/', '', 'test')",
            )
            .await;
        scratch
            .sql(&format!(
                "update refundd.channels set address_since = now() - interval '{age}',
                        address = (select max(a.address) from refundd.addresses a)"
            ))
            .await;
        make_unknown(&scratch).await;
        // The second one went to the present address.
        scratch
            .sql(
                "update refundd.refunds r set reason = 'timeout', sent_to = (select case r.id when 1 then min(a.address) else max(a.address) end
                                                                              from refundd.addresses a)",
            )
            .await;
        for statement in setup.split(';') {
            scratch.sql(statement).await;
        }
        assert_eq!(recovery_of(&scratch).await.pass().await.unwrap().shown, 2, "{age}: {setup}");
        let reasons = "select string_agg(split_part(reason, ',', 1), ' | ' order by id) from refundd.refunds";
        assert_eq!(
            scratch.text(reasons).await,
            "address_changed: it may have been sent to http://127.0.0.1:8/ | timeout",
            "{age}: {setup}"
        );
        let codes = "select string_agg((code = 'address_changed')::text, ' ' order by refund_id) from refundd.attempts where kind = 'recovery' and moved_to = 'review'";
        assert_eq!(scratch.text(codes).await, "true false", "{age}: {setup}");
    }
}

#[tokio::test]
async fn a_refund_that_postgres_does_not_let_be_shown_keeps_no_other_from_being_shown() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 4).await;
    ask_about(&scratch, "id <> 3").await;
    fail_at(&scratch, "new.id = 2 and new.state = 'review'").await;
    let mut recovery = recovery_of(&scratch).await;
    // Each pass looks at half as many rows as the last one, until it looks at the one alone.
    until("the others are shown", async || {
        let _ = recovery.pass().await;
        scratch.count(State::Review).await == 2
    })
    .await;
    fail_no_more(&scratch).await;
    for _ in 0..3 {
        recovery.pass().await.unwrap();
    }
    assert_eq!(scratch.count(State::Review).await, 2, "a refund that Postgres refused rests a minute");
    recovery_of(&scratch).await.pass().await.unwrap();
    assert_eq!(scratch.count(State::Review).await, 3);
    assert_eq!(scratch.store.refund(RefundId(3)).await.unwrap().unwrap().state, State::Unknown);
}

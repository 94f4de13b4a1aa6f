//! The permits of a claim: which are spent, which are refused, and which come back.

use std::sync::Arc;
use std::time::Duration;

use refundd::caller::Names;
use refundd::limiter::{Counted, Forgotten, Limit, Permit, PermitNumber, Placement, ServerId};
use refundd::refund::{LimitName, RefundId, State};
use refundd::store::{Canceller, Spent};
use sqlx::Executor;

use super::{acme, claim, claim_of, limited_scratch_with, numbered, unlimited, window};
use crate::harness::anywhere::RULE;
use crate::harness::{Scratch, until};

#[tokio::test]
async fn a_permit_number_handed_out_twice_is_refused_and_its_refund_stays_ready() {
    let scratch = limited_scratch_with(2).await;
    let w = window(&scratch).await;
    assert_eq!(claim(&scratch, "a", &[numbered(1, w, 1)]).await.leased.len(), 1);
    let second = claim(&scratch, "b", &[numbered(2, w, 1)]).await;
    assert!(second.leased.is_empty());
    assert_eq!(second.spent_before, [RefundId(2)]);
    assert_eq!(scratch.count(State::Ready).await, 1);
}

#[tokio::test]
async fn a_permit_of_a_generation_that_is_over_is_refused_and_nothing_is_spent() {
    let scratch = limited_scratch_with(1).await;
    let w = window(&scratch).await;
    scratch.sql("update refundd.limits set generation = 2").await;
    let refused = claim(&scratch, "a", &[numbered(1, w, 1)]).await;
    assert!(refused.outdated && refused.leased.is_empty() && refused.spent_before.is_empty());
    assert_eq!(scratch.number("select count(*) from refundd.permits").await, 0);
    assert_eq!(scratch.count(State::Ready).await, 1);
}

#[tokio::test]
async fn a_refund_needs_the_permits_of_all_its_limits() {
    let scratch = limited_scratch_with(2).await;
    let w = window(&scratch).await;
    let both = |id: i64, second: i32, day: i32| {
        let (id, mut permit) = numbered(id, w, second);
        permit.numbers.push(PermitNumber {
            limit: LimitName::new("day").unwrap(),
            window_start_us: w,
            ordinal: day,
            generation: 1,
            own_rule: RULE.into(),
            stricter_rule: None,
            counted: Counted::default(),
        });
        (id, permit)
    };
    assert_eq!(claim(&scratch, "a", &[both(1, 1, 1)]).await.leased.len(), 1);
    let second = claim(&scratch, "a", &[both(2, 2, 1)]).await;
    assert_eq!(second.spent_before, [RefundId(2)], "its day's permit was spent before");
    assert_eq!(scratch.count(State::Ready).await, 1);
}

#[tokio::test]
async fn a_claim_whose_window_is_far_from_postgres_own_time_is_refused() {
    let scratch = limited_scratch_with(1).await;
    let w = window(&scratch).await;
    for away in [-3_600_000_000, 3_600_000_000] {
        let refused = claim(&scratch, "a", &[numbered(1, w + away, 1)]).await;
        assert!(refused.clocks_apart && refused.leased.is_empty());
    }
    assert_eq!(scratch.number("select count(*) from refundd.permits").await, 0);
    assert_eq!(claim(&scratch, "a", &[numbered(1, w, 1)]).await.leased.len(), 1);
}

#[tokio::test]
async fn a_permit_of_another_service_whose_window_is_far_from_postgres_own_time_is_refused() {
    let scratch = limited_scratch_with(1).await;
    let w = window(&scratch).await;
    for (away, expected, spent) in
        [(-3_600_000_000, Spent::ClocksApart, 0), (3_600_000_000, Spent::ClocksApart, 0), (0, Spent::Yes, 1)]
    {
        let permits = [numbered(1, w + away, 1).1];
        let answer = scratch.store.spend(&permits, "shop", "a", Duration::from_secs(6), &[]).await.unwrap();
        assert_eq!(answer, expected, "{away}");
        assert_eq!(scratch.number("select count(*) from refundd.permits").await, spent, "{away}");
    }
}

#[tokio::test]
async fn an_id_that_is_asked_for_twice_is_leased_once() {
    let scratch = limited_scratch_with(2).await;
    assert_eq!(claim(&scratch, "a", &[unlimited(1), unlimited(1)]).await.leased.len(), 1);
    let w = window(&scratch).await;
    let claimed = claim(&scratch, "a", &[numbered(2, w, 1), numbered(2, w, 2)]).await;
    assert_eq!((claimed.leased.len(), ordinals(&claimed.unspent)), (1, vec![2]));
    assert_eq!(scratch.number("select count(*) from refundd.permits").await, 1);
}

fn ordinals(permits: &[Permit]) -> Vec<i32> {
    permits.iter().flat_map(|permit| permit.numbers.iter().map(|number| number.ordinal)).collect()
}

#[tokio::test]
async fn permits_are_spent_in_order_for_refunds_that_can_be_claimed_and_the_rest_come_back_unspent() {
    let scratch = limited_scratch_with(5).await;
    scratch.store.cancel(RefundId(1), None, &Canceller::producer(Names::All)).await.unwrap();
    scratch.sql("update refundd.refunds set deadline_at = now() - interval '1 second' where id = 3").await;
    let w = window(&scratch).await;
    let taken: Vec<_> = [(1, 1), (5, 2), (3, 3), (4, 4)].map(|(id, nth)| numbered(id, w, nth)).into();
    let claimed = claim(&scratch, "a", &taken).await;
    let permits: Vec<(i64, Vec<i32>)> = [5, 4]
        .iter()
        .map(|id| (*id, ordinals(std::slice::from_ref(&claimed.permits[&RefundId(*id)]))))
        .collect();
    assert_eq!(permits, [(5, vec![1]), (4, vec![2])]);
    assert_eq!(ordinals(&claimed.unspent), [3, 4]);
    assert_eq!(claimed.stale, [RefundId(1), RefundId(3)]);
    assert!(claimed.spent_before.is_empty() && claimed.beyond.is_empty());
    assert_eq!(scratch.number("select count(*) from refundd.permits").await, 2);
    // What was left over is good for the next.
    let next = claim(&scratch, "a", &[numbered(2, w, 3)]).await;
    assert_eq!(next.leased.len(), 1);
}

#[tokio::test]
async fn of_more_refunds_than_permits_the_first_are_leased_and_the_others_stay_in_order() {
    let scratch = limited_scratch_with(6).await;
    scratch.store.cancel(RefundId(6), None, &Canceller::producer(Names::All)).await.unwrap();
    let w = window(&scratch).await;
    let taken = [numbered(6, w, 1), numbered(4, w, 2)];
    let more: Vec<RefundId> = [2, 5, 1].map(RefundId).into();
    let claimed = scratch.store.claim_among(&claim_of("a", &taken), &more).await.unwrap();
    let mut leased: Vec<i64> = claimed.leased.iter().map(|leased| leased.id.0).collect();
    leased.sort_unstable();
    assert_eq!(leased, [2, 4]);
    assert_eq!(claimed.beyond, [RefundId(5), RefundId(1)]);
    assert_eq!((claimed.stale, claimed.unspent.len()), (vec![RefundId(6)], 0));
    assert_eq!(scratch.number("select count(*) from refundd.permits").await, 2);
}

#[tokio::test]
async fn a_row_that_somebody_holds_does_not_hold_up_the_claim_of_the_others() {
    let scratch = limited_scratch_with(3).await;
    let mut somebody = scratch.connect().await;
    let mut open = sqlx::Connection::begin(&mut somebody).await.unwrap();
    sqlx::query("select from refundd.refunds where id = 2 for update").execute(&mut *open).await.unwrap();
    let w = window(&scratch).await;
    let taken: Vec<_> = [1, 2, 3].map(|id| numbered(id, w, i32::try_from(id).unwrap())).into();
    // A claim that waited for the row would fail at its `lock_timeout`.
    let claimed = claim(&scratch, "a", &taken).await;
    assert_eq!((claimed.leased.len(), claimed.unspent.len()), (2, 1));
    assert_eq!(scratch.number("select count(*) from refundd.permits where refund_id = 2").await, 0);
    open.rollback().await.unwrap();
    assert_eq!(scratch.store.due(&acme(), 5).await.unwrap(), [RefundId(2)], "it is fed again");
    assert_eq!(claim(&scratch, "a", &[numbered(2, w, 3)]).await.leased.len(), 1);
}

/// Rows change in every way between the take and the claim, and two nodes claim some of the same.
#[tokio::test]
async fn a_permit_is_spent_if_and_only_if_its_refund_was_leased() {
    let scratch = limited_scratch_with(240).await;
    let changes = [
        "state = 'cancelled', settled_at = now()",
        "due_at = now() + interval '1 hour'",
        "deadline_at = now() - interval '1 second'",
        "state = 'failed', settled_at = now()",
    ];
    let mut rng = fastrand::Rng::with_seed(13);
    for id in 1..=240 {
        if let Some(change) = changes.get(rng.usize(..8)) {
            scratch.sql(&format!("update refundd.refunds set {change} where id = {id}")).await;
        }
    }
    let w = window(&scratch).await;
    let mut nth = 0;
    let mut ids: Vec<i64> = (1..=240).collect();
    for _ in 0..12 {
        rng.shuffle(&mut ids);
        let mut take = |count: usize| -> Vec<_> {
            let ids = &ids[..count];
            ids.iter()
                .map(|id| {
                    nth += 1;
                    numbered(*id, w, nth)
                })
                .collect()
        };
        let (a, b) = (take(rng.usize(1..30)), take(rng.usize(1..30)));
        let (a, b) = tokio::join!(claim(&scratch, "a", &a), claim(&scratch, "b", &b));
        for claimed in [a, b] {
            for leased in &claimed.leased {
                let ordinal = claimed.permits[&leased.id].numbers[0].ordinal;
                let found = scratch
                    .number(&format!("select refund_id from refundd.permits where ordinal = {ordinal}"))
                    .await;
                assert_eq!(found, leased.id.0);
            }
        }
    }
    let spent = scratch.number("select count(*) from refundd.permits").await;
    assert!(spent > 50, "{spent}");
    assert_eq!(spent, scratch.number("select count(*) from refundd.refunds where attempts = 1").await);
    assert_eq!(spent, scratch.number("select count(distinct refund_id) from refundd.permits").await);
}

/// Has `spending` write the first permit of this window, and begins a generation before that is committed. Answers what
/// came of `spending`, and how many permits the new generation counts.
async fn with_a_generation_meanwhile<T>(
    scratch: &Scratch,
    window_us: i64,
    spending: impl Future<Output = T>,
) -> (T, i64) {
    let rule = RULE.parse().unwrap();
    let (name, ahead) = (LimitName::new("acme").unwrap(), Duration::from_millis(50));
    let limit = Arc::new(Limit { name, rule, ahead, placement: Placement::Shared });
    let window = (window_us, window_us + 1_000_000);
    let forgotten =
        Forgotten { limit, now_us: window_us, generation: 0, window, server: ServerId::default() };
    // The same number, in another transaction: `spending` waits until it is known whether that one commits.
    let mut holder = scratch.connect().await;
    holder.execute("begin").await.unwrap();
    let same = format!(
        "insert into refundd.permits (limit_name, window_start, ordinal, caller, node)
         values ('acme', timestamptz 'epoch' + {window_us} * interval '1 microsecond', 1, 'shop', 'node-b')"
    );
    holder.execute(sqlx::AssertSqlSafe(same)).await.unwrap();
    let waits = async |calls: i64| {
        let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        until("so many calls wait", async || scratch.number(waiting).await == calls).await;
    };
    let generation = async {
        waits(1).await;
        let free = async {
            waits(2).await;
            holder.execute("rollback").await.unwrap();
        };
        let adopting = scratch.store.adopt(&forgotten, "node-c", Duration::from_secs(5));
        tokio::join!(adopting, free).0.unwrap().used
    };
    tokio::join!(spending, generation)
}

#[tokio::test]
async fn a_generation_waits_for_a_claim_that_is_not_committed_and_counts_its_permits() {
    let scratch = limited_scratch_with(1).await;
    let w = window(&scratch).await;
    let taken = [numbered(1, w, 1)];
    let (claimed, used) = with_a_generation_meanwhile(&scratch, w, claim(&scratch, "a", &taken)).await;
    assert_eq!((claimed.leased.len(), used), (1, 1));
}

#[tokio::test]
async fn a_generation_waits_for_a_permit_of_another_service_that_is_not_committed_and_counts_it() {
    let scratch = limited_scratch_with(1).await;
    let w = window(&scratch).await;
    let permits = [numbered(1, w, 1).1];
    let spending = scratch.store.spend(&permits, "shop", "a", Duration::from_secs(6), &[]);
    let (spent, used) = with_a_generation_meanwhile(&scratch, w, spending).await;
    assert_eq!((spent.unwrap(), used), (Spent::Yes, 1));
}

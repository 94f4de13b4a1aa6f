//! Leases that were taken while Postgres's clock was set forward.

use std::time::Duration;

use refundd::store::{ClaimRequest, ClockWitness};
use sqlx::Executor;

use super::{clocked, step};
use crate::harness::anywhere::{add_address, add_limit, claim_of, numbered};
use crate::harness::until;

#[tokio::test]
async fn a_lease_is_whole_although_its_claim_waited_while_postgres_was_set_forward() {
    let (postgres, scratch) = clocked("straddle").await;
    scratch.publish("acme").await;
    add_address(&scratch, "acme").await;
    scratch.insert("acme", "R-", 1).await;
    add_limit(&scratch, "acme").await;
    let store = scratch.store.clone().witnessed_by(ClockWitness::default());
    assert_eq!(store.watch_clock("a#1", None, false).await.unwrap(), None);
    let opens_us = scratch.now_us().await / 1_000_000 * 1_000_000;
    let taken = [numbered(1, opens_us, 1)];
    let request = ClaimRequest { clock_tolerance: Duration::from_secs(30), ..claim_of("a", &taken) };
    let mut other = scratch.connect().await;
    for statement in ["begin", "select from refundd.limits where limit_name = 'acme' for update"] {
        other.execute(statement).await.unwrap();
    }
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    let set_forward = async {
        until("the claim waits for the lock", async || scratch.number(waits).await > 0).await;
        // No further: by a clock that went on by 3.5 s, the time of the claim's statement is over.
        step(&postgres, 2);
        let stepped = store.watch_clock("a#1", None, false).await.unwrap();
        let after_us = scratch.now_us().await;
        other.execute("rollback").await.unwrap();
        (stepped, after_us)
    };
    let (claimed, (stepped, after_us)) = tokio::join!(store.claim_among(&request, &[]), set_forward);
    assert!(stepped.is_some(), "the step is written down before the claim commits");
    assert_eq!(claimed.unwrap().leased.len(), 1);
    let lease_us = scratch
        .number("select (extract(epoch from lease_until) * 1000000)::bigint from refundd.refunds")
        .await;
    assert!(lease_us >= after_us + 30_000_000, "it lacks {} us", after_us + 30_000_000 - lease_us);
}

//! The lock that lets one node at a time reserve a share of a limit: who can take it, and who waits for it.

use refundd::store::{Locked, ReservedShare, Store};
use sqlx::{Connection, Executor, PgConnection};

use super::shares::many;
use crate::harness::{Scratch, until};
use crate::roles::make_producers;

/// What a node writes about a limit that it counts by shares.
const RULE_OF_A_NODE: &str = "insert into refundd.share_rules (limit_name, node, shares, rule, rest, seen_at) \
                              values ('l0', 'b#1', 4, '{\"permits\": 20}', '1 second', now())";

#[tokio::test]
async fn a_login_without_rights_on_shares_keeps_no_node_from_them() {
    let scratch = Scratch::new().await;
    make_producers(&mut scratch.connect().await).await;
    let role = format!("shop_of_{}", scratch.name);
    scratch.sql(&format!("create role {role} login in role refundd_producer")).await;
    let url = scratch.owner_url.replacen("refundd@", &format!("{role}@"), 1);
    let mut shop = PgConnection::connect(&url).await.unwrap();
    // What nodes locked before migration 0078.
    let advisory = "select pg_advisory_lock('refundd.limit_shares'::regclass::oid::integer, hashtext('l' || n)) from generate_series(0, 2) n";
    shop.execute(advisory).await.unwrap();
    for lock in ["select from refundd.share_locks for key share", "select refundd.lock_shares('l0')"] {
        let refused = shop.execute(lock).await.unwrap_err().to_string();
        assert!(refused.contains("permission denied"), "{lock}: {refused}");
    }
    let config = scratch.config("a", &many(3));
    let limits: Vec<_> = config.limits.values().cloned().collect();
    // The first reservation makes the locks. The others find them.
    for locked in [Locked::Skip, Locked::Skip, Locked::Wait] {
        let reserved = scratch.store.reserve_shares(&limits, "a#1", locked).await.unwrap();
        assert!(
            reserved.iter().all(|share| matches!(share, Some(ReservedShare::Own(1)))),
            "{locked:?}: {reserved:?}"
        );
    }
}

#[tokio::test]
async fn the_first_reservation_of_a_limit_waits_for_another_first_one() {
    let scratch = Scratch::new().await;
    let config = scratch.config("a", &many(1));
    let limits: Vec<_> = config.limits.values().cloned().collect();
    let reserves = "select given from refundd.reserve_share('l0', 'b#1', 4, '{\"permits\": 20}', '1 second')";
    // The function of migration 0068 took another lock. A call of it that still runs writes this row.
    for other in [reserves, RULE_OF_A_NODE] {
        scratch.sql("delete from refundd.share_locks").await;
        let mut transaction = scratch.connect().await;
        transaction.execute("begin").await.unwrap();
        transaction.execute(other).await.unwrap();
        let waited = scratch.store.reserve_shares(&limits, "a#1", Locked::Wait).await;
        assert!(waited.as_ref().is_err_and(refundd::store::StoreError::is_a_lock), "{other}: {waited:?}");
        transaction.execute("rollback").await.unwrap();
    }
    // Once the other one is over, its share counts. The clock is read after the wait: with an earlier time, a share that the other one
    // reserved meanwhile would look like one of the future.
    let mut first = scratch.connect().await;
    for statement in ["begin", reserves] {
        first.execute(statement).await.unwrap();
    }
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    let ends = async {
        until("the second one waits", async || scratch.number(waits).await == 1).await;
        let ended_us = scratch.now_us().await;
        first.execute("commit").await.unwrap();
        ended_us
    };
    let second = reserves.replace("b#1", "c#1");
    let (_, ended_us) = tokio::join!(scratch.sql(&second), ends);
    let seen =
        "select (extract(epoch from seen_at) * 1000000)::bigint from refundd.share_rules where node = 'c#1'";
    let seen_us = scratch.number(seen).await;
    assert!(seen_us > ended_us, "{seen_us}: the first one ended after {ended_us}");
    let reserved = scratch.store.reserve_shares(&limits, "a#1", Locked::Wait).await.unwrap();
    assert!(matches!(reserved[..], [Some(ReservedShare::CountedOtherwise(_))]), "{reserved:?}");
}

/// Otherwise each limit would be new on all nodes after the migration, and a node that skips locked limits would wait for another one.
#[tokio::test]
async fn the_migration_makes_the_locks_of_the_limits_that_nodes_have() {
    let scratch = Scratch::new().await;
    for statement in [
        RULE_OF_A_NODE,
        "delete from refundd.share_locks",
        "delete from refundd.migrations where version = 78",
    ] {
        scratch.sql(statement).await;
    }
    let owner = Store::open(&scratch.owner_url, None, 1).unwrap();
    assert!(owner.migrate().await.unwrap().is_enough());
    assert_eq!(scratch.text("select string_agg(limit_name, ' ') from refundd.share_locks").await, "l0");
}

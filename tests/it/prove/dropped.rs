//! Days that are dropped from the ledger, before a proof and during one.

use std::fmt::Arguments;
use std::time::Duration;

use refundd::limit_proof::{LimitVerdict, prove_one};
use refundd::prove::Period;
use refundd::store::Store;

use super::{json, ledger, prove, text};
use crate::harness::Scratch;

/// A ledger of the last 170 minutes. The first of its two days is said to have ended long ago, and goes on until two hours ago.
async fn two_days() -> Scratch {
    let scratch =
        ledger(r#"{"algorithm":"sliding_log","permits":5,"per_us":1000000,"lateness_us":20000}"#).await;
    scratch
        .sql(
            "do $$
             begin
                 execute (select 'drop table ' || string_agg(oid::regclass::text, ', ') from pg_class where relname like 'permits_until_%' and relkind = 'r');
                 execute format('create table refundd.permits_until_20000101 partition of refundd.permits for values from (minvalue) to (%L)',
                                now() - interval '2 hours');
                 execute format('create table refundd.permits_until_29990101 partition of refundd.permits for values from (%L) to (maxvalue)',
                                now() - interval '2 hours');
                 insert into refundd.permits (limit_name, window_start, ordinal, refund_id, node)
                 select 'acme', now() - n * interval '1 minute', n, n, 'node-a' from generate_series(1, 170) n;
             end $$",
        )
        .await;
    scratch
}

#[tokio::test]
async fn a_pruned_period_is_said_to_be_unproven() {
    let scratch = two_days().await;
    let whole = prove(&scratch, &["--limit", "acme", "--from", "160m", "--json"]);
    assert_eq!(
        (whole.status.code(), json(&whole)["limits"][0]["unproven"].as_array().map(Vec::len)),
        (Some(0), Some(0))
    );
    scratch.keep_evidence_for_a_moment().await;
    assert_eq!(scratch.store.rotate_permits(Duration::from_hours(24)).await.unwrap(), 1);
    let said = prove(&scratch, &["--limit", "acme", "--from", "160m"]);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said));
    assert!(text(&said).contains("unproven") && text(&said).contains("pruned"), "{}", text(&said));
    let gone = prove(&scratch, &["--limit", "acme", "--from", "160m", "--to", "150m"]);
    assert_eq!(gone.status.code(), Some(1), "{}", text(&gone));
    assert!(text(&gone).contains("nothing can be said"), "{}", text(&gone));
    // Before any rule, too.
    let ruleless = prove(&scratch, &["--limit", "acme", "--from", "5h", "--to", "4h"]);
    assert_eq!(ruleless.status.code(), Some(1), "{}", text(&ruleless));
    assert!(text(&ruleless).contains("no node had written down a rule"), "{}", text(&ruleless));
}

#[tokio::test]
async fn a_day_that_is_dropped_during_a_proof_breaks_nothing_and_is_said_to_be_unproven() {
    let scratch = two_days().await;
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", 170).await;
    scratch
        .sql(
            "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, permit, started_at, outcome)
             select refund_id, 'acme', 'send', 1, 1, 'node-a', format('acme@%s#%s', window_start, ordinal), window_start, 'succeeded' from refundd.permits",
        )
        .await;
    scratch.keep_evidence_for_a_moment().await;
    let (known, now) = (scratch.store.provable().await.unwrap(), scratch.store.now().await.unwrap());
    let to_us = now.as_microsecond();
    let period = Period { from_us: to_us - 160 * 60_000_000, to_us };
    let (mut said, mut is_dropped) = (Vec::new(), false);
    let mut tell = |words: Arguments<'_>| {
        said.push(words.to_string());
        if !std::mem::replace(&mut is_dropped, true) {
            let store = Store::open(&scratch.database_url, None, 1).unwrap();
            let drop_day = async move { store.rotate_permits(Duration::from_hours(24)).await.unwrap() };
            let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            assert_eq!(std::thread::spawn(move || other.block_on(drop_day)).join().unwrap(), 1);
        }
    };
    let limit = "acme".to_owned();
    let proved =
        prove_one(&scratch.store, &known, limit, period, now, Duration::ZERO, &mut tell).await.unwrap();
    assert_eq!(proved.verdict(), LimitVerdict::Kept, "{proved:?}");
    let page = refundd::limit_proof::report::text(period, &[proved]);
    assert!(page.contains("pruned") && page.contains("119 for refunds"), "{page}");
    assert!(said.iter().any(|words| words.contains("a day was dropped from the ledger")), "{said:?}");
}

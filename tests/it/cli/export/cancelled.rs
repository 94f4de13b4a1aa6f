//! Who cancelled a refund: the journal keeps a name, and not whether it is a person's. So the export tells a cancellation from a
//! person's decision.

use refundd::caller::Names;
use refundd::refund::{RefundId, State};
use refundd::store::{Cancelled, Canceller};

use super::export;
use crate::cli::file;
use crate::dispatch::UNLIMITED;
use crate::harness::Scratch;

#[tokio::test]
async fn a_cancellation_by_a_producer_is_not_called_a_persons_decision() {
    let scratch = Scratch::with_refunds(4).await;
    // The bank executed none of these sends.
    scratch
        .sql(
            "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, outcome, moved_to, code)
             select id, 'acme', 'send', 1, 1, 'a#1', now(), 'not_executed', 'ready', 'http_status' from refundd.refunds where id < 4",
        )
        .await;
    let shop = Canceller { name: Some("shop".to_owned()), ..Canceller::producer(Names::All) };
    for (id, canceller) in [(1, &Canceller::producer(Names::All)), (2, &shop)] {
        let cancelled = scratch.store.cancel(RefundId(id), None, canceller).await.unwrap();
        assert!(matches!(cancelled, Cancelled::Now(_)), "{cancelled:?}");
    }
    // As versions before migration 38 cancelled: without a line.
    scratch.sql("update refundd.refunds set state = 'cancelled', settled_at = now(), version = version + 1 where id = 3").await;
    scratch.to_review("id = 4").await;
    scratch.decide(RefundId(4), State::Cancelled, "the bank never had it", "ann").await;

    let config = file(&scratch.file("a", UNLIMITED));
    let (rows, said) = export(config.path(), &["--from", "1h"]);
    let mut by: Vec<(&str, &str)> =
        rows.iter().map(|row| (row["refund_id"].as_str(), row["ended_by"].as_str())).collect();
    by.sort_unstable();
    assert_eq!(by, [("1", "canceller"), ("2", "canceller"), ("3", "canceller"), ("4", "person")], "{said}");
    assert!(said.contains("    a person decided: 1 refund, "), "{said}");
    assert!(said.contains("    a person or a program cancelled it: 3 refunds, "), "{said}");
}

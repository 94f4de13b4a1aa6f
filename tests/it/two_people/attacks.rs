//! What the shipped role of nodes tries against the second person, and must not get.

use refundd::refund::State;
use refundd::store::{Decision, NeededFor};
use sqlx::{Connection, PgConnection};

use super::amounts::bounds;
use super::{propose, ready, uncertain};
use crate::attacks::are_refused;

#[tokio::test]
async fn the_nodes_role_writes_no_proposal_and_loosens_no_rule() {
    let scratch = uncertain(1).await;
    propose(&scratch, &ready(1, "ann")).await;
    scratch.store.publish_second_person("a", &bounds(&[("EUR", 100)])).await.unwrap();
    let mut node = PgConnection::connect(&scratch.database_url).await.unwrap();
    are_refused(&mut node, &[
        ("insert into refundd.proposals (refund_id, channel, version, moves_to, confirms_not_executed, needed_for, reason, proposed_by) values (1, 'acme', 3, 'ready', true, 'uncertain', 'x', 'eve')", "42501", "permission denied for table proposals"),
        ("update refundd.proposals set proposed_by = 'eve'", "42501", "permission denied for table proposals"),
        ("update refundd.proposals set expires_at = 'infinity'", "42501", "permission denied for table proposals"),
        ("delete from refundd.proposals", "42501", "permission denied for table proposals"),
        ("truncate refundd.proposals", "42501", "permission denied for table proposals"),
        ("alter table refundd.proposals disable trigger all", "42501", "must be owner of table proposals"),
        ("update refundd.second_person set above = '{\"EUR\": 1000000}'", "42501", "permission denied for table second_person"),
        ("delete from refundd.second_person", "42501", "permission denied for table second_person"),
        ("truncate refundd.second_person", "42501", "permission denied for table second_person"),
        ("insert into refundd.second_person (above, node, published_at) values ('{\"EUR\": 1}', 'a', '2020-01-01')", "42501", "permission denied for table second_person"),
        ("insert into refundd.second_person (above, node) values ('{}', 'a')", "23514", "second_person_above_has_currencies_with_amounts"),
        ("insert into refundd.second_person (above, node) values ('{\"EUR\": \"x\"}', 'a')", "23514", "second_person_above_has_currencies_with_amounts"),
        ("insert into refundd.second_person (above, node) values ('{\"EUR\": 1.5}', 'a')", "23514", "second_person_above_has_currencies_with_amounts"),
        ("insert into refundd.second_person (above, node) values ('{\"EUR\": 9999999999999999999}', 'a')", "23514", "second_person_above_has_currencies_with_amounts"),
        ("select refundd.carry_out(1, 'ready', 3, true, true, 'x', 'eve', 'x')", "42501", "permission denied for function carry_out"),
        ("insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome) values (1, 'acme', 'manual', 3, 1, 'bob', 'withdrawn')", "RD006", "is written to the journal by refundd.decide alone"),
        ("update refundd.refunds set state = 'ready', uncertain_at = null", "RD006", "refund 1 is review"),
        ("select refundd.approve(1, 3, 'why', ' ')", "22023", "names no person"),
        ("select refundd.propose(1, 'ready', null, 'ann', 3, true)", "22023", "names no reason"),
        ("select refundd.withdraw(1, '', 'ann')", "22023", "names no reason"),
    ])
    .await;
    // The owner changes no proposal by accident, either.
    for statement in [
        "update refundd.proposals set proposed_by = 'eve'",
        "update refundd.proposals set expires_at = 'infinity'",
        "delete from refundd.proposals",
        "truncate refundd.proposals",
    ] {
        let error = scratch.sql_error(statement).await;
        assert!(error.to_string().contains("refundd.proposals is append-only"), "{statement}: {error}");
    }
    // More rules of nodes make it no looser.
    scratch.store.publish_second_person("b", &bounds(&[("EUR", 1_000_000), ("USD", 1)])).await.unwrap();
    let failed = Decision { next: State::Failed, not_executed: false, ..ready(1, "ann") };
    assert_eq!(propose(&scratch, &failed).await.needed_for, NeededFor::Amount);
}

//! Who may move refunds: the function alone, and nobody by hand.

use refundd::refund::RefundId;
use refundd::store::Move;
use sqlx::Connection;

use super::{moved, order};
use crate::harness::Scratch;

#[tokio::test]
async fn only_the_function_moves_a_refund_and_only_nodes_and_the_owner_call_it() {
    let scratch = Scratch::with_refunds(2).await;
    scratch.publish("globex").await;
    scratch.sql("update refundd.refunds set first_sent_at = now() where id = 2").await;
    let by_hand =
        "channel = 'globex', saved_channel = 'acme', version = version + 1, request_id = gen_random_uuid()";
    for (set, id) in [
        ("channel = 'globex', version = version + 1", 1),
        ("request_id = gen_random_uuid(), version = version + 1", 1),
        ("saved_channel = 'globex'", 1),
        ("channel = 'globex', saved_channel = 'acme', request_id = gen_random_uuid()", 1),
        (
            "channel = 'globex', saved_channel = 'acme', version = version + 1, request_id = gen_random_uuid(), amount_minor = 1",
            1,
        ),
        (by_hand, 2),
    ] {
        let error = scratch.sql_error(&format!("update refundd.refunds set {set} where id = {id}")).await;
        assert!(error.to_string().contains("cannot be changed once saved"), "{set}: {error}");
    }
    // A node may call the function. It may not do the same by hand.
    assert_eq!(moved(&scratch, &[1, 2], "acme", "globex").await.len(), 1);
    let mut node = sqlx::PgConnection::connect(&scratch.database_url).await.unwrap();
    let update = format!("update refundd.refunds set {} where id = 1", by_hand.replace("globex", "acme"));
    let refused = sqlx::query(sqlx::AssertSqlSafe(update)).execute(&mut node).await.unwrap_err();
    assert!(refused.to_string().contains("permission denied"), "{refused}");
    let anybody = "select has_function_privilege('public', 'refundd.move(bigint[], text, text, text, text, integer[])', 'execute')::integer::bigint";
    assert_eq!(scratch.number(anybody).await, 0);
    for (who, why) in [(" ", "x"), ("ann", " ")] {
        let order = Move { who: who.to_owned(), why: why.to_owned(), ..order("globex", "acme") };
        assert!(scratch.store.move_never_sent(&[(RefundId(1), None)], &order).await.is_err(), "{order:?}");
    }
}

//! The highest amount of a channel, at every door.

use refundd::refund::State;

use super::{insert, run, two_producers};
use crate::attacks::are_refused;
use crate::cli::{arguments, csv_file, file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::node::refund;
use crate::harness::{Scratch, TestNode, until};

/// A node that was not reloaded yet, or whose file lacks the channel, obeys what the others have published.
#[tokio::test]
async fn an_amount_above_the_published_bound_is_refused_also_where_the_file_does_not_have_it() {
    let scratch = Scratch::new().await;
    let bounded = format!("{UNLIMITED}max_amount_minor = {{ EUR = 500 }}\n");
    let with_bound = TestNode::start(&scratch, "a", &bounded).await;
    let other = UNLIMITED.replace("[channel.acme]", "[channel.other]");
    let without = TestNode::start(&scratch, "b", &other).await;
    let with = |refund_ref: &str, amount: i64| {
        let mut refund = refund(refund_ref, "acme");
        refund["amount_minor"] = serde_json::json!(amount);
        refund
    };
    let refused = without.post("/v1/refunds", &with("H-1", 501)).await;
    assert_eq!(refused.status.as_u16(), 422, "{}", refused.text);
    assert!(
        refused.text.contains("is more than the `max_amount_minor` of the channel, which is 500 for EUR"),
        "{}",
        refused.text
    );
    let batch = serde_json::json!([with("B-1", 501), with("B-2", 500), with("B-1", 499)]);
    let batch = without.post("/v1/refunds/batch", &batch).await;
    let statuses: Vec<_> =
        batch.json().as_array().unwrap().iter().map(|item| item["status"].clone()).collect();
    assert_eq!(statuses[1..], [201, 201], "{}", batch.text);
    let config = file(&scratch.file("b", &other));
    let rows = csv_file(&["I-1,acme,P-1,501,EUR", "I-2,acme,P-2,500,EUR"]);
    let path = rows.path().to_str().unwrap();
    for (args, says) in [
        (&["import", "--dry-run", path][..], "1 would be refused"),
        (&["import", path], "1 saved, 0 were saved before, 1 refused"),
    ] {
        let imported = text(&refundd(config.path(), args));
        assert!(imported.contains(says) && imported.contains("which is 500 for EUR"), "{imported}");
    }
    with_bound.stop().await;
    without.stop().await;
}

#[tokio::test]
async fn an_amount_above_the_channels_bound_is_refused_at_every_door() {
    let (scratch, mut shop, _boutique) = two_producers().await;
    let bounded = format!("{UNLIMITED}max_amount_minor = {{ EUR = 500, JPY = 90000 }}\n");
    let node = TestNode::start(&scratch, "a", &bounded).await;
    let with = |refund_ref: &str, amount: i64, currency: &str| {
        let (amount, mut refund) = (serde_json::json!(amount), refund(refund_ref, "acme"));
        (refund["amount_minor"], refund["currency"]) = (amount, currency.into());
        refund
    };
    let (high, none) = (with("H-1", 501, "EUR"), with("H-2", 1, "USD"));
    for (refund, why) in [(&high, "is 500 for EUR"), (&none, "names EUR, JPY, and not USD")] {
        let refused = node.post("/v1/refunds", refund).await;
        assert_eq!(
            (refused.status.as_u16(), refused.json()["errors"][0]["field"].as_str()),
            (422, Some("amount_minor"))
        );
        assert!(refused.text.contains(why), "{}", refused.text);
    }
    let batch =
        node.post("/v1/refunds/batch", &serde_json::json!([high, with("B-1", 500, "EUR"), none])).await;
    let statuses: Vec<_> =
        batch.json().as_array().unwrap().iter().map(|item| item["status"].clone()).collect();
    assert_eq!(statuses, [422, 201, 422], "{}", batch.text);
    let config = file(&scratch.file("a", &bounded));
    let enqueue = "enqueue --refund-ref E-1 --channel acme --payment-ref P --amount-minor 501 --currency EUR";
    let enqueued = refundd(config.path(), &arguments(enqueue));
    assert!(
        text(&enqueued).contains("--amount-minor 501: is more than the `max_amount_minor` of"),
        "{}",
        text(&enqueued)
    );
    let rows = csv_file(&["I-1,acme,P-1,90001,JPY", "I-2,acme,P-2,90000,JPY"]);
    let imported = text(&refundd(config.path(), &["import", rows.path().to_str().unwrap()]));
    assert!(imported.contains("1 saved, 0 were saved before, 1 refused"), "{imported}");

    let plain = "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)";
    let one = format!("{plain} values ('S-1', 'acme', 'P', 501, 'EUR')");
    let many = format!(
        "{plain} select 'S-' || n, case when n < 9 then 'globex' else 'acme' end, 'P', 600, 'EUR' from generate_series(1, 9) n"
    );
    let other = format!("{plain} values ('S-1', 'acme', 'P', 1, 'USD')");
    let most = "channel \"acme\" takes at most 500 of EUR; Give a lower amount, or raise max_amount_minor";
    are_refused(
        &mut shop,
        &[
            (&one, "23514", "amount_minor is 501, and channel \"acme\" takes at most 500 of EUR"),
            (&many, "23514", most),
            (&other, "23514", "channel \"acme\" takes no USD"),
            ("select refundd.enqueue('S-1', 'acme', 'P', 501, 'EUR')", "23514", most),
        ],
    )
    .await;
    run(&mut shop, &insert("S-1", "acme")).await;
    run(&mut shop, &format!("{plain} values ('S-2', 'globex', 'P', 501, 'USD')")).await;
    until("all that were taken are paid", async || scratch.count(State::Succeeded).await == 3).await;
    node.stop().await;
}

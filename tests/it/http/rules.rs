//! Rules that changed after a refund was saved, and rules that nodes do not have in common.

use futures_util::future::join_all;
use hyper::Method;
use serde_json::{Value, json};
use sqlx::Executor;

use crate::cli::{csv_file, file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::node::{Answer, refund};
use crate::harness::{Scratch, TestNode, until};

fn with(refund_ref: &str, field: &str, value: Value) -> Value {
    let mut refund = refund(refund_ref, "acme");
    refund[field] = value;
    refund
}

fn statuses(batch: &Answer) -> Vec<Value> {
    batch.json().as_array().unwrap().iter().map(|item| item["status"].clone()).collect()
}

/// A caller that is told "not saved" would refund in another way.
#[tokio::test]
async fn a_repeat_of_a_saved_refund_is_recognised_after_the_rules_became_stricter() {
    let scratch = Scratch::new().await;
    let lax = format!("{UNLIMITED}max_amount_minor = {{ EUR = 5000 }}\ncard_numbers = \"accepted\"\n");
    let strict = format!("{UNLIMITED}max_amount_minor = {{ EUR = 1000 }}\n");
    let node = TestNode::start(&scratch, "a", &lax).await;
    let high = refund("R-1", "acme");
    let mut card = with("R-2", "payment_ref", json!("4111 1111 1111 1111"));
    card["amount_minor"] = json!(5);
    let mut ids = Vec::new();
    for refund in [&high, &card] {
        let saved = node.post("/v1/refunds", refund).await;
        assert_eq!(saved.status, 201, "{saved:?}");
        ids.push(saved.json()["id"].clone());
    }
    ids.push(json!(77));
    // As an earlier version took it.
    let mut blank = refund("R-3 ", "acme");
    blank["amount_minor"] = json!(7);
    let mut owner = scratch.connect().await;
    for statement in [
        "set session_replication_role = 'replica'",
        "insert into refundd.refunds (id, refund_ref, channel, payment_ref, amount_minor, currency)
         overriding system value values (77, 'R-3 ', 'acme', 'P-1', 7, 'EUR')",
    ] {
        owner.execute(statement).await.unwrap();
    }
    node.daemon.reload(scratch.config("a", &strict)).await.unwrap();
    for (refund, id) in [&high, &card, &blank].into_iter().zip(&ids) {
        let again = node.post("/v1/refunds", refund).await;
        assert_eq!((again.status.as_u16(), &again.json()["id"]), (200, id), "{again:?}");
    }
    // Other content, a ref that nobody has, and fields that nobody can read are refused as ever.
    let other = with("R-1", "amount_minor", json!(1251));
    let new = refund("R-4", "acme");
    let mut unreadable = high.clone();
    unreadable["amount"] = json!(1250);
    for (refund, field) in [(&other, "amount_minor"), (&new, "amount_minor"), (&unreadable, "amount")] {
        let refused = node.post("/v1/refunds", refund).await;
        let fields: Vec<Value> =
            refused.json()["errors"].as_array().unwrap().iter().map(|error| error["field"].clone()).collect();
        assert_eq!((refused.status.as_u16(), fields.last()), (422, Some(&json!(field))), "{refused:?}");
        assert_eq!(refused.json()["id"], Value::Null, "{refused:?}");
    }
    let good = with("R-5", "amount_minor", json!(1));
    let all = json!([other, high, new, card, good, blank, unreadable]);
    let batch = node.post("/v1/refunds/batch", &all).await;
    assert_eq!(statuses(&batch), [422, 200, 422, 200, 201, 200, 422], "{batch:?}");
    for (nth, id) in [1, 3, 5].into_iter().zip(&ids) {
        let item = &batch.json()[nth];
        assert_eq!((&item["id"], &item["errors"]), (id, &Value::Null), "{batch:?}");
    }
    assert_eq!(scratch.number("select count(*) from refundd.refunds").await, 4);
    node.stop().await;
}

/// Its trigger obeys what was published last, also against the file of the node that saves.
#[tokio::test]
async fn a_card_number_that_only_this_nodes_file_accepts_is_refused_alone_and_by_name() {
    let scratch = Scratch::new().await;
    let accepted = format!("{UNLIMITED}card_numbers = \"accepted\"\n");
    let node = TestNode::start(&scratch, "a", &accepted).await;
    let older = TestNode::start(&scratch, "b", UNLIMITED).await;
    let published = "select count(*) from refundd.channels where channel = 'acme' and settings ->> 'card_numbers' is distinct from 'accepted'";
    until("the older file is published", async || scratch.number(published).await == 1).await;
    let card = with("R-1", "payment_ref", json!("4111111111111111"));
    let refused = node.post("/v1/refunds", &card).await;
    assert_eq!(
        (refused.status.as_u16(), &refused.json()["errors"][0]["field"]),
        (422, &json!("payment_ref")),
        "{refused:?}"
    );
    assert!(refused.text.contains("card_numbers") && !refused.text.contains("41111"), "{refused:?}");
    // A ref that stands twice is saved by the item that may be saved.
    let plain = refund("R-1", "acme");
    let other = with("R-3", "payment_ref", json!("4111111111111111"));
    let batch = json!([other, refund("R-2", "acme"), card, plain]);
    let batch = node.post("/v1/refunds/batch", &batch).await;
    assert_eq!(statuses(&batch), [422, 201, 409, 201], "{batch:?}");
    assert_eq!(batch.json()[0]["errors"][0]["field"], "payment_ref", "{batch:?}");
    let config = file(&scratch.file("a", &accepted));
    let rows = csv_file(&["I-1,acme,4111111111111111,1,EUR", "I-2,acme,P-2,1,EUR"]);
    let path = rows.path().to_str().unwrap();
    for (args, says) in [
        (&["import", "--dry-run", path][..], "1 would be refused"),
        (&["import", path], "1 saved, 0 were saved before, 1 refused"),
    ] {
        let imported = text(&refundd(config.path(), args));
        assert!(imported.contains(says) && imported.contains("line 2: payment_ref: "), "{imported}");
    }
    older.stop().await;
    node.stop().await;
}

/// Readers of JSON differ about which of two values counts, and the two may be two amounts.
#[tokio::test]
async fn a_refund_with_a_field_twice_is_refused_and_a_payload_is_kept_as_it_was_written() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let written = |refund_ref: &str, more: &str| {
        let refund = refund(refund_ref, "acme").to_string();
        format!("{},{more}}}", refund.strip_suffix('}').unwrap())
    };
    let twice = written("R-1", r#""amount_minor":125000"#);
    let inside = written("R-2", r#""payload":{"note":"a","note":"b"}"#);
    for (body, field) in [(&twice, "amount_minor"), (&inside, "note")] {
        let refused = node.request(Method::POST, "/v1/refunds", "application/json", body).await;
        let detail = refused.json()["detail"].to_string();
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(detail.contains(&format!("says two things: field `{field}` is given twice")), "{detail}");
    }
    // To `serde_json`'s own values such a field is another text of JSON.
    let named = written("R-3", r#""payload":{"$serde_json::private::RawValue":"[]"}"#);
    let batch = format!("[{twice},{named},{inside}]");
    let batch = node.request(Method::POST, "/v1/refunds/batch", "application/json", &batch).await;
    assert_eq!(statuses(&batch), [422, 201, 422], "{batch:?}");
    let kept = "select count(*) from refundd.refunds
                where payload = '{\"$serde_json::private::RawValue\": \"[]\"}'::jsonb";
    assert_eq!(scratch.number(kept).await, 1);
    assert_eq!(scratch.number("select count(*) from refundd.refunds").await, 1);
    node.stop().await;
}

/// Lets the database refuse each refund whose ref begins with `bad-`, as a trigger of a newer version may.
async fn refuse_bad(scratch: &Scratch) {
    for statement in [
        "create function public.refuses() returns trigger language plpgsql as $$
         begin raise exception 'a newer rule refuses %', new.refund_ref using errcode = 'check_violation'; end $$",
        "create trigger refuses before insert on refundd.refunds for each row
           when (new.refund_ref like 'bad-%') execute function public.refuses()",
    ] {
        scratch.sql(statement).await;
    }
}

#[tokio::test]
async fn a_refund_that_only_the_database_refuses_fails_alone_and_with_the_databases_message() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    refuse_bad(&scratch).await;
    let single = node.post("/v1/refunds", &refund("bad-1", "acme")).await;
    assert_eq!(
        (single.status.as_u16(), &single.json()["errors"][0]["field"]),
        (422, &json!("refund")),
        "{single:?}"
    );
    assert!(single.text.contains("the database refuses it: a newer rule refuses bad-1"), "{single:?}");
    let together = join_all(["R-1", "bad-2", "R-2"].map(async |name| {
        let answer = node.post("/v1/refunds", &refund(name, "acme")).await;
        answer.status.as_u16()
    }));
    assert_eq!(together.await, [201, 422, 201]);
    let items = ["B-1", "bad-3", "B-2", "B-3", "bad-4"].map(|name| refund(name, "acme"));
    for expected in [[201, 422, 201, 201, 422], [200, 422, 200, 200, 422]] {
        let batch = node.post("/v1/refunds/batch", &json!(items)).await;
        assert_eq!(statuses(&batch), expected, "{batch:?}");
        let why = batch.json()[1]["errors"][0].clone();
        assert!(why["message"].to_string().contains("a newer rule refuses bad-3"), "{batch:?}");
    }
    let config = file(&scratch.file("a", UNLIMITED));
    let rows = csv_file(&["I-1,acme,P-1,1,EUR", "bad-5,acme,P-2,1,EUR", "I-2,acme,P-3,1,EUR"]);
    let imported = text(&refundd(config.path(), &["import", rows.path().to_str().unwrap()]));
    assert!(imported.contains("2 saved, 0 were saved before, 1 refused"), "{imported}");
    assert!(imported.contains("line 3: the database refuses it: a newer rule refuses bad-5"), "{imported}");
    node.stop().await;
}

/// Each refused refund costs several statements, so a trigger that refuses all would keep a connection busy for long.
#[tokio::test]
async fn a_batch_of_which_the_database_refuses_nearly_everything_ends_early_and_says_what_was_not_tried() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    refuse_bad(&scratch).await;
    let mut items: Vec<Value> = (0..400).map(|n| refund(&format!("bad-{n}"), "acme")).collect();
    items.push(refund("R-last", "acme"));
    let batch = node.post("/v1/refunds/batch", &json!(items)).await;
    let statuses = statuses(&batch);
    let refused = statuses.iter().take_while(|status| **status == 422).count();
    assert!((50..200).contains(&refused), "{refused} are refused");
    assert!(statuses[refused..].iter().all(|status| *status == 503), "{statuses:?}");
    let why = batch.json()[400]["errors"][0]["message"].to_string();
    assert!(why.contains("was not tried"), "{why}");
    assert_eq!(node.post("/v1/refunds/batch", &json!(items[400..])).await.json()[0]["status"], 201);
    node.stop().await;
}

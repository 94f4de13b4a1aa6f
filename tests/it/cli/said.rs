//! What commands and answers say names the field, the value and the way out.

use std::io::Write;

use serde_json::json;

use super::{arguments, file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode, node::refund};

fn csv(lines: &[&str]) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".csv").tempfile().unwrap();
    writeln!(file, "refund_ref,channel,payment_ref,amount_minor,currency,payload\n{}", lines.join("\n"))
        .unwrap();
    file
}

#[tokio::test]
async fn a_line_of_an_unknown_channel_shows_it_and_names_the_one_that_is_meant() {
    let scratch = Scratch::with_refunds(0).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let lines = csv(&["A-1,amce,P-1,5,EUR,", "A-2,nobody,P-2,5,EUR,"]);
    for dry in [&["--dry-run"][..], &[]] {
        let args = [&["import", lines.path().to_str().unwrap()][..], dry].concat();
        let said = text(&refundd(config.path(), &args));
        for words in [
            "line 2: channel \"amce\": no node runs this channel; did you mean `acme`?",
            "line 3: channel \"nobody\": no node runs this channel; `refundd status` lists the channels",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }
}

#[tokio::test]
async fn the_control_totals_count_accepted_lines_and_name_the_refused_ones_apart() {
    let scratch = Scratch::with_refunds(1).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let lines = csv(&[
        "A-1,acme,P-1,1000,EUR,",
        "A-2,acme,P-2,500,EUR,",
        "A-3,nobody,P-3,70,EUR,",
        "A-4,nobody,P-4,9,JPY,",
        "A-1,acme,P-1,2000,EUR,",
        "A-5,acme,P-5,none,EUR,",
    ]);
    let path = lines.path().to_str().unwrap();
    let output = refundd(config.path(), &["import", "--dry-run", path]);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "2 would be saved, 0 were saved before, 4 would be refused; nothing was changed\n\
         EUR: 2 refunds, 1500 in minor units = 15.00 EUR\n\
         Refused, and not in the totals: EUR: 2 refunds, 2070 in minor units = 20.70 EUR; \
         JPY: 1 refund, 9 in minor units = 9 JPY; \
         1 line without a readable amount\n",
        "{}",
        text(&output)
    );
}

#[tokio::test]
async fn a_conflict_names_the_fields_that_differ_and_no_value_that_may_be_private() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.pause("acme", "so that it stays", "ann").await;
    let mut first = refund("R-1", "acme");
    first["payload"] = json!({ "iban": "DE00 SECRET" });
    first["amount_minor"] = json!(1250);
    assert_eq!(node.post("/v1/refunds", &first).await.status, 201);
    let mut other = first.clone();
    other["amount_minor"] = json!(1300);
    other["payload"] = json!({ "iban": "DE11 SECRET" });
    other["payment_ref"] = json!("PAY-PRIVATE");
    let differs =
        "is already refund 1, with other content: payment_ref, amount_minor (saved 1250, sent 1300), payload";
    let answer = node.post("/v1/refunds", &other).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.json()["differs"]),
        (409, &json!(["payment_ref", "amount_minor", "payload"]))
    );
    let batch = node.post("/v1/refunds/batch", &json!([other])).await.text;
    let config = file(&scratch.file("a", UNLIMITED));
    let lines = csv(&["R-1,acme,PAY-PRIVATE,1300,EUR,\"{\"\"iban\"\": \"\"DE11 SECRET\"\"}\""]);
    let path = lines.path().to_str().unwrap();
    let mut enqueue = arguments(
        "enqueue --refund-ref R-1 --channel acme --payment-ref PAY-PRIVATE --amount-minor 1300 --currency EUR",
    );
    enqueue.extend(["--payload", r#"{"iban": "DE11 SECRET"}"#]);
    for (door, said) in [
        ("POST", answer.text.clone()),
        ("batch", batch),
        ("import", text(&refundd(config.path(), &["import", path]))),
        ("dry run", text(&refundd(config.path(), &["import", "--dry-run", path]))),
        ("enqueue", text(&refundd(config.path(), &enqueue))),
    ] {
        assert!(said.contains(differs), "{door}: {said}");
        assert!(!said.contains("SECRET") && !said.contains("PRIVATE"), "{door}: {said}");
    }
    // Lines of one file that conflict with each other name their fields, too.
    let lines = csv(&["B-1,acme,P-1,5,EUR,", "B-1,acme,P-1,6,USD,"]);
    let said = text(&refundd(config.path(), &["import", "--dry-run", lines.path().to_str().unwrap()]));
    assert!(said.contains("stands in an earlier line, with other content: amount_minor, currency"), "{said}");
    node.stop().await;
}

#[tokio::test]
async fn the_log_quotes_reasons_and_writes_all_times_alike() {
    let scratch = Scratch::with_refunds(0).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let pause = ["pause", "acme", "--for", "2h", "--reason", "the bank: books nothing"];
    assert!(refundd(config.path(), &pause).status.success());
    for args in [&["log"][..], &["log", "--json"]] {
        let said = text(&refundd(config.path(), args));
        assert!(!said.contains("+00:00") && said.contains("until"), "{said}");
        assert!(said.contains("\"the bank: books nothing\""), "{said}");
    }
}

#[tokio::test]
async fn review_show_tells_the_evidence_in_words_and_programs_ask_for_json() {
    let scratch = Scratch::with_refunds(1).await;
    scratch.to_review("true").await;
    let config = file(&scratch.file("a", UNLIMITED));
    let said = text(&refundd(config.path(), &["review", "show", "R-1"]));
    for words in
        ["Refund 1, R-1, is review", "amount ", "saved for channel `acme`", "refundd review settle 1@"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains('{') && !said.contains("null"), "{said}");
    let json = refundd(config.path(), &["review", "show", "R-1", "--json"]);
    assert!(text(&json).contains("\"refund_ref\": \"R-1\""), "{}", text(&json));
}

#[tokio::test]
async fn a_list_of_a_channel_that_was_never_run_is_not_found() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    for list in ["events", "refunds", "proposals", "changes"] {
        let answer = node.get(&format!("/v1/{list}?channel=nope")).await;
        assert_eq!(answer.status, 404, "{list}: {answer:?}");
        assert_eq!(answer.json()["type"], "urn:refundd:problem:no-such-channel", "{list}: {answer:?}");
        assert!(answer.text.contains("`nope`"), "{list}: {answer:?}");
        assert_eq!(node.get(&format!("/v1/{list}?channel=acme")).await.status, 200, "{list}");
    }
    for page in ["events", "review", "approvals"] {
        assert_eq!(node.get(&format!("/{page}?channel=nope")).await.status, 404, "{page}");
        assert_eq!(node.get(&format!("/{page}?channel=acme")).await.status, 200, "{page}");
    }
    let config = file(&scratch.file("a", UNLIMITED));
    let proposals = refundd(config.path(), &["review", "proposals", "--channel", "nope"]);
    assert!(!proposals.status.success() && text(&proposals).contains("nope"), "{}", text(&proposals));
    node.stop().await;
}

#[tokio::test]
async fn a_refund_is_shown_by_the_name_that_review_lists_and_another_version_is_told() {
    let scratch = Scratch::with_refunds(1).await;
    scratch.to_review("true").await;
    let config = file(&scratch.file("a", UNLIMITED));
    let show = |name: &str| {
        let output = refundd(config.path(), &["show", name]);
        (output.status.code(), text(&output))
    };
    for name in ["1@3", "R-1@3"] {
        let (code, said) = show(name);
        assert!(code == Some(0) && said.starts_with("Refund 1, R-1, is review"), "{name}: {said}");
        assert!(!said.contains("not at version"), "{name}: {said}");
    }
    let (code, said) = show("1@2");
    assert!(code == Some(0) && said.contains("Refund 1, R-1, is review"), "{said}");
    assert!(said.contains("refund 1 is not at version 2: it is at version 3 now"), "{said}");
    assert_eq!(show("2@1").0, Some(1));
}

#[test]
fn check_warns_of_a_file_without_a_channel() {
    let servers = "[postgres]\nurl = \"postgres://localhost\"\n[redis]\nurl = \"redis://localhost\"\n";
    let channel = "[channel.acme]\nendpoint = \"http://localhost/\"\nlimits = []\n";
    let warns = |lines: &str| {
        let output = refundd(file(&format!("{servers}{lines}")).path(), &["check"]);
        assert!(output.status.success(), "{}", text(&output));
        text(&output).contains("Warning: no `[channel.NAME]`: a node with this file sends nothing.")
    };
    assert!(warns(""));
    assert!(!warns(channel));
}

//! A decision takes the names that `refundd show` takes.

use std::io::Write as _;
use std::process::{Command, Stdio};

use refundd::refund::{RefundId, State};
use serde_json::Value;

use crate::cli::{file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::Scratch;

#[tokio::test]
async fn a_refund_is_decided_by_its_ref_and_a_name_of_several_refunds_decides_nothing() {
    let scratch = Scratch::with_refunds(5).await;
    // The ref of refund 6 is the id of refund 1. Refunds 7 and 8 belong to one payment.
    scratch
        .sql(
            "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
             values ('1', 'acme', 'P-x', 5, 'EUR'), ('T-1', 'acme', 'P-two', 5, 'EUR'), ('T@9', 'acme', 'P-two', 5, 'EUR')",
        )
        .await;
    scratch.to_review("id <> 5").await;
    let config = file(&scratch.file("a", UNLIMITED));
    let state = async |id: i64| scratch.store.refund(RefundId(id)).await.unwrap().unwrap().state;
    let settle = |name: &str, next: &str| {
        let output = refundd(config.path(), &["review", "settle", name, "--as", next, "--reason", "r"]);
        (output.status.code(), text(&output))
    };
    for (name, id) in [("R-2@3", 2), ("R-3@3", 3), ("P-4@3", 4), ("T@9@3", 8)] {
        let (code, said) = settle(name, "succeeded");
        assert_eq!((code, state(id).await), (Some(0), State::Succeeded), "{name}: {said}");
    }
    for (name, words) in [
        ("1", "`1` names several refunds, such as 6@3 (1), 1@3 (R-1): name each by its id and the version"),
        ("P-two@3", "`P-two@3` names several refunds"),
        (
            "R-9",
            "no refund has the ref, id, request id, bank reference or payment ref `R-9`; nothing was changed",
        ),
        ("R-1@2", "refund 1 has changed"),
        ("4711@3", "there is no refund 4711"),
    ] {
        let (code, said) = settle(name, "succeeded");
        assert!(code == Some(1) && said.contains(words), "{name}: {said}");
    }
    assert_eq!(
        (state(1).await, state(6).await, state(7).await),
        (State::Review, State::Review, State::Review)
    );
    // An id with its version is what the lists show. But both refunds wait for a decision at this version.
    let (code, said) = settle("1@3", "failed");
    assert!(
        code == Some(1) && said.contains("also a name of refund 6 (1), which is review at version 3"),
        "{said}"
    );
    let request_id = scratch.text("select request_id::text from refundd.refunds where id = 6").await;
    assert!(said.contains(&format!("by its request id, such as {request_id}@3")), "{said}");
    assert_eq!(settle(&format!("{request_id}@3"), "succeeded").0, Some(0));
    // A person who looked at refund 6 before its decision means that refund by `1@3`.
    let (code, said) = settle("1@3", "failed");
    assert!(code == Some(1) && said.contains("refund 6 (1), which is succeeded at version"), "{said}");
    let request_id = scratch.text("select request_id::text from refundd.refunds where id = 1").await;
    assert_eq!(settle(&format!("{request_id}@3"), "failed").0, Some(0));
    assert_eq!((state(1).await, state(6).await), (State::Failed, State::Succeeded));
    let shown = text(&refundd(config.path(), &["review", "show", "R-2", "--json"]));
    assert!(shown.contains("\"refund_ref\": \"R-2\"") && shown.contains("\"decided\""), "{shown}");
}

#[tokio::test]
async fn a_refused_name_stops_no_other_and_a_list_of_request_ids_is_decided_where_refs_are_numbers() {
    let scratch = Scratch::with_refunds(3).await;
    // The refs of refunds 4 and 5 are the ids of refunds 1 and 2.
    scratch
        .sql(
            "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
             values ('1', 'acme', 'P-x', 5, 'EUR'), ('2', 'acme', 'P-y', 5, 'EUR')",
        )
        .await;
    scratch.to_review("true").await;
    let config = file(&scratch.file("a", UNLIMITED));
    let args = ["review", "settle", "1@3", "R-9@3", "R-3@3", "--as", "failed", "--reason", "r"];
    let settled = refundd(config.path(), &args);
    assert_eq!(settled.status.code(), Some(1), "{}", text(&settled));
    for part in [
        "refundd: `1@3` is refund 1, and also a name of refund 4 (1), which is review at version 3",
        "refundd: no refund has the ref, id, request id, bank reference or payment ref `R-9@3`",
        "Refund 3 (R-3) is failed now",
        "1 of 3 decided, 0 proposed.",
    ] {
        assert!(text(&settled).contains(part), "{part}: {}", text(&settled));
    }
    assert_eq!((scratch.count(State::Failed).await, scratch.count(State::Review).await), (1, 4));
    // The runbook makes these names with jq.
    let listed = refundd(config.path(), &["review", "--json"]);
    let name = |line: &str| {
        let refund: Value = serde_json::from_str(line).unwrap();
        format!("{}@{}\n", refund["request_id"].as_str().unwrap(), refund["version"])
    };
    let names: String = String::from_utf8_lossy(&listed.stdout).lines().map(name).collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_refundd"))
        .arg("--config")
        .arg(config.path())
        .args(["review", "settle", "-", "--as", "succeeded", "--reason", "on the statement", "--by", "ann"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    command.stdin.take().unwrap().write_all(names.as_bytes()).unwrap();
    let settled = command.wait_with_output().unwrap();
    assert_eq!(settled.status.code(), Some(0), "{names}: {}", text(&settled));
    assert!(text(&settled).contains("4 of 4 decided, 0 proposed."), "{}", text(&settled));
    assert_eq!(scratch.count(State::Succeeded).await, 4);
}

#[tokio::test]
async fn a_number_that_only_looks_like_an_id_ends_no_refund_and_every_name_needs_a_version() {
    let scratch = Scratch::with_refunds(2).await;
    scratch.to_review("true").await;
    let config = file(&scratch.file("a", UNLIMITED));
    let settle = |name: &str| {
        let args = ["review", "settle", name, "--as", "succeeded", "--reason", "on the statement"];
        let output = refundd(config.path(), &args);
        (output.status.code(), text(&output))
    };
    // Producers use such texts as refs; these are of no refund, or of one that is not saved yet.
    for name in ["00000001", "+1", "00000001@3", "+1@3"] {
        let (code, said) = settle(name);
        assert!(code == Some(1) && said.contains("no refund has the ref, id"), "{name}: {said}");
    }
    for (name, id) in [("1", 1), ("R-2", 2)] {
        let (code, said) = settle(name);
        let words = format!("name the version of each refund that you decided on, such as {id}@7");
        assert!(code == Some(1) && said.contains(&words), "{name}: {said}");
        assert!(said.contains("nothing was changed"), "{name}: {said}");
    }
    assert_eq!(scratch.count(State::Review).await, 2);
    for name in ["1@3", "R-2@3"] {
        let (code, said) = settle(name);
        assert_eq!(code, Some(0), "{name}: {said}");
    }
}

#[tokio::test]
async fn a_ready_refund_that_is_to_be_cancelled_by_a_decision_points_to_the_command() {
    let scratch = Scratch::with_refunds(1).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let settled =
        refundd(config.path(), &["review", "settle", "R-1@1", "--as", "cancelled", "--reason", "r"]);
    assert_eq!(settled.status.code(), Some(1));
    let words =
        "refund 1 is ready, so nobody needs to decide about it; to withdraw it: refundd cancel R-1 --reason";
    assert!(text(&settled).contains(words), "{}", text(&settled));
}

#[tokio::test]
async fn a_decision_keeps_the_banks_reference_and_is_refused_with_one_of_another_refund() {
    let scratch = Scratch::with_refunds(3).await;
    scratch.to_review("true").await;
    scratch.sql("update refundd.refunds set bank_ref = 'B-3' where id = 3").await;
    let config = file(&scratch.file("a", UNLIMITED));
    let settle = |name: &str, next: &str, reference: &str| {
        let args =
            ["review", "settle", name, "--as", next, "--reason", "on the statement", "--bank-ref", reference];
        let output = refundd(config.path(), &args);
        (output.status.code(), text(&output))
    };
    let (code, said) = settle("1@3", "failed", "B-1");
    assert!(code == Some(2) && said.contains("--bank-ref goes with --as succeeded"), "{said}");
    let (code, said) = settle("1@3", "succeeded", "B-1");
    assert!(code == Some(0) && said.contains("Its bank reference is B-1."), "{said}");
    let (code, said) = settle("2@3", "succeeded", "B-1");
    assert!(
        code == Some(1)
            && said.contains(
                "refund 2 stays as it is; another refund of its channel has the bank reference B-1"
            )
            && said.contains("nothing was changed")
            && !said.contains("is succeeded now"),
        "{said}"
    );
    let decided = "select count(*) from refundd.attempts where refund_id = 2 and kind = 'manual'";
    assert_eq!(scratch.number(decided).await, 0);
    // A decision that another person must approve keeps no reference, and is refused all the same.
    scratch.sql("insert into refundd.second_person (above, node) values ('{\"EUR\": 0}', 'a')").await;
    let (code, said) = settle("2@3", "succeeded", "B-1");
    assert!(code == Some(1) && said.contains("refund 2 stays as it is"), "{said}");
    assert_eq!(scratch.number("select count(*) from refundd.proposals").await, 0);
    let (code, said) = settle("2@3", "succeeded", "B-2");
    assert!(code == Some(0) && said.contains("The bank reference is not kept with a proposal"), "{said}");
    scratch.sql("delete from refundd.second_person").await;
    let (code, said) = settle("3@3", "succeeded", "B-4");
    assert!(code == Some(1) && said.contains("it has the bank reference B-3 already"), "{said}");
    let all = "select string_agg(state || ' ' || coalesce(bank_ref, 'none'), ', ' order by id) from refundd.refunds";
    assert_eq!(scratch.text(all).await, "succeeded B-1, review none, succeeded B-3");
    let line =
        "select node || ' ' || code || ' ' || message from refundd.attempts where code = 'bank_ref_noted'";
    assert_eq!(scratch.text(line).await, "ann bank_ref_noted bank reference B-1");
    let event =
        "select who || ' ' || (after ->> 'bank_ref') from refundd.events where kind = 'bank_ref_noted'";
    assert_eq!(scratch.text(event).await, "ann B-1");
    let shown = text(&refundd(config.path(), &["show", "B-1"]));
    assert!(shown.starts_with("Refund 1, R-1, is succeeded"), "{shown}");
}

#[tokio::test]
async fn a_reference_that_a_person_mistyped_is_noted_anew_and_one_of_the_bank_stays() {
    let scratch = Scratch::with_refunds(3).await;
    scratch.to_review("true").await;
    scratch.sql("update refundd.refunds set bank_ref = 'B-3' where id = 3").await;
    let config = file(&scratch.file("a", UNLIMITED));
    let note = |name: &str, reference: &str| {
        let args = ["review", "settle", name, "--as", "succeeded", "--reason", "mistyped", "--by", "ann"];
        let output = refundd(config.path(), &[&args[..], &["--bank-ref", reference]].concat());
        (output.status.code(), text(&output))
    };
    let reference = async |id: i64| {
        scratch.text(&format!("select bank_ref || '@' || version from refundd.refunds where id = {id}")).await
    };
    // The reference of refund 2.
    assert_eq!(note("1@3", "B-2").0, Some(0));
    // Version 4 is that of the decision, before its note.
    for seen in ["1@3", "1@4"] {
        let (code, said) = note(seen, "B-1");
        assert!(
            code == Some(1) && said.contains("refund 1 has changed: it is succeeded at version 5 now"),
            "{seen}: {said}"
        );
    }
    assert_eq!(reference(1).await, "B-2@5");
    let (code, said) = note("1@5", "B-1");
    assert!(code == Some(0) && said.contains("Its bank reference is B-1; before: B-2."), "{said}");
    assert_eq!(reference(1).await, "B-1@6");
    let line = "select node || ' ' || number || ' ' || message from refundd.attempts where code = 'bank_ref_noted' order by id desc limit 1";
    assert_eq!(scratch.text(line).await, "ann 5 bank reference B-1, before B-2: mistyped");
    let event =
        "select concat_ws(' ', who, before ->> 'bank_ref', after ->> 'bank_ref', reason) from refundd.events
                  where kind = 'bank_ref_noted' order by event_id desc limit 1";
    assert_eq!(scratch.text(event).await, "ann B-2 B-1 mistyped");
    // Two people who saw the same version do not undo each other's correction.
    let (code, said) = note("1@5", "B-9");
    assert!(code == Some(1) && said.contains("refund 1 has changed"), "{said}");
    // Refund 2 can have its reference now, and keeps it.
    assert_eq!(note("2@3", "B-2").0, Some(0));
    let (code, said) = note("1@6", "B-2");
    assert!(
        code == Some(1)
            && said.contains(
                "refund 1 stays as it is; another refund of its channel has the bank reference B-2"
            ),
        "{said}"
    );

    let stays = |name: &str| {
        let (code, said) = note(name, "B-9");
        assert!(code == Some(1) && said.contains("by an answer of the bank"), "{name}: {said}");
        assert!(said.contains("B-9 was not kept; nothing was changed"), "{name}: {said}");
    };
    assert_eq!(note("3@3", "B-3").0, Some(0));
    stays("3@4");
    // A late answer of the bank names what a person noted.
    scratch
        .sql(
            "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, outcome, status, code, message)
             values (1, 'acme', 'send', 1, 1, 'a#1', now(), 'succeeded', 200, 'succeeded', 'HTTP 200; bank reference B-1')",
        )
        .await;
    stays("1@7");
    assert_eq!((reference(1).await, reference(3).await), ("B-1@7".to_owned(), "B-3@4".to_owned()));
}

//! Where refs are numbers, the ref of one refund may be the id of another: commands take neither for the other.

use super::{file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::Scratch;

/// Refunds `R-1` to `R-3` of channel `acme`. The ref of refund 4 is the id of refund 1, and the ref of refund 5 is its own id.
async fn scratch() -> Scratch {
    let scratch = Scratch::with_refunds(3).await;
    for channel in ["globex", "initech"] {
        scratch.publish(channel).await;
    }
    scratch
        .sql(
            "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
             values ('1', 'globex', 'P-x', 5, 'EUR'), ('5', 'globex', 'P-y', 5, 'EUR')",
        )
        .await;
    assert_eq!(scratch.text("select id || ' ' || refund_ref from refundd.refunds where id = 5").await, "5 5");
    scratch
}

async fn changed(scratch: &Scratch) -> String {
    let ids = "select coalesce(string_agg(id::text, ' ' order by id), '') from refundd.refunds where state = 'cancelled' or channel = 'initech'";
    scratch.text(ids).await
}

#[tokio::test]
async fn a_ref_that_is_also_the_id_of_another_refund_is_cancelled_or_moved_from_a_file_alone() {
    for (command, done) in
        [(&["cancel"][..], "cancelled"), (&["move", "--from", "globex", "--to", "initech"][..], "moved")]
    {
        let scratch = scratch().await;
        let config = file(&scratch.file("a", UNLIMITED));
        let run = |args: &[&str]| {
            let output = refundd(config.path(), &[command, args].concat());
            (output.status.code(), text(&output))
        };
        for manner in ["--dry-run", "--reason=x"] {
            let (code, said) = run(&["5", "1", manner]);
            assert_eq!(code, Some(1), "{said}");
            for words in [
                "`1` names refund 4 (1) with the request id",
                "and refund 1 (R-1) with",
                "nothing was changed",
            ] {
                assert!(said.contains(words), "{words}: {said}");
            }
            assert!(!said.contains("`5`"), "a refund may have its own id as its ref: {said}");
        }
        assert_eq!(changed(&scratch).await, "");
        // No refund has the ref 2.
        let (code, said) = run(&["2", "--reason=x"]);
        let words =
            "2: no refund has this ref, and ids are not taken here: look up the refund 2 to see its ref";
        assert!(code == Some(1) && said.contains(words), "{said}");

        let refs = file("1\n5\n");
        let path = refs.path().to_str().unwrap();
        let (code, said) = run(&["--file", path, "--dry-run"]);
        assert!(code == Some(0) && said.contains(&format!("would be {done}: refund 4 (1)\n")), "{said}");
        let (code, said) = run(&["--file", path, "--reason=x"]);
        assert_eq!(code, Some(0), "{said}");
        let list = format!("\n{done}: refund 4 (1)\n{done}: refund 5 (5)\n");
        assert!(said.contains(&list), "{said}");
        assert_eq!(changed(&scratch).await, "4 5");
    }
}

#[tokio::test]
async fn the_first_refunds_that_refs_named_are_shown_and_the_others_are_counted() {
    let scratch = Scratch::with_refunds(23).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let refs: Vec<String> = (1..=23).map(|n| format!("R-{n}")).collect();
    let refs = file(&refs.join("\n"));
    let output =
        refundd(config.path(), &["cancel", "--file", refs.path().to_str().unwrap(), "--reason", "x"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with("23 cancelled\n"), "{said}");
    assert!(said.ends_with("cancelled: refund 20 (R-20)\nand 3 more\n"), "{said}");
}

#[tokio::test]
async fn the_log_says_which_refund_it_is_about_and_refuses_a_name_of_two() {
    let scratch = scratch().await;
    let config = file(&scratch.file("a", UNLIMITED));
    let run = |args: &[&str]| {
        let output = refundd(config.path(), &[&["log"], args].concat());
        (output.status.code(), text(&output))
    };
    for args in [&["1"][..], &["1", "--json"]] {
        let (code, said) = run(args);
        assert_eq!(code, Some(1), "{said}");
        for words in ["`1` names refund 4 (1)", "and refund 1 (R-1)", "by its request id"] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }
    let request_id = scratch.text("select request_id::text from refundd.refunds where id = 1").await;
    for (name, title) in [
        ("R-1", "refund 1 (R-1)"),
        (request_id.as_str(), "refund 1 (R-1)"),
        ("4", "refund 4 (1)"),
        ("5", "refund 5 (5)"),
    ] {
        let (code, said) = run(&[name]);
        assert_eq!(code, Some(0), "{name}: {said}");
        assert!(said.starts_with(&format!("Events of {title}:\n")), "{name}: {said}");
    }
    let (code, said) = run(&["R-1", "--json"]);
    assert!(code == Some(0) && !said.contains("Events of"), "{said}");
    // Such a text is no id as refundd writes it.
    assert_eq!(run(&["002"]).0, Some(1));
}

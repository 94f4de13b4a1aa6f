//! `refundd import` of a file whose refunds are saved already, or may be.

use sqlx::{Connection, Executor};

use crate::cli::{arguments, csv_file, file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::Scratch;

/// Lines of channel `acme`, `N-2` to `N-{last}`: each has the number of its line in the file.
fn lines_to(last: u32) -> Vec<String> {
    (2..=last).map(|n| format!("N-{n},acme,P-{n},5,EUR")).collect()
}

fn csv_of(lines: &[String]) -> tempfile::NamedTempFile {
    csv_file(&lines.iter().map(String::as_str).collect::<Vec<_>>())
}

/// From now on, Postgres refuses this ref with this error.
async fn refuse(scratch: &Scratch, refund_ref: &str, code: &str) {
    scratch
        .sql(&format!(
            "create function public.refuses() returns trigger language plpgsql as
             $$ begin raise exception 'somebody has a rule' using errcode = '{code}'; end $$"
        ))
        .await;
    scratch
        .sql(&format!(
            "create trigger refuses before insert on refundd.refunds for each row when (new.refund_ref = '{refund_ref}')
             execute function public.refuses()"
        ))
        .await;
}

/// A person who reads "saved before" takes such a refund for paid.
#[tokio::test]
async fn a_repeat_of_a_refund_that_is_not_sent_again_is_named() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    let config = file(&scratch.file("a", UNLIMITED));
    let strict = file(&scratch.file("a", &format!("{UNLIMITED}max_amount_minor = {{ EUR = 4 }}\n")));
    let csv = csv_of(&lines_to(4));
    let path = csv.path().to_str().unwrap();
    let first = refundd(config.path(), &["import", path]);
    assert_eq!(String::from_utf8_lossy(&first.stdout), "3 saved, 0 were saved before, 0 refused\n");
    let cancelled = refundd(config.path(), &["cancel", "N-3", "--reason", "paid in cash"]);
    assert!(cancelled.status.success(), "{}", text(&cancelled));

    let dead =
        "; 1 of those saved before is cancelled or failed, and is not sent again: line 3 (N-3, cancelled)\n";
    let saved = format!("0 saved, 3 were saved before, 0 refused{dead}");
    let would =
        format!("0 would be saved, 3 were saved before, 0 would be refused; nothing was changed{dead}");
    for (config, args, says) in [
        (&config, &["import", path][..], &saved),
        (&config, &["import", path, "--dry-run"], &would),
        // Its lines are looked up, because today's rules refuse them.
        (&strict, &["import", path], &saved),
    ] {
        let again = refundd(config.path(), args);
        assert!(again.status.success() && text(&again).starts_with(says), "{}", text(&again));
    }
    let enqueue = "enqueue --refund-ref N-3 --channel acme --payment-ref P-3 --amount-minor 5 --currency EUR";
    let again = refundd(config.path(), &arguments(enqueue));
    let says = "Already saved as refund 2, which is cancelled: it is not sent again.\n";
    assert!(again.status.success() && text(&again).contains(says), "{}", text(&again));
}

/// An operator who reads "refused" pays these lines in another way.
#[tokio::test]
async fn a_line_that_is_saved_is_not_refused_after_the_rules_became_stricter() {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.sql(r#"update refundd.channels set settings = '{"card_numbers": "accepted"}'"#).await;
    let lax = format!("{UNLIMITED}max_amount_minor = {{ EUR = 5000 }}\ncard_numbers = \"accepted\"\n");
    let strict = format!("{UNLIMITED}max_amount_minor = {{ EUR = 1000 }}\ncard_numbers = \"accepted\"\n");
    let gone = UNLIMITED.replace("[channel.acme]", "[channel.other]");
    let [lax, strict, gone] = [&lax, &strict, &gone].map(|channels| file(&scratch.file("a", channels)));
    let saved = ["N-2,acme,P-2,3000,EUR", "N-3,acme,4111 1111 1111 1111,5,EUR"];
    let csv = csv_file(&saved);
    let path = csv.path().to_str().unwrap();
    let first = refundd(lax.path(), &["import", path]);
    assert!(text(&first).contains("2 saved, 0 were saved before, 0 refused"), "{}", text(&first));
    for config in [&strict, &gone] {
        let again = refundd(config.path(), &["import", path, "--expect", "count=2,EUR=3005"]);
        assert!(again.status.success(), "{}", text(&again));
        assert!(text(&again).starts_with("0 saved, 2 were saved before, 0 refused\n"), "{}", text(&again));
    }
    // A new line above the bound, and other content, are refused as ever.
    let more = csv_file(&[saved[0], "N-4,acme,P-4,3000,EUR", "N-2,acme,P-2,3001,EUR", "N-5,acme,P-5,7,EUR"]);
    let path = more.path().to_str().unwrap();
    for (args, says) in [
        (
            &["import", "--dry-run", path][..],
            "1 would be saved, 1 were saved before, 2 would be refused; nothing was changed\n",
        ),
        (&["import", path], "1 saved, 1 were saved before, 2 refused\n"),
    ] {
        let output = refundd(strict.path(), args);
        let said = text(&output);
        assert!(output.status.code() == Some(1) && said.starts_with(says), "{said}");
        assert!(said.contains("line 3: amount_minor 3000: is more than"), "{said}");
        assert!(said.contains("line 4: amount_minor 3001: is more than"), "{said}");
    }
    let enqueue = |refund_ref: &str| {
        let args = format!(
            "enqueue --refund-ref {refund_ref} --channel acme --payment-ref P-2 --amount-minor 3000 --currency EUR"
        );
        refundd(strict.path(), &arguments(&args))
    };
    let again = enqueue("N-2");
    assert!(again.status.success() && text(&again).contains("Already saved as refund 1"), "{}", text(&again));
    assert_eq!(enqueue("N-9").status.code(), Some(1));
}

#[tokio::test]
async fn after_a_commit_that_failed_the_import_counts_the_other_one_under_way() {
    let scratch = Scratch::with_refunds(0).await;
    let config = file(&scratch.file("a", UNLIMITED));
    // Not about the row: the disk is full for the first commit.
    refuse(&scratch, "N-2", "53100").await;
    let csv = csv_of(&lines_to(10_001));
    let path = csv.path().to_str().unwrap();
    let failed = refundd(config.path(), &["import", path]);
    assert_eq!(failed.status.code(), Some(1), "{}", text(&failed));
    assert_eq!(
        String::from_utf8_lossy(&failed.stdout),
        "at least 5000 saved, 0 were saved before, 0 refused; up to 5000 more may be saved\n"
    );
    assert!(text(&failed).contains("import the whole file again"), "{}", text(&failed));
    assert_eq!(scratch.number("select count(*) from refundd.refunds").await, 5_000);
    scratch.sql("drop trigger refuses on refundd.refunds").await;
    let again = refundd(config.path(), &["import", path]);
    assert_eq!(String::from_utf8_lossy(&again.stdout), "5000 saved, 5000 were saved before, 0 refused\n");
}

#[tokio::test]
async fn a_line_that_only_postgres_refuses_is_named_and_spoils_no_other() {
    let scratch = Scratch::with_refunds(0).await;
    let config = file(&scratch.file("a", UNLIMITED));
    refuse(&scratch, "N-7", "23514").await;
    let csv = csv_of(&lines_to(6_001));
    let output = refundd(config.path(), &["import", csv.path().to_str().unwrap()]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("5999 saved, 0 were saved before, 1 refused\n"), "{said}");
    assert!(
        said.contains("line 7: the database refuses it: ") && said.contains("somebody has a rule"),
        "{said}"
    );
    let around = "select string_agg(refund_ref, ' ' order by refund_ref) from refundd.refunds where refund_ref in ('N-6', 'N-7', 'N-8', 'N-6001')";
    assert_eq!(scratch.text(around).await, "N-6 N-6001 N-8");
}

#[tokio::test]
async fn a_line_that_another_transaction_is_saving_is_named_and_spoils_no_other() {
    let scratch = Scratch::with_refunds(0).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let mut holder = scratch.connect().await;
    let mut producer = holder.begin().await.unwrap();
    producer
        .execute(
            "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
             values ('N-7', 'acme', 'P-7', 5, 'EUR')",
        )
        .await
        .unwrap();
    let csv = csv_of(&lines_to(6_001));
    let path = csv.path().to_str().unwrap();
    let output = refundd(config.path(), &["import", path]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.starts_with("at least 5999 saved, 0 were saved before, 0 refused; up to 1 more may be saved\n"),
        "{said}"
    );
    assert!(said.contains("not saved for now: 1 line;"), "{said}");
    assert!(said.contains("line 7: was not saved, because another transaction held it"), "{said}");
    producer.rollback().await.unwrap();
    let again = refundd(config.path(), &["import", path]);
    assert!(again.status.success(), "{}", text(&again));
    assert_eq!(String::from_utf8_lossy(&again.stdout), "1 saved, 5999 were saved before, 0 refused\n");
}

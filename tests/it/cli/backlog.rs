//! A whole backlog is changed as far as the person saw it: what comes into the channel meanwhile stays.

use std::process::Command;

use refundd::refund::RefundId;
use refundd::store::Move;
use sqlx::Executor;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use super::file;
use crate::dispatch::UNLIMITED;
use crate::harness::Scratch;
use crate::harness::terminal::agreed_on_a_terminal;

/// Moves this refund as another person would.
async fn moved(scratch: &Scratch, id: i64, from: &str, to: &str) {
    let who_and_why = "bob".to_owned();
    let order = Move { from: from.to_owned(), to: to.to_owned(), who: who_and_why.clone(), why: who_and_why };
    assert_eq!(scratch.store.move_never_sent(&[(RefundId(id), None)], &order).await.unwrap().len(), 1);
}

/// Ids 1 to 1,100 are shown. Id 1 leaves the channel while a person reads. Id 1,101 is moved into it, id 1,102 is saved by a
/// transaction that ends late, and the id of the newest refund that is shown is higher: 1,103.
async fn what_comes_while_a_person_reads_stays(command: &[&str], done: &str, went: &str) {
    let scratch = Scratch::with_refunds(1_100).await;
    for channel in ["globex", "initech"] {
        scratch.publish(channel).await;
    }
    scratch.insert("globex", "G-", 1).await;
    let mut late = scratch.connect().await;
    late.execute("begin").await.unwrap();
    let save = "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
                values ('late', 'acme', 'P-late', 1000000, 'EUR')";
    late.execute(save).await.unwrap();
    scratch.insert("acme", "N-", 1).await;

    let config = file(&scratch.file("a", UNLIMITED));
    let mut refundd = Command::new(env!("CARGO_BIN_EXE_refundd"));
    refundd.arg("--config").arg(config.path()).args(command).args(["--reason", "x"]).env("USER", "ann");
    let mut meanwhile = async || {
        moved(&scratch, 1, "acme", "globex").await;
        moved(&scratch, 1_101, "globex", "acme").await;
        late.execute("commit").await.unwrap();
    };
    let (status, said) =
        block_in_place(|| agreed_on_a_terminal(refundd, || Handle::current().block_on(meanwhile())));

    assert!(!status.success(), "one of the refunds of the sums waits in another channel: {said}");
    for words in [
        &format!("1 refund of these sums was not {done}"),
        "1 of them still waits",
        "EUR: 1101 refunds, 715651 in minor units = 7,156.51 EUR in all, can be",
        &format!("1100 {done}"),
        "EUR: 1100 refunds, 715550 in minor units = 7,155.50 EUR",
        "2 refunds of channel acme can still be",
        "repeat the command",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let others = format!(
        "select string_agg(id || ' ' || channel || ' ' || state, ', ' order by id) from refundd.refunds where not ({went})"
    );
    assert_eq!(scratch.text(&others).await, "1 globex ready, 1101 acme ready, 1102 acme ready");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_into_a_channel_while_a_person_reads_the_sums_is_not_cancelled() {
    what_comes_while_a_person_reads_stays(
        &["cancel", "--channel", "acme"],
        "cancelled",
        "state = 'cancelled'",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_into_a_channel_while_a_person_reads_the_sums_is_not_moved() {
    what_comes_while_a_person_reads_stays(
        &["move", "--from", "acme", "--to", "initech"],
        "moved",
        "channel = 'initech'",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_code_0_means_that_all_refunds_of_the_expected_totals_went_and_none_is_claimed_by_a_node() {
    for (command, done) in [
        (&["cancel", "--channel", "acme"][..], "cancelled"),
        (&["move", "--from", "acme", "--to", "globex"], "moved"),
    ] {
        let scratch = Scratch::with_refunds(2).await;
        scratch.publish("globex").await;
        let config = file(&scratch.file("a", UNLIMITED));
        let mut refundd = Command::new(env!("CARGO_BIN_EXE_refundd"));
        refundd.arg("--config").arg(config.path()).args(command).args(["--reason", "x"]);
        refundd.args(["--expect", "count=2,EUR=203"]).env("USER", "ann");
        let claim = async || scratch.lease("id = 1", "attempts = 1").await;
        let (status, said) =
            block_in_place(|| agreed_on_a_terminal(refundd, || Handle::current().block_on(claim())));

        assert_eq!(status.code(), Some(1), "{said}");
        for words in [&format!("1 {done}"), &format!("1 refund of these sums was not {done}")] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert!(!said.contains("still wait"), "{said}");
    }
}

/// A statement fails after the person agreed.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_breaks_off_is_repeated_with_the_totals_of_a_new_dry_run_if_it_expects_some() {
    for (expects, go_on) in
        [(&["--expect", "count=2,EUR=203"][..], "look again with --dry-run"), (&[], "repeat the command")]
    {
        let scratch = Scratch::with_refunds(2).await;
        let config = file(&scratch.file("a", UNLIMITED));
        let mut refundd = Command::new(env!("CARGO_BIN_EXE_refundd"));
        refundd.arg("--config").arg(config.path()).args(["cancel", "--channel", "acme", "--reason", "x"]);
        refundd.args(expects).env("USER", "ann");
        let breaks = async || {
            scratch.sql("alter table refundd.refunds rename to elsewhere").await;
        };
        let (status, said) =
            block_in_place(|| agreed_on_a_terminal(refundd, || Handle::current().block_on(breaks())));

        assert_eq!(status.code(), Some(1), "{said}");
        let words = format!("0 refunds were cancelled so far; {go_on}");
        assert!(said.contains(&words), "{words}: {said}");
    }
}

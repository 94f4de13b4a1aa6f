//! A channel whose credentials become those of another account at the same address. A bank knows a request id within one
//! account, so the other account would say that it has none of the refunds, and would pay each once more.

use playground::bank::Step;
use refundd::refund::State;

use super::{RESENDS, age, age_the_move, asks, is, reasons};
use crate::harness::{Scratch, TestNode};

/// The same channels, with `acme` under this account.
fn under(account: &str, channels: &str) -> String {
    channels.replace("[channel.acme]\n", &format!("[channel.acme]\naccount = \"{account}\"\n"))
}

/// The reason of the refunds in review that were sent as `merchant-17`, when the channel is `merchant-18`.
fn other_account(scratch: &Scratch) -> String {
    let url = format!("http://{}/acme/refunds", scratch.bank.address());
    format!(
        "address_changed: it may have been sent to {url} (account merchant-17), and the channel's bank is at {url} (account \
         merchant-18) now; ask the first one what became of it, and decide"
    )
}

#[tokio::test]
async fn what_one_account_may_have_executed_is_not_asked_about_under_another() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", (0..5).map(|_| Step::pays_but_says_500()));
    scratch.bank.next("other", [Step::pays_but_says_500()]);
    // As the bank would answer the other account.
    scratch.bank.then_inquiries("acme", Some(Step::answers(404, "{}")));
    let channels = asks(&scratch);
    let node = TestNode::start(&scratch, "a", &under("merchant-17", &channels)).await;
    scratch.insert("acme", "R-", 5).await;
    scratch.insert("other", "O-", 1).await;
    is(&scratch, State::Unknown, 6).await;
    node.daemon.reload(scratch.config("a", &under("merchant-18", &channels))).await.unwrap();
    age(&scratch).await;
    is(&scratch, State::Succeeded, 1).await;
    scratch.insert("acme", "S-", 1).await;
    is(&scratch, State::Succeeded, 2).await;
    assert_eq!(scratch.count(State::Unknown).await, 5, "shown only after a minute");
    age_the_move(&scratch).await;
    is(&scratch, State::Review, 5).await;
    assert_eq!(reasons(&scratch).await, other_account(&scratch));
    let ledger = scratch.bank.ledger();
    assert_eq!(ledger.inquiries("acme").count(), 0);
    assert_eq!(ledger.repeated(), []);
    node.stop().await;
}

#[tokio::test]
async fn what_one_account_may_have_executed_is_not_sent_again_under_another() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", (0..5).map(|_| Step::pays_but_says_500()));
    // They wait for their next send until the other account is in force.
    let resends = RESENDS.replace("base = \"1s\", cap = \"1s\"", "base = \"1h\", cap = \"1h\"");
    let node = TestNode::start(&scratch, "a", &under("merchant-17", &resends)).await;
    scratch.insert("acme", "R-", 5).await;
    is(&scratch, State::Unknown, 5).await;
    // The wait is drawn between zero and an hour.
    scratch
        .sql("update refundd.refunds set due_at = now() + interval '1 hour' where state = 'unknown'")
        .await;
    node.daemon.reload(scratch.config("a", &under("merchant-18", &resends))).await.unwrap();
    scratch.sql("update refundd.refunds set due_at = now()").await;
    // What is sent again goes before what is new.
    scratch.insert("acme", "S-", 1).await;
    is(&scratch, State::Succeeded, 1).await;
    age_the_move(&scratch).await;
    is(&scratch, State::Review, 5).await;
    assert_eq!(reasons(&scratch).await, other_account(&scratch));
    assert_eq!(scratch.bank.ledger().repeated(), []);
    node.stop().await;
}

#[tokio::test]
async fn a_first_name_is_another_address_and_the_check_says_so_before() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", (0..5).map(|_| Step::pays_but_says_500()));
    let channels = asks(&scratch);
    let node = TestNode::start(&scratch, "a", &channels).await;
    scratch.insert("acme", "R-", 5).await;
    is(&scratch, State::Unknown, 5).await;
    let named = under("merchant-17", &channels);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), scratch.file("a", &named)).unwrap();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_refundd"));
    let done =
        command.args(["check", "--against-running", "--config"]).arg(file.path()).output().await.unwrap();
    let said = String::from_utf8(done.stdout).unwrap();
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let url = format!("http://{}/acme/refunds", scratch.bank.address());
    let left = format!(
        "Channel `acme`: 5 refunds may have been sent to {url}. They will not be asked about nor sent again at {url} (account \
         merchant-17), and go to review a minute after the change"
    );
    for words in ["account not set -> merchant-17", left.as_str()] {
        assert!(said.contains(words), "`{words}` is missing: {said}");
    }
    assert_eq!(done.status.code(), Some(4), "{said}");
    node.daemon.reload(scratch.config("a", &named)).await.unwrap();
    let published = "select count(*) from refundd.addresses where endpoint like '% (account merchant-17)'";
    assert_eq!(scratch.number(published).await, 1);
    age(&scratch).await;
    age_the_move(&scratch).await;
    is(&scratch, State::Review, 5).await;
    assert!(reasons(&scratch).await.starts_with("address_changed: "), "{}", reasons(&scratch).await);
    assert_eq!(scratch.bank.ledger().inquiries("acme").count(), 0);
    node.stop().await;
}

#[tokio::test]
async fn when_a_first_name_is_removed_in_time_the_bank_is_asked() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", (0..5).map(|_| Step::pays_but_says_500()));
    let channels = asks(&scratch);
    let node = TestNode::start(&scratch, "a", &channels).await;
    scratch.insert("acme", "R-", 5).await;
    is(&scratch, State::Unknown, 5).await;
    node.daemon.reload(scratch.config("a", &under("merchant-17", &channels))).await.unwrap();
    scratch.insert("acme", "S-", 1).await;
    is(&scratch, State::Succeeded, 1).await;
    node.daemon.reload(scratch.config("a", &channels)).await.unwrap();
    age(&scratch).await;
    is(&scratch, State::Succeeded, 6).await;
    assert_eq!(scratch.bank.ledger().repeated(), []);
    node.stop().await;
}

//! A channel that moves to another bank: what may have been sent to the old one is neither asked about nor sent again
//! at the new one. Judged by the ledgers of both banks.

mod accounts;

use std::time::Duration;

use playground::PretendBank;
use playground::bank::Step;
use refundd::channel::BankAddress;
use refundd::refund::{RefundId, State};
use refundd::store::ClaimRequest;
use rustix::process::Signal;

use crate::harness::anywhere::{claim_of, unlimited};
use crate::harness::{NodeProcess, Scratch, TestNode, is, until};

/// `other` stays where it is: what is done about its refund shows that the loops have been round.
const ASKS: &str = r#"
[channel.acme]
endpoint = "http://{bank}/acme/refunds"
limits = []
timeout = "1s"
connect_timeout = "1s"
on_unknown = "inquire"
inquiry = { url = "http://{bank}/acme/refunds/{request_id}", not_found_is_final = true, grace = "1s" }
[channel.other]
endpoint = "http://{still}/other/refunds"
limits = []
timeout = "1s"
on_unknown = "inquire"
inquiry = { url = "http://{still}/other/refunds/{request_id}", not_found_is_final = true, grace = "1s" }
"#;

const RESENDS: &str = r#"
[channel.acme]
endpoint = "http://{bank}/acme/refunds"
limits = []
timeout = "1s"
connect_timeout = "1s"
retry = { base = "1s", cap = "1s" }
on_unknown = "resend"
key_retention = "1h"
"#;

/// The same channels, with `acme` at another bank.
fn at(channels: &str, bank: &PretendBank) -> String {
    channels.replace("{bank}", &bank.address().to_string())
}

fn asks(scratch: &Scratch) -> String {
    ASKS.replace("{still}", &scratch.bank.address().to_string())
}

/// As if all that is uncertain had been so for a minute.
async fn age(scratch: &Scratch) {
    scratch
        .sql("update refundd.refunds set inquire_at = now(), uncertain_at = now() - interval '1 minute' where inquire_at is not null")
        .await;
}

/// As if `acme` had moved more than a minute ago.
async fn age_the_move(scratch: &Scratch) {
    scratch.sql("update refundd.channels set address_since = now() - interval '61 seconds'").await;
}

async fn reasons(scratch: &Scratch) -> String {
    scratch
        .text("select coalesce(string_agg(distinct reason, '; '), '') from refundd.refunds where state = 'review'")
        .await
}

#[tokio::test]
async fn what_one_bank_may_have_executed_is_not_asked_about_at_another() {
    let (scratch, new) = (Scratch::new().await, PretendBank::start_here().unwrap());
    scratch.bank.then("acme", Step::pays_but_says_500());
    scratch.bank.next("other", [Step::pays_but_says_500()]);
    let channels = asks(&scratch);
    let node = TestNode::start(&scratch, "a", &channels).await;
    scratch.insert("acme", "R-", 20).await;
    scratch.insert("other", "O-", 1).await;
    is(&scratch, State::Unknown, 21).await;
    node.daemon.reload(scratch.config("a", &at(&channels, &new))).await.unwrap();
    age(&scratch).await;
    is(&scratch, State::Succeeded, 1).await;
    scratch.insert("acme", "S-", 1).await;
    until("the new bank pays what is new", async || new.look(|l| l.all().len()) == 1).await;
    assert_eq!(scratch.count(State::Unknown).await, 20, "shown only after a minute");
    age_the_move(&scratch).await;
    is(&scratch, State::Review, 20).await;
    let (was, now) = (scratch.bank.address(), new.address());
    assert_eq!(
        reasons(&scratch).await,
        format!(
            "address_changed: it may have been sent to http://{was}/acme/refunds, and the channel's bank is at \
             http://{now}/acme/refunds now; ask the first one what became of it, and decide"
        )
    );
    assert_eq!(new.ledger().all().len(), 1, "0 inquiries, 0 sends of what the old bank has");
    assert!(scratch.bank.ledger().doubled().is_empty());
    node.stop().await;
}

#[tokio::test]
async fn what_one_bank_may_have_executed_is_not_sent_again_to_another() {
    let (scratch, new) = (Scratch::new().await, PretendBank::start_here().unwrap());
    scratch.bank.then("acme", Step::pays_but_says_500());
    let node = TestNode::start(&scratch, "a", RESENDS).await;
    scratch.insert("acme", "R-", 20).await;
    is(&scratch, State::Unknown, 20).await;
    node.daemon.reload(scratch.config("a", &at(RESENDS, &new))).await.unwrap();
    scratch.sql("update refundd.refunds set due_at = now()").await;
    // What is sent again goes before what is new.
    scratch.insert("acme", "S-", 1).await;
    until("the new bank pays what is new", async || new.look(|l| l.arrivals("acme").count()) > 0).await;
    age_the_move(&scratch).await;
    is(&scratch, State::Review, 20).await;
    assert!(reasons(&scratch).await.starts_with("address_changed: "), "{}", reasons(&scratch).await);
    let ledger = new.ledger();
    assert_eq!(ledger.all().iter().map(|arrival| &*arrival.refund_ref).collect::<Vec<_>>(), ["S-1"]);
    node.stop().await;
}

#[tokio::test]
async fn when_the_old_address_is_put_back_in_time_the_old_bank_is_asked() {
    let (scratch, new) = (Scratch::new().await, PretendBank::start_here().unwrap());
    scratch.bank.next("acme", (0..5).map(|_| Step::pays_but_says_500()));
    let channels = asks(&scratch);
    let node = TestNode::start(&scratch, "a", &channels).await;
    scratch.insert("acme", "R-", 5).await;
    is(&scratch, State::Unknown, 5).await;
    node.daemon.reload(scratch.config("a", &at(&channels, &new))).await.unwrap();
    node.daemon.reload(scratch.config("a", &channels)).await.unwrap();
    age(&scratch).await;
    is(&scratch, State::Succeeded, 5).await;
    assert_eq!(scratch.bank.ledger().repeated(), []);
    assert_eq!(new.ledger().all().len(), 0);
    node.stop().await;
}

#[tokio::test]
async fn what_was_never_executed_moves_with_its_channel() {
    let (scratch, new) = (Scratch::new().await, PretendBank::start_here().unwrap());
    scratch.bank.then("acme", Step::too_many(2));
    let node = TestNode::start(&scratch, "a", RESENDS).await;
    scratch.insert("acme", "R-", 3).await;
    until("the old bank was asked", async || scratch.bank.look(|l| !l.all().is_empty())).await;
    node.daemon.reload(scratch.config("a", &at(RESENDS, &new))).await.unwrap();
    is(&scratch, State::Succeeded, 3).await;
    assert_eq!(new.ledger().paid_by_key().len(), 3);
    let places = "select count(*) from refundd.refunds r join refundd.addresses a on a.address = r.sent_to where a.endpoint like '%' || ";
    assert_eq!(scratch.number(&format!("{places} '{}/acme/refunds'", new.address())).await, 3);
    node.stop().await;
}

#[tokio::test]
async fn a_person_may_have_it_sent_to_the_new_address() {
    let (scratch, new) = (Scratch::new().await, PretendBank::start_here().unwrap());
    scratch.bank.then("acme", Step::answers(500, "{}"));
    let channels = asks(&scratch);
    let node = TestNode::start(&scratch, "a", &channels).await;
    scratch.insert("acme", "R-", 1).await;
    is(&scratch, State::Unknown, 1).await;
    node.daemon.reload(scratch.config("a", &at(&channels, &new))).await.unwrap();
    age_the_move(&scratch).await;
    is(&scratch, State::Review, 1).await;
    scratch.decide(RefundId(1), State::Ready, "the old bank does not have it", "test").await;
    is(&scratch, State::Succeeded, 1).await;
    assert_eq!(new.ledger().all().len(), 1);
    node.stop().await;
}

#[tokio::test]
async fn what_an_older_node_sent_belongs_to_the_first_address_that_is_known() {
    let (scratch, new) = (Scratch::new().await, PretendBank::start_here().unwrap());
    scratch.bank.then("acme", Step::pays_but_says_500());
    let channels = asks(&scratch);
    let node = TestNode::start(&scratch, "a", &channels).await;
    scratch.insert("acme", "R-", 4).await;
    is(&scratch, State::Unknown, 4).await;
    // As nodes leave it that do not know the column.
    scratch.sql("update refundd.refunds set sent_to = null").await;
    node.daemon.reload(scratch.config("a", &at(&channels, &new))).await.unwrap();
    age(&scratch).await;
    age_the_move(&scratch).await;
    is(&scratch, State::Review, 4).await;
    assert!(reasons(&scratch).await.starts_with("address_changed: "));
    assert_eq!(new.ledger().all().len(), 0);
    node.stop().await;
}

#[tokio::test]
async fn a_node_with_another_file_can_neither_send_it_again_nor_ask() {
    let scratch = Scratch::new().await;
    let address = |endpoint: &str, inquiry: &str| BankAddress {
        endpoint: endpoint.to_owned(),
        inquiry: inquiry.to_owned(),
    };
    let (old, new) = (
        address("https://old/refunds", "https://old/ask"),
        address("https://new/refunds", "https://new/ask"),
    );
    scratch.publish("acme").await;
    scratch
        .sql(
            "insert into refundd.addresses (channel, endpoint, inquiry, published_by) values
             ('acme', 'https://old/refunds', 'https://old/ask', 'a'), ('acme', 'https://new/refunds', 'https://new/ask', 'b'),
             ('acme', 'https://old/refunds', 'https://new/ask', 'b')",
        )
        .await;
    scratch.insert("acme", "R-", 1).await;
    let taken = [unlimited(1)];
    let request = ClaimRequest { resend_within: Some(Duration::from_hours(1)), ..claim_of("a", &taken) };
    let claim = async |bank_address: &BankAddress| {
        scratch.store.claim_among(&ClaimRequest { bank_address, ..request }, &[]).await.unwrap().leased.len()
    };
    let ask = async |bank_address: &BankAddress| {
        scratch.store.claim_inquiries(&ClaimRequest { bank_address, ..request }).await.unwrap().leased.len()
    };
    assert_eq!(claim(&old).await, 1);
    scratch.release("true", "state = 'unknown'").await;
    assert_eq!(claim(&new).await, 0);
    assert_eq!(claim(&address("https://nobody/published", "")).await, 0);
    scratch.sql("update refundd.refunds set inquire_at = now()").await;
    assert_eq!(ask(&new).await, 0);
    let asks_elsewhere = address("https://old/refunds", "https://new/ask");
    assert_eq!(ask(&asks_elsewhere).await, 0, "the same bank, asked elsewhere");
    assert_eq!(ask(&old).await, 1);
    scratch.sql("update refundd.refunds set inquire_at = null").await;
    assert_eq!(claim(&asks_elsewhere).await, 1, "where it is asked about does not matter to a resend");
    scratch.release("true", "state = 'unknown'").await;
    scratch.sql("update refundd.refunds set inquire_at = now()").await;
    assert_eq!(ask(&asks_elsewhere).await, 0, "the first send is asked about where it was made");
    // Provably not executed, or sent again by a person: it goes wherever its channel goes.
    scratch.sql("update refundd.refunds set state = 'ready'").await;
    assert_eq!(scratch.number("select count(*) from refundd.refunds where sent_to is null").await, 1);
    assert_eq!(claim(&new).await, 1);
}

#[tokio::test]
async fn the_reload_and_the_check_say_how_many_stay_behind() {
    let (scratch, new) = (Scratch::new().await, PretendBank::start_here().unwrap());
    scratch.bank.then("acme", Step::pays_but_says_500());
    // They wait for their next send until the end.
    let resends = RESENDS.replace("base = \"1s\", cap = \"1s\"", "base = \"1h\", cap = \"1h\"");
    let mut node = NodeProcess::start(&scratch, "a", &resends);
    scratch.insert("acme", "R-", 20).await;
    is(&scratch, State::Unknown, 20).await;
    // The wait is drawn between zero and an hour.
    scratch
        .sql("update refundd.refunds set due_at = now() + interval '1 hour' where state = 'unknown'")
        .await;
    let file = scratch.file("a", &at(&resends, &new));
    let mut written = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut written, file.as_bytes()).unwrap();
    let check = async |more: &[&str]| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_refundd"));
        let done = command.args(["check", "--config"]).arg(written.path()).args(more).output().await.unwrap();
        (
            done.status.success(),
            String::from_utf8(done.stdout).unwrap() + &String::from_utf8(done.stderr).unwrap(),
        )
    };
    let expected = format!(
        "Channel `acme`: 20 refunds may have been sent to http://{}/acme/refunds. They will not be asked about nor sent again at http://{}/acme/refunds",
        scratch.bank.address(),
        new.address()
    );
    let (good, said) = check(&[]).await;
    assert!(good && !said.contains("may have been sent"), "{said}");
    let (good, said) = check(&["--against-database"]).await;
    assert!(good && said.contains(&expected), "{said}");
    node.rewrite(&file);
    node.signal(Signal::HUP);
    node.wait_for_line("Configuration read again and in force");
    node.wait_for_line(&expected);
    node.signal(Signal::TERM);
    assert!(node.wait().success());
}

//! Asking the bank what became of a refund: what settles it, what proves nothing, under which permits.

mod answers;
mod kept;
mod leases;
mod permits;
mod unheard;

use std::time::Duration;

use playground::bank::Step;
use refundd::bucket::Purpose;
use refundd::refund::State;

use crate::harness::anywhere::acme;
use crate::harness::{Scratch, TestNode, depth, is, until};

/// Inquiries are made due by hand, for the schedule begins after ten seconds.
const ASKS: &str = r#"
[channel.acme]
endpoint = "http://{bank}/acme/refunds"
limits = []
timeout = "1s"
connect_timeout = "1s"
on_unknown = "inquire"
inquiry = { url = "http://{bank}/acme/refunds/{request_id}", not_found_is_final = true, grace = "30s" }
"#;

/// Makes the next inquiry due, as if the refund had been uncertain for so long.
async fn age(scratch: &Scratch, span: &str) {
    scratch
        .sql(&format!(
            "update refundd.refunds
                set inquire_at = now(), uncertain_at = case when uncertain_at is not null then now() - interval '{span}' end,
                    due_at = case when state = 'accepted' then now() + interval '7 days' - interval '{span}' else due_at end
              where inquire_at is not null"
        ))
        .await;
}

async fn journal(scratch: &Scratch, columns: &str) -> String {
    scratch
        .text(&format!(
            "select coalesce(string_agg(concat_ws(' ', {columns}), ', ' order by id), '') from refundd.attempts where kind = 'inquiry'"
        ))
        .await
}

/// Waits until so many inquiries are in the journal.
async fn inquiries_reach(scratch: &Scratch, times: i64) {
    until(&format!("asked {times} times"), async || {
        scratch.number("select count(*) from refundd.attempts where kind = 'inquiry'").await >= times
    })
    .await;
}

#[tokio::test]
async fn what_the_bank_accepted_is_asked_about_whatever_on_unknown_says() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::pending().decided_after(Duration::from_secs(3))]);
    let node = TestNode::start(&scratch, "a", &ASKS.replace("on_unknown = \"inquire\"\n", "")).await;
    scratch.insert("acme", "R-", 1).await;
    is(&scratch, State::Accepted, 1).await;
    scratch.bank.next_inquiries("acme", [Step::answers(404, "{}")]);
    age(&scratch, "40 seconds").await;
    inquiries_reach(&scratch, 1).await;
    assert_eq!(scratch.count(State::Accepted).await, 1, "not found proves nothing here");
    until("the bank has decided", async || {
        age(&scratch, "40 seconds").await;
        scratch.count(State::Succeeded).await == 1
    })
    .await;
    assert_eq!(scratch.bank.ledger().repeated(), []);
    node.stop().await;
}

#[tokio::test]
async fn a_paused_channel_asks_nothing_and_a_429_to_an_inquiry_cools_it() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::pays_but_says_500()]);
    let node = TestNode::start(&scratch, "a", ASKS).await;
    scratch.insert("acme", "R-", 1).await;
    is(&scratch, State::Unknown, 1).await;
    scratch.pause("acme", "maintenance", "ops").await;
    age(&scratch, "10 seconds").await;
    until("it stands in line", async || depth(&scratch.bucket(), Purpose::Inquire, &acme()).await == 1).await;
    assert_eq!(scratch.bank.ledger().inquiries("acme").count(), 0);
    scratch.bank.next_inquiries("acme", [Step::too_many(2)]);
    scratch.resume("acme").await;
    inquiries_reach(&scratch, 1).await;
    until("it cools", async || {
        scratch.number("select count(*) from refundd.channels where cool_until is not null").await == 1
    })
    .await;
    assert_eq!(scratch.count(State::Unknown).await, 1);
    age(&scratch, "10 seconds").await;
    is(&scratch, State::Succeeded, 1).await;
    let times: Vec<i64> = scratch.bank.ledger().inquiries("acme").map(|a| a.at_us).collect();
    assert!(times[1] - times[0] >= 1_900_000, "{times:?}");
    node.stop().await;
}

#[tokio::test]
async fn a_401_to_an_inquiry_pauses_the_channel() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::pays_but_says_500()]);
    scratch.bank.next_inquiries("acme", [Step::unauthorised()]);
    let node = TestNode::start(&scratch, "a", ASKS).await;
    scratch.insert("acme", "R-", 1).await;
    is(&scratch, State::Unknown, 1).await;
    age(&scratch, "10 seconds").await;
    until("the channel pauses itself", async || scratch.suspensions().await == 1).await;
    scratch.resume("acme").await;
    is(&scratch, State::Succeeded, 1).await;
    node.stop().await;
}

#[tokio::test]
async fn losing_redis_loses_the_bucket_of_inquiries_and_nothing_else() {
    let redis = playground::PrivateRedis::start().await.unwrap();
    let scratch = Scratch::with_redis(redis.url()).await;
    scratch.bank.next("acme", (0..5).map(|_| Step::pays_but_says_500()));
    let node = TestNode::start(&scratch, "a", ASKS).await;
    scratch.insert("acme", "R-", 5).await;
    is(&scratch, State::Unknown, 5).await;
    scratch.pause("acme", "to keep them in line", "test").await;
    age(&scratch, "10 seconds").await;
    until("they stand in line", async || depth(&scratch.bucket(), Purpose::Inquire, &acme()).await == 5)
        .await;
    let client = redis::Client::open(redis.admin_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let _: () = redis::cmd("FLUSHALL").query_async(&mut connection).await.unwrap();
    scratch.resume("acme").await;
    is(&scratch, State::Succeeded, 5).await;
    node.stop().await;
}

#[tokio::test]
async fn a_channel_that_loses_its_inquiry_leaves_nothing_stuck() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::answers(500, "{}"), Step::pending()]);
    let one = ASKS.replace("limits = []", "limits = []\nmax_in_flight = 1");
    let node = TestNode::start(&scratch, "a", &one).await;
    scratch.insert("acme", "R-", 2).await;
    is(&scratch, State::Unknown, 1).await;
    is(&scratch, State::Accepted, 1).await;
    let is_about_asking = |line: &&str| line.starts_with("inquiry") || line.starts_with("on_unknown");
    let without = one.lines().filter(|line| !is_about_asking(line)).collect::<Vec<_>>().join("\n");
    node.daemon.reload(scratch.config("a", &without)).await.unwrap();
    is(&scratch, State::Review, 1).await;
    until("nothing is planned", async || {
        scratch.number("select count(*) from refundd.refunds where inquire_at is not null").await == 0
    })
    .await;
    // And when it comes to have one again, the accepted are asked about.
    scratch.bank.then_inquiries("acme", Some(Step::answers(200, r#"{"status":"succeeded"}"#)));
    node.daemon.reload(scratch.config("a", &one)).await.unwrap();
    is(&scratch, State::Succeeded, 1).await;
    node.stop().await;
}

#[tokio::test]
async fn a_lease_that_lapsed_is_asked_about() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", ASKS).await;
    scratch.pause("acme", "so that it is not sent", "test").await;
    scratch.insert("acme", "R-", 1).await;
    scratch
        .sql("update refundd.refunds set state = 'sending', attempts = 1, lease_epoch = 1, lease_node = 'dead#1', lease_until = now() - interval '1 second'")
        .await;
    is(&scratch, State::Unknown, 1).await;
    assert_eq!(scratch.number("select count(*) from refundd.refunds where inquire_at > now()").await, 1);
    node.stop().await;
}

#[tokio::test]
async fn an_answer_about_another_refund_is_shown_to_a_person() {
    let scratch = Scratch::new().await;
    scratch
        .bank
        .next("acme", [Step::answers(200, r#"{"status":"succeeded","amount_minor":9999}"#).and_pays()]);
    let node = TestNode::start(&scratch, "a", ASKS).await;
    scratch.insert("acme", "R-", 1).await;
    is(&scratch, State::Review, 1).await;
    let reason = scratch.text("select reason from refundd.refunds").await;
    assert!(
        reason.starts_with("echo_differs") && reason.contains("9999") && reason.contains("101"),
        "{reason}"
    );
    scratch.bank.next("acme", [Step::pays_but_says_500()]);
    scratch.insert("acme", "S-", 1).await;
    is(&scratch, State::Unknown, 1).await;
    scratch.bank.next_inquiries("acme", [Step::answers(200, r#"{"status":"rejected","currency":"USD"}"#)]);
    age(&scratch, "10 seconds").await;
    is(&scratch, State::Review, 2).await;
    node.stop().await;
}

#[tokio::test]
async fn two_refunds_never_claim_the_same_bank_reference() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::answers(200, r#"{"status":"succeeded","id":"B-1"}"#).and_pays());
    let node = TestNode::start(&scratch, "a", &format!("{ASKS}bank_ref = \"/id\"\n")).await;
    scratch.insert("acme", "R-", 3).await;
    is(&scratch, State::Succeeded, 1).await;
    is(&scratch, State::Review, 2).await;
    let reason = scratch.text("select min(reason) from refundd.refunds where state = 'review'").await;
    assert!(reason.starts_with("bank_ref_taken") && reason.contains("belongs to refund"), "{reason}");
    assert_eq!(scratch.number("select count(*) from refundd.refunds where bank_ref = 'B-1'").await, 1);
    // The same by an inquiry.
    scratch.bank.next("acme", [Step::pays_but_says_500()]);
    scratch.insert("acme", "S-", 1).await;
    is(&scratch, State::Unknown, 1).await;
    scratch.bank.next_inquiries("acme", [Step::answers(200, r#"{"status":"succeeded","id":"B-1"}"#)]);
    age(&scratch, "10 seconds").await;
    is(&scratch, State::Review, 3).await;
    node.stop().await;
}

#[tokio::test]
async fn what_was_sent_is_compared_beside_the_status_and_the_banks_own_reference_is_left_out() {
    let scratch = Scratch::new().await;
    let own = Step::answers(200, r#"{"status":"succeeded","refund_id":"B-1"}"#).and_pays();
    scratch.bank.next("acme", [own, Step::pays_but_says_500()]);
    let nested = ASKS.replace("grace = \"30s\"", "grace = \"30s\", status = \"/data/state\"");
    let node = TestNode::start(&scratch, "a", &format!("{nested}bank_ref = \"/refund_id\"\n")).await;
    scratch.insert("acme", "R-", 1).await;
    is(&scratch, State::Succeeded, 1).await;
    scratch.insert("acme", "S-", 1).await;
    is(&scratch, State::Unknown, 1).await;
    let other = Step::answers(200, r#"{"data":{"state":"succeeded","amount_minor":9999}}"#);
    scratch.bank.next_inquiries("acme", [other]);
    age(&scratch, "10 seconds").await;
    is(&scratch, State::Review, 1).await;
    let reason = scratch.text("select reason from refundd.refunds where state = 'review'").await;
    assert!(reason.starts_with("echo_differs") && reason.contains("9999"), "{reason}");
    node.stop().await;
}

#[tokio::test]
async fn two_references_that_masking_makes_one_are_shown_with_the_way_out() {
    let scratch = Scratch::new().await;
    let [one, other] = [
        r#"{"status":"succeeded","id":"4111111111111111"}"#,
        r#"{"status":"succeeded","id":"4111110000091111"}"#,
    ]
    .map(|body| Step::answers(200, body).and_pays());
    let other_again = other.clone();
    scratch.bank.next("acme", [one, other]);
    let node = TestNode::start(&scratch, "a", &format!("{ASKS}bank_ref = \"/id\"\n")).await;
    scratch.insert("acme", "R-", 2).await;
    is(&scratch, State::Succeeded, 1).await;
    is(&scratch, State::Review, 1).await;
    let reason = scratch.text("select reason from refundd.refunds where state = 'review'").await;
    assert!(reason.starts_with("bank_ref_taken") && reason.contains("belongs to refund"), "{reason}");
    assert!(reason.contains("masking") && reason.contains("card_numbers = \"accepted\""), "{reason}");
    // Without masking they are two.
    scratch.bank.next("acme", [other_again]);
    let accepts = format!("{ASKS}bank_ref = \"/id\"\ncard_numbers = \"accepted\"\n");
    node.daemon.reload(scratch.config("a", &accepts)).await.unwrap();
    scratch.insert("acme", "S-", 1).await;
    is(&scratch, State::Succeeded, 2).await;
    node.stop().await;
}

#[tokio::test]
async fn an_inquiry_does_not_take_a_reference_for_another_one_because_it_is_masked_now() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::answers(202, r#"{"status":"pending","id":"4111111111111111"}"#)]);
    scratch
        .bank
        .next_inquiries("acme", [Step::answers(200, r#"{"status":"succeeded","id":"4111111111111111"}"#)]);
    let masks = format!("{ASKS}bank_ref = \"/id\"\n");
    let node = TestNode::start(&scratch, "a", &format!("{masks}card_numbers = \"accepted\"\n")).await;
    scratch.insert("acme", "R-", 1).await;
    is(&scratch, State::Accepted, 1).await;
    node.daemon.reload(scratch.config("a", &masks)).await.unwrap();
    age(&scratch, "10 seconds").await;
    inquiries_reach(&scratch, 1).await;
    let shown = scratch.text("select state || ' ' || bank_ref from refundd.refunds").await;
    assert_eq!(shown, "succeeded 4111111111111111");
    node.stop().await;
}

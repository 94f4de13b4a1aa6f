//! Asking the bank what became of a refund: what settles it, what proves nothing, under which permits.

mod leases;
mod permits;

use std::time::Duration;

use playground::bank::{Kind, Step};
use refundd::bucket::Purpose;
use refundd::refund::{ChannelName, State};

use crate::harness::{Scratch, TestNode, depth, until};

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

fn acme() -> ChannelName {
    ChannelName::new("acme").unwrap()
}

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

async fn is(scratch: &Scratch, state: State, count: i64) {
    until(&format!("{count} are {state}"), async || scratch.count(state).await == count).await;
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
async fn the_banks_word_settles_what_was_unknown() {
    for (step, state) in [
        (Step::pays_but_says_500(), State::Succeeded),
        (Step::silence().and_pays(), State::Succeeded),
        (Step::resets().and_refuses(), State::Failed),
        (Step::answers(500, "{}").decided_after(Duration::from_mins(1)), State::Accepted),
    ] {
        let scratch = Scratch::new().await;
        scratch.bank.then("acme", step.clone());
        let node = TestNode::start(&scratch, "a", ASKS).await;
        scratch.insert("acme", "R-", 1).await;
        is(&scratch, State::Unknown, 1).await;
        let wait = "select (extract(epoch from inquire_at - uncertain_at) * 10)::bigint from refundd.refunds";
        assert_eq!(scratch.number(wait).await, 100, "the first inquiry comes after ten seconds");
        age(&scratch, "10 seconds").await;
        is(&scratch, state, 1).await;
        let ledger = scratch.bank.ledger();
        assert_eq!(ledger.inquiries("acme").count(), 1, "{step:?}");
        assert_eq!(ledger.inquiries("acme").next().unwrap().key, ledger.all()[0].key);
        assert!(ledger.repeated().is_empty());
        let said = journal(&scratch, "number, outcome, moved_to, status").await;
        assert!(said.starts_with("1 ") && said.contains(state.as_str()) && said.ends_with("200"), "{said}");
        node.stop().await;
    }
}

#[tokio::test]
async fn not_found_counts_only_after_its_grace_and_then_it_is_sent_again() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::answers(500, "{}")]);
    let quick = ASKS.replace("limits = []", "limits = []\nretry = { base = \"10ms\", cap = \"20ms\" }");
    let node = TestNode::start(&scratch, "a", &quick).await;
    scratch.insert("acme", "R-", 1).await;
    is(&scratch, State::Unknown, 1).await;
    age(&scratch, "10 seconds").await;
    inquiries_reach(&scratch, 1).await;
    assert_eq!(scratch.count(State::Unknown).await, 1, "asked within its grace");
    age(&scratch, "30 seconds").await;
    is(&scratch, State::Succeeded, 1).await;
    assert_eq!(journal(&scratch, "outcome, moved_to").await, "unknown unknown, not_executed ready");
    let ledger = scratch.bank.ledger();
    assert_eq!(ledger.paid_by_key().values().copied().collect::<Vec<_>>(), [1]);
    assert!(ledger.altered().is_empty(), "the same key and the same body");
    assert_eq!(scratch.number("select count(*) from refundd.refunds where uncertain_at is null").await, 1);
    node.stop().await;
}

#[tokio::test]
async fn a_request_that_arrives_after_a_404_is_not_doubled_while_the_grace_lasts() {
    let scratch = Scratch::new().await;
    // The bank executes it late: until then nobody finds it.
    scratch.bank.next("acme", [Step::answers(504, "{}").paying_after(Duration::from_secs(3))]);
    let node = TestNode::start(&scratch, "a", ASKS).await;
    scratch.insert("acme", "R-", 1).await;
    is(&scratch, State::Unknown, 1).await;
    age(&scratch, "10 seconds").await;
    inquiries_reach(&scratch, 1).await;
    assert_eq!(journal(&scratch, "code").await, "not_found");
    assert!(scratch.bank.until(Duration::from_secs(10), |l| l.paid_by_key().len() == 1).await);
    age(&scratch, "20 seconds").await;
    is(&scratch, State::Succeeded, 1).await;
    assert!(scratch.bank.ledger().doubled().is_empty());
    assert_eq!(scratch.bank.ledger().repeated(), []);
    node.stop().await;
}

#[tokio::test]
async fn where_not_found_is_not_final_it_is_never_sent_again() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::answers(500, "{}"));
    let node = TestNode::start(&scratch, "a", &ASKS.replace("not_found_is_final = true, ", "")).await;
    scratch.insert("acme", "R-", 1).await;
    is(&scratch, State::Unknown, 1).await;
    age(&scratch, "5 days").await;
    inquiries_reach(&scratch, 1).await;
    assert_eq!(scratch.count(State::Unknown).await, 1);
    let hours = "select round(extract(epoch from inquire_at - now()) / 3600)::bigint from refundd.refunds";
    assert_eq!(scratch.number(hours).await, 24, "asked daily by now");
    age(&scratch, "7 days").await;
    is(&scratch, State::Review, 1).await;
    let reason = scratch.text("select reason from refundd.refunds").await;
    assert!(reason.starts_with("inquiries_used_up"), "{reason}");
    assert_eq!(scratch.bank.look(|l| l.all().iter().filter(|a| a.kind == Kind::Send).count()), 1);
    node.stop().await;
}

#[tokio::test]
async fn an_inquiry_that_fails_proves_nothing() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::pays_but_says_500()]);
    let faults = [
        Step::answers(500, r#"{"status":"rejected"}"#),
        Step::silence(),
        Step::resets(),
        Step::garbage(),
        Step::answers(200, r#"{"status":"rejected"}"#).cut_after(115),
        Step::answers(200, "<html>log in</html>"),
        Step::answers(200, r#"{"status":"what?"}"#),
        Step::redirects("http://127.0.0.1:9/"),
    ];
    let count = faults.len();
    scratch.bank.next_inquiries("acme", faults);
    let node = TestNode::start(&scratch, "a", ASKS).await;
    scratch.insert("acme", "R-", 1).await;
    is(&scratch, State::Unknown, 1).await;
    for time in 1..=count {
        // An id that was taken is left out of the line for two seconds.
        age(&scratch, "20 seconds").await;
        inquiries_reach(&scratch, i64::try_from(time).unwrap()).await;
        assert_eq!(scratch.count(State::Unknown).await, 1, "after fault {time}");
    }
    assert_eq!(
        journal(&scratch, "code").await,
        "bank_trouble, timeout, answer_lost, answer_lost, answer_cut, unreadable, unmapped, redirect"
    );
    age(&scratch, "20 seconds").await;
    is(&scratch, State::Succeeded, 1).await;
    node.stop().await;
}

#[tokio::test]
async fn a_404_that_is_not_the_banks_own_proves_nothing() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::pays_but_says_500()]);
    let pages = [
        Step::answers(404, "<html>404 Not Found</html>"),
        Step::answers(404, ""),
        Step::answers(404, "404"),
        Step::writes(b"HTTP/1.0 404 Not Found\r\n\r\n"),
        Step::answers(404, r#"{"error":"not fo"#),
    ];
    let count = pages.len();
    scratch.bank.next_inquiries("acme", pages);
    let quick = ASKS.replace("limits = []", "limits = []\nretry = { base = \"10ms\", cap = \"20ms\" }");
    let node = TestNode::start(&scratch, "a", &quick).await;
    scratch.insert("acme", "R-", 1).await;
    is(&scratch, State::Unknown, 1).await;
    for time in 1..=count {
        age(&scratch, "40 seconds").await;
        inquiries_reach(&scratch, i64::try_from(time).unwrap()).await;
        assert_eq!(scratch.count(State::Unknown).await, 1, "after page {time}");
    }
    assert_eq!(journal(&scratch, "code").await, "not_json, not_json, not_json, not_json, not_json");
    // Where the bank has words of its own, JSON of somebody else's does not count either.
    let named = quick.replace(
        "grace = \"30s\"",
        "grace = \"30s\", not_found = { pointer = \"/error\", equals = \"no such refund\" }",
    );
    node.daemon.reload(scratch.config("a", &named)).await.unwrap();
    scratch.bank.next_inquiries("acme", [Step::answers(404, r#"{"message":"no Route matched"}"#)]);
    age(&scratch, "40 seconds").await;
    inquiries_reach(&scratch, 6).await;
    assert!(journal(&scratch, "code").await.ends_with("not_json, other_404"));
    age(&scratch, "40 seconds").await;
    is(&scratch, State::Succeeded, 1).await;
    assert_eq!(scratch.bank.ledger().repeated(), [], "it was sent once");
    node.stop().await;
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
    scratch.store.pause("acme", "maintenance", "ops", false).await.unwrap();
    age(&scratch, "10 seconds").await;
    until("it stands in line", async || depth(&scratch.bucket(), Purpose::Inquire, &acme()).await == 1).await;
    assert_eq!(scratch.bank.ledger().inquiries("acme").count(), 0);
    scratch.bank.next_inquiries("acme", [Step::too_many(2)]);
    scratch.store.resume("acme").await.unwrap();
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
    until("the channel pauses itself", async || {
        scratch.number("select count(*) from refundd.channels where paused_at is not null").await == 1
    })
    .await;
    scratch.store.resume("acme").await.unwrap();
    is(&scratch, State::Succeeded, 1).await;
    node.stop().await;
}

#[tokio::test]
async fn losing_redis_loses_the_line_and_nothing_else() {
    let redis = playground::PrivateRedis::start().await.unwrap();
    let scratch = Scratch::with_redis(redis.url()).await;
    scratch.bank.next("acme", (0..5).map(|_| Step::pays_but_says_500()));
    let node = TestNode::start(&scratch, "a", ASKS).await;
    scratch.insert("acme", "R-", 5).await;
    is(&scratch, State::Unknown, 5).await;
    scratch.store.pause("acme", "to keep them in line", "test", false).await.unwrap();
    age(&scratch, "10 seconds").await;
    until("they stand in line", async || depth(&scratch.bucket(), Purpose::Inquire, &acme()).await == 5)
        .await;
    let client = redis::Client::open(redis.admin_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let _: () = redis::cmd("FLUSHALL").query_async(&mut connection).await.unwrap();
    scratch.store.resume("acme").await.unwrap();
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
    scratch.store.pause("acme", "so that it is not sent", "test", false).await.unwrap();
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

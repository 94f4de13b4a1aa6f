//! Asking the bank what became of a refund: what settles it, what proves nothing, under which permits.

use std::time::{Duration, Instant};

use refundd::limiter::{Permit, PermitNumber, Span};
use refundd::playground::bank::{Kind, Step};
use refundd::refund::inquiry::{Finding, Found, Resolution, Trust};
use refundd::refund::retry::RetryPolicy;
use refundd::refund::{ChannelName, LimitName, RefundId, State};
use refundd::store::{Asked, Claimed, Inquired};

use crate::harness::{Scratch, TestNode, until};

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
async fn asked(scratch: &Scratch, times: i64) {
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
    asked(&scratch, 1).await;
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
    asked(&scratch, 1).await;
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
    asked(&scratch, 1).await;
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
    scratch.bank.next_asked("acme", faults);
    let node = TestNode::start(&scratch, "a", ASKS).await;
    scratch.insert("acme", "R-", 1).await;
    is(&scratch, State::Unknown, 1).await;
    for time in 1..=count {
        // An id that was taken is left out of the line for two seconds.
        age(&scratch, "20 seconds").await;
        asked(&scratch, i64::try_from(time).unwrap()).await;
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
async fn what_the_bank_accepted_is_asked_about_whatever_on_unknown_says() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::pending().decided_after(Duration::from_secs(3))]);
    let node = TestNode::start(&scratch, "a", &ASKS.replace("on_unknown = \"inquire\"\n", "")).await;
    scratch.insert("acme", "R-", 1).await;
    is(&scratch, State::Accepted, 1).await;
    scratch.bank.next_asked("acme", [Step::answers(404, "{}")]);
    age(&scratch, "40 seconds").await;
    asked(&scratch, 1).await;
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
async fn inquiries_spend_numbered_permits_of_the_channels_limit() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::pays_but_says_500());
    let limited = format!(
        "[limit.acme]\npermits = 4\nper = \"1s\"\nlateness = \"100ms\"\n{}",
        ASKS.replace("limits = []", "limits = [\"acme\"]")
    );
    let nodes =
        [TestNode::start(&scratch, "a", &limited).await, TestNode::start(&scratch, "b", &limited).await];
    scratch.insert("acme", "R-", 12).await;
    is(&scratch, State::Unknown, 12).await;
    age(&scratch, "10 seconds").await;
    is(&scratch, State::Succeeded, 12).await;
    let ledger = scratch.bank.ledger();
    assert!(ledger.inquiries("acme").count() >= 12);
    let worst = ledger.worst_aligned_window("acme", Duration::from_secs(1)).unwrap();
    assert!(worst.count <= 4, "{worst:?}: sends and inquiries together");
    assert_eq!(
        scratch.number("select count(*) from refundd.attempts a where kind = 'inquiry' and started_at is not null and not exists
                          (select from refundd.permits p where p.refund_id = a.refund_id and a.permit like 'acme@%#' || p.ordinal)").await,
        0
    );
    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test]
async fn while_refunds_stand_in_line_at_most_one_permit_in_ten_goes_to_inquiries() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", (0..20).map(|_| Step::pays_but_says_500()));
    let limited = format!(
        "[limit.acme]\npermits = 20\nper = \"1s\"\nlateness = \"100ms\"\n{}",
        ASKS.replace("limits = []", "limits = [\"acme\"]")
    );
    let nodes =
        [TestNode::start(&scratch, "a", &limited).await, TestNode::start(&scratch, "b", &limited).await];
    scratch.insert("acme", "U-", 20).await;
    is(&scratch, State::Unknown, 20).await;
    scratch.insert("acme", "R-", 160).await;
    until("refunds stand in line", async || scratch.bucket().look(&[acme()]).await.unwrap()[0].depth > 50)
        .await;
    age(&scratch, "10 seconds").await;
    is(&scratch, State::Succeeded, 180).await;
    let ledger = scratch.bank.ledger();
    let sends: Vec<i64> = ledger.all().iter().filter(|a| a.kind == Kind::Send).map(|a| a.at_us).collect();
    let last = sends.iter().max().unwrap();
    let span_us = last - sends[19];
    let beside = ledger.inquiries("acme").filter(|a| a.at_us < *last).count();
    // One for each half second, which is the time of ten permits, and one more for either end.
    let most = usize::try_from(span_us / 500_000).unwrap() + 2;
    assert!((4..=most).contains(&beside), "{beside} inquiries beside 160 refunds, {most} were allowed");
    assert!(ledger.inquiries("acme").count() >= 20, "the others came afterwards");
    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test]
async fn inquiries_may_have_limits_of_their_own() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::pays_but_says_500());
    let own = format!(
        "[limit.asks]\npermits = 1\nper = \"1s\"\nlateness = \"100ms\"\n{}",
        ASKS.replace("grace = \"30s\"", "grace = \"30s\", limits = [\"asks\"]")
    );
    let node = TestNode::start(&scratch, "a", &own).await;
    scratch.insert("acme", "R-", 3).await;
    is(&scratch, State::Unknown, 3).await;
    age(&scratch, "10 seconds").await;
    is(&scratch, State::Succeeded, 3).await;
    let seconds: std::collections::BTreeSet<i64> =
        scratch.bank.ledger().inquiries("acme").map(|a| a.at_us / 1_000_000).collect();
    assert_eq!(seconds.len(), 3, "one in each second");
    assert_eq!(scratch.number("select count(*) from refundd.permits where limit_name = 'asks'").await, 3);
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
    until("it stands in line", async || {
        let line = scratch.bucket().look_for(refundd::bucket::Errand::Inquire, &[acme()]).await.unwrap()[0];
        line.depth == 1
    })
    .await;
    assert_eq!(scratch.bank.ledger().inquiries("acme").count(), 0);
    scratch.bank.next_asked("acme", [Step::too_many(2)]);
    scratch.store.resume("acme").await.unwrap();
    asked(&scratch, 1).await;
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
    scratch.bank.next_asked("acme", [Step::unauthorised()]);
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
    let redis = refundd::playground::PrivateRedis::start().await.unwrap();
    let scratch = Scratch::with_redis(redis.url()).await;
    scratch.bank.next("acme", (0..5).map(|_| Step::pays_but_says_500()));
    let node = TestNode::start(&scratch, "a", ASKS).await;
    scratch.insert("acme", "R-", 5).await;
    is(&scratch, State::Unknown, 5).await;
    scratch.store.pause("acme", "to keep them in line", "test", false).await.unwrap();
    age(&scratch, "10 seconds").await;
    until("they stand in line", async || {
        let line = scratch.bucket().look_for(refundd::bucket::Errand::Inquire, &[acme()]).await.unwrap()[0];
        line.depth == 5
    })
    .await;
    let client = redis::Client::open(redis.url()).unwrap();
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
    scratch.bank.then_asked("acme", Some(Step::answers(200, r#"{"status":"succeeded"}"#)));
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
    scratch.bank.next_asked("acme", [Step::answers(200, r#"{"status":"rejected","currency":"USD"}"#)]);
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
    scratch.bank.next_asked("acme", [Step::answers(200, r#"{"status":"succeeded","id":"B-1"}"#)]);
    age(&scratch, "10 seconds").await;
    is(&scratch, State::Review, 3).await;
    node.stop().await;
}

// The store alone.

async fn uncertain(refunds: u32) -> Scratch {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.insert("acme", "R-", refunds).await;
    scratch.sql("insert into refundd.limits (limit_name, rule, adopted_by) values ('acme', 'fixed_window 3 1000000 20000 0 0 -', 'test')").await;
    scratch.sql("update refundd.refunds set state = 'sending', attempts = 1, lease_epoch = 1, lease_node = 'a', lease_until = now()").await;
    scratch.sql("update refundd.refunds set state = 'unknown', lease_node = null, lease_until = null, inquire_at = now()").await;
    scratch
}

async fn lease(scratch: &Scratch, taken: &[(RefundId, Permit)]) -> Claimed<refundd::refund::inquiry::Asked> {
    let asked = Asked {
        channel: &acme(),
        node: "a",
        holder: "a",
        lease: Duration::from_secs(30),
        clock_tolerance: Duration::from_secs(5),
        taken,
        resend_within: None,
        most_sends: 12,
    };
    scratch.store.claim_inquiries(&asked).await.unwrap()
}

fn unlimited(id: i64) -> (RefundId, Permit) {
    (RefundId(id), Permit { numbers: Vec::new(), span: None })
}

fn inquired(asked: &refundd::refund::inquiry::Asked, finding: Finding) -> Inquired {
    let trust = Trust { not_found_is_final: true, grace: Duration::ZERO };
    let resolution =
        Resolution::of(&finding, asked, Duration::ZERO, trust, &RetryPolicy::default(), Duration::ZERO, 0.0);
    Inquired {
        asked: asked.clone(),
        channel: acme(),
        started: Some(Instant::now()),
        permit: None,
        found: Found::new(finding, "test", "test"),
        resolution,
    }
}

#[tokio::test]
async fn an_inquiry_needs_a_permit_whose_number_was_not_spent() {
    let scratch = uncertain(2).await;
    let w =
        scratch.number("select (extract(epoch from date_trunc('second', now())) * 1000000)::bigint").await;
    let numbered = |id: i64| {
        let limit = LimitName::new("acme").unwrap();
        let number = PermitNumber { limit, window_start_us: w, ordinal: 1, generation: 1 };
        let (opens, closes) = (Instant::now(), Instant::now() + Duration::from_secs(1));
        let span = Span { opens_us: w, closes_us: w + 980_000, opens, closes };
        (RefundId(id), Permit { numbers: vec![number], span: Some(span) })
    };
    assert_eq!(lease(&scratch, &[numbered(1)]).await.leased.len(), 1);
    let second = lease(&scratch, &[numbered(2)]).await;
    assert!(second.leased.is_empty());
    assert_eq!(second.spent_before, [RefundId(2)]);
    scratch.sql("update refundd.limits set generation = 2").await;
    assert!(lease(&scratch, &[numbered(2)]).await.outdated);
}

#[tokio::test]
async fn of_two_nodes_that_lease_the_same_inquiry_one_gets_it() {
    let scratch = uncertain(1).await;
    let taken = [unlimited(1)];
    let (a, b) = tokio::join!(lease(&scratch, &taken), lease(&scratch, &taken));
    assert_eq!(a.leased.len() + b.leased.len(), 1);
    assert_eq!(a.stale.len() + b.stale.len(), 1);
}

#[tokio::test]
async fn what_the_bank_says_too_late_moves_nothing() {
    let scratch = uncertain(2).await;
    let claimed = lease(&scratch, &[unlimited(1), unlimited(2)]).await;
    let late = inquired(&claimed.leased[0], Finding::Succeeded);
    // It was asked about again meanwhile.
    scratch.sql("update refundd.refunds set inquire_at = now()").await;
    let again = lease(&scratch, &[unlimited(1)]).await;
    assert!(!scratch.store.settle_inquiry("a", &late).await.unwrap());
    assert_eq!(scratch.count(State::Unknown).await, 2);
    let second = inquired(&again.leased[0], Finding::NotFound);
    assert!(scratch.store.settle_inquiry("a", &second).await.unwrap());
    assert_eq!(scratch.count(State::Ready).await, 1);
    // A try whose commit was not seen adds nothing.
    assert!(!scratch.store.settle_inquiry("a", &second).await.unwrap());
    let evidence = scratch.store.evidence(claimed.leased[0].id).await.unwrap();
    let moved: Vec<Option<&str>> = evidence.iter().map(|e| e.moved_to.as_deref()).collect();
    assert_eq!(moved, [None, Some("ready")]);
    // A person decided meanwhile.
    let other = inquired(&claimed.leased[1], Finding::Rejected);
    scratch.store.decide(claimed.leased[1].id, State::Succeeded, "seen", "ann").await.unwrap();
    assert!(!scratch.store.settle_inquiry("a", &other).await.unwrap());
    assert_eq!(scratch.count(State::Succeeded).await, 1);
}

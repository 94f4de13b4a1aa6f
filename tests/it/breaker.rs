//! The breaker: outcomes of one kind, one after the other, suspend a channel; one refund at a time probes the bank.

mod in_a_browser;
mod late_probes;
mod reloaded;
mod resends;
mod switched_off;
mod taken;

use std::time::Duration;

use playground::bank::Step;
use playground::forward::{Forward, Target};
use refundd::refund::State;
use refundd::store::{Resumed, SuspendedBy};

use crate::cli::{file, refundd, text};
use crate::harness::{Scratch, TestNode, until, within};

/// A channel that sends one refund at a time, with this breaker.
fn one_by_one(breaker: &str) -> String {
    format!(
        "[channel.acme]\nendpoint = \"http://{{bank}}/acme/refunds\"\nlimits = []\ntimeout = \"10s\"\nconnect_timeout = \"1s\"\n\
         max_in_flight = 1\nbreaker = {breaker}\n"
    )
}

/// A probe comes too late for the test.
const NEVER_PROBED: &str = "{ rejected = 5, unknown = 3, probe = \"1h\" }";
const PROBED: &str = "{ rejected = 5, unknown = 3, probe = \"1s\" }";

async fn is_open(scratch: &Scratch) -> bool {
    scratch.number("select count(*) from refundd.suspended where source = 'breaker'").await == 1
}

async fn trips(scratch: &Scratch) {
    until("the breaker trips", async || is_open(scratch).await).await;
}

/// How often the breaker tripped and ended, and why.
async fn events(scratch: &Scratch) -> String {
    let of_breaker = "select coalesce(string_agg(kind, ' ' order by event_id), '') from refundd.events where kind like 'breaker%'";
    scratch.text(of_breaker).await
}

fn arrived(scratch: &Scratch) -> usize {
    scratch.bank.look(|l| l.all().len())
}

#[tokio::test]
async fn a_bank_that_refuses_everything_fails_about_20_refunds_and_not_all() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::rejects());
    // The counts are those of a file that names no breaker.
    let channels = one_by_one("{ probe = \"1h\" }").replace("max_in_flight = 1", "max_in_flight = 4");
    let node = TestNode::start(&scratch, "a", &channels).await;
    scratch.insert("acme", "R-", 300).await;
    trips(&scratch).await;
    within(Duration::from_secs(10), "nothing is under lease", async || {
        scratch.count(State::Sending).await == 0
    })
    .await;
    let failed = scratch.count(State::Failed).await;
    assert!((20..=23).contains(&failed), "{failed} failed, with 4 in flight");
    assert_eq!(scratch.count(State::Ready).await, 300 - failed);
    let reason = scratch.text("select reason from refundd.suspended").await;
    assert!(
        reason.starts_with("the bank refused 20 refunds one after the other, the last with: HTTP"),
        "{reason}"
    );
    let page = node.get("/metrics").await.text;
    for line in [
        "refundd_breaker_trips_total{channel=\"acme\",kind=\"rejected\"} 1",
        "refundd_channel_suspended{channel=\"acme\",by=\"breaker\"} 1",
        "refundd_channel_paused{channel=\"acme\"} 0",
    ] {
        assert!(page.contains(line), "{line} is missing: {page}");
    }
    let file = file(&scratch.file("cli", &channels));
    let said = text(&refundd(file.path(), &["status"]));
    assert!(said.contains("acme is suspended by its breaker since"), "{said}");
    node.stop().await;
}

#[tokio::test]
async fn it_trips_at_exactly_its_number_and_any_other_answer_begins_anew() {
    let scratch = Scratch::new().await;
    for _ in 0..6 {
        scratch.bank.next("acme", std::iter::repeat_n(Step::rejects(), 4).chain([Step::pays()]));
    }
    let node = TestNode::start(&scratch, "a", &one_by_one(NEVER_PROBED)).await;
    scratch.insert("acme", "R-", 40).await;
    until("all have ended", async || {
        scratch.count(State::Failed).await + scratch.count(State::Succeeded).await == 40
    })
    .await;
    assert_eq!((scratch.count(State::Failed).await, events(&scratch).await.as_str()), (24, ""));
    let before = arrived(&scratch);
    scratch.bank.then("acme", Step::rejects());
    scratch.insert("acme", "S-", 40).await;
    trips(&scratch).await;
    until("nothing is under lease", async || scratch.count(State::Sending).await == 0).await;
    assert_eq!(arrived(&scratch) - before, 5);
    assert_eq!(events(&scratch).await, "breaker_tripped");
    node.stop().await;
}

#[tokio::test]
async fn refunds_of_which_nobody_knows_what_became_trip_it_sooner_than_refusals() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::resets());
    let node = TestNode::start(&scratch, "a", &one_by_one(NEVER_PROBED)).await;
    scratch.insert("acme", "R-", 20).await;
    trips(&scratch).await;
    until("nothing is under lease", async || scratch.count(State::Sending).await == 0).await;
    assert_eq!(arrived(&scratch), 3);
    let kind = "select kind || ': ' || reason from refundd.suspended";
    let said = scratch.text(kind).await;
    assert!(said.starts_with("unknown: nobody can be sure what the bank did with 3 refunds"), "{said}");
    node.stop().await;
}

#[tokio::test]
async fn one_refund_probes_the_bank_and_its_success_ends_the_suspension() {
    let scratch = Scratch::new().await;
    // Five refusals trip it, the first probe is refused, and the second one is paid.
    scratch.bank.next("acme", std::iter::repeat_n(Step::rejects(), 6));
    let node = TestNode::start(&scratch, "a", &one_by_one(PROBED)).await;
    scratch.insert("acme", "R-", 30).await;
    until("the others are paid", async || scratch.count(State::Succeeded).await == 24).await;
    assert_eq!(scratch.count(State::Failed).await, 6);
    let times: Vec<i64> = scratch.bank.look(|l| l.all().iter().map(|a| a.at_us).collect());
    for nth in [5, 6] {
        let wait = times[nth] - times[nth - 1];
        assert!(wait > 900_000, "probe {} came {wait} us after the send before", nth - 4);
    }
    // One probe for each would take 23 s.
    let rest = times.last().unwrap() - times[6];
    assert!(rest < 10_000_000, "the channel went on for {rest} us");
    assert_eq!(events(&scratch).await, "breaker_tripped breaker_ended");
    let ended = "select end_reason from refundd.suspensions where source = 'breaker'";
    assert_eq!(scratch.text(ended).await, "the probe succeeded");
    node.stop().await;
}

#[tokio::test]
async fn two_nodes_share_one_probe_and_a_restart_forgets_no_suspension() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::rejects());
    let channels = one_by_one(PROBED);
    let a = TestNode::start(&scratch, "a", &channels).await;
    let b = TestNode::start(&scratch, "b", &channels).await;
    scratch.insert("acme", "R-", 200).await;
    trips(&scratch).await;
    until("two probes were refused", async || arrived(&scratch) >= 12).await;
    a.stop().await;
    b.stop().await;
    let times: Vec<i64> = scratch.bank.look(|l| l.all().iter().map(|a| a.at_us).collect());
    // Each node may have counted to five, less one, before the other tripped; the last two arrivals are probes.
    let probes: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).rev().take(2).collect();
    assert!(probes.iter().all(|gap| *gap > 900_000), "two nodes probed at one time: {probes:?}");
    let before = arrived(&scratch);
    assert!(is_open(&scratch).await);
    scratch.bank.then("acme", Step::pays());
    let c = TestNode::start(&scratch, "c", &channels).await;
    until("the rest is paid", async || {
        scratch.count(State::Ready).await + scratch.count(State::Sending).await == 0
    })
    .await;
    let last = *times.last().unwrap();
    let first = scratch.bank.look(|l| l.all()[before].at_us);
    assert!(first - last > 900_000, "the new node sent {} us after the last probe", first - last);
    assert_eq!(events(&scratch).await, "breaker_tripped breaker_ended");
    c.stop().await;
}

#[tokio::test]
async fn a_person_ends_it_at_once_by_its_name_and_not_by_ending_a_pause() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", std::iter::repeat_n(Step::rejects(), 5));
    let channels = one_by_one(NEVER_PROBED);
    let node = TestNode::start(&scratch, "a", &channels).await;
    scratch.insert("acme", "R-", 20).await;
    trips(&scratch).await;
    let file = file(&scratch.file("cli", &channels));
    let run = |args: &[&str]| {
        let output = refundd(file.path(), args);
        (output.status.code(), text(&output))
    };
    let (code, said) = run(&["resume", "acme"]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("End it with: refundd resume acme --breaker"), "{said}");
    assert!(is_open(&scratch).await);
    let (code, said) = run(&["resume", "acme", "--breaker", "--by", "ann"]);
    assert_eq!(code, Some(0), "{said}");
    until("the rest is paid", async || scratch.count(State::Succeeded).await == 15).await;
    let by = "select who from refundd.events where kind = 'breaker_ended'";
    assert_eq!(scratch.text(by).await, "ann");
    let again = scratch.store.release("acme", SuspendedBy::Breaker, "ann", None).await.unwrap();
    assert!(matches!(again, Resumed::WasNot), "{again:?}");
    node.stop().await;
}

#[tokio::test]
async fn inquiries_go_on_while_the_breaker_is_open() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::pays_but_says_500());
    let asks = "on_unknown = \"inquire\"\ninquiry = { url = \"http://{bank}/acme/refunds/{request_id}\" }\n";
    let node = TestNode::start(&scratch, "a", &format!("{}{asks}", one_by_one(NEVER_PROBED))).await;
    scratch.insert("acme", "R-", 3).await;
    trips(&scratch).await;
    until("all are unknown", async || scratch.count(State::Unknown).await == 3).await;
    scratch.sql("update refundd.refunds set inquire_at = now()").await;
    until("the bank was asked", async || scratch.count(State::Succeeded).await == 3).await;
    assert!(is_open(&scratch).await, "an inquiry is no probe");
    node.stop().await;
}

#[tokio::test]
async fn inquiries_need_not_leave_permits_to_refunds_that_the_breaker_stops() {
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::pays_but_says_500());
    let asks = "on_unknown = \"inquire\"\ninquiry = { url = \"http://{bank}/acme/refunds/{request_id}\" }\n";
    let channel = one_by_one(NEVER_PROBED).replace("limits = []", "limits = [\"acme\"]");
    let limit = "[limit.acme]\npermits = 5\nper = \"1s\"\n";
    let node = TestNode::start(&scratch, "a", &format!("{limit}{channel}{asks}")).await;
    scratch.insert("acme", "R-", 50).await;
    trips(&scratch).await;
    until("those that were sent are unknown", async || {
        scratch.count(State::Unknown).await > 0 && scratch.count(State::Sending).await == 0
    })
    .await;
    let unknown = scratch.count(State::Unknown).await;
    scratch.sql("update refundd.refunds set inquire_at = now() where state = 'unknown'").await;
    until("the bank was asked about all", async || scratch.count(State::Succeeded).await == unknown).await;
    assert!(is_open(&scratch).await && scratch.count(State::Ready).await > 40);
    node.stop().await;
}

#[tokio::test]
async fn a_breaker_that_is_switched_off_lets_the_channel_go() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", std::iter::repeat_n(Step::rejects(), 5));
    let node = TestNode::start(&scratch, "a", &one_by_one(NEVER_PROBED)).await;
    scratch.insert("acme", "R-", 20).await;
    trips(&scratch).await;
    node.daemon.reload(scratch.config("a", &one_by_one("\"off\""))).await.unwrap();
    until("the rest is paid", async || scratch.count(State::Succeeded).await == 15).await;
    scratch.bank.next("acme", std::iter::repeat_n(Step::rejects(), 30));
    scratch.insert("acme", "S-", 31).await;
    until("all have ended", async || scratch.count(State::Failed).await == 35).await;
    assert_eq!(events(&scratch).await, "breaker_tripped breaker_ended");
    node.stop().await;
}

#[tokio::test]
async fn an_unreachable_bank_costs_no_attempt_and_sends_no_refund_to_review() {
    let scratch = Scratch::new().await;
    let way = Forward::to(Target::Tcp(scratch.bank.address())).unwrap();
    way.set(playground::Weather::Closed);
    let channels =
        one_by_one("{ unreachable = 3, probe = \"1s\" }").replace("{bank}", &way.address().to_string());
    let node = TestNode::start(&scratch, "a", &channels).await;
    scratch.insert("acme", "R-", 20).await;
    let kinds = "select coalesce(string_agg(kind || ' ' || who, ', ' order by event_id), '') from refundd.events where kind like 'bank_%'";
    let name = node.daemon.name().to_owned();
    let unreachable = format!("bank_unreachable {name}");
    until("it is an event", async || scratch.text(kinds).await == unreachable).await;
    assert_eq!(scratch.count(State::Ready).await, 20);
    assert_eq!(scratch.number("select max(attempts)::bigint from refundd.refunds").await, 0);
    assert_eq!(scratch.number("select count(*) from refundd.attempts").await, 0);
    assert_eq!(scratch.suspensions().await, 0, "other nodes may reach the bank");
    way.set(playground::Weather::Fair);
    let took =
        within(Duration::from_secs(10), "all are paid", async || scratch.count(State::Succeeded).await == 20)
            .await;
    println!("paid {took:?} after the bank was back");
    let both = format!("{unreachable}, bank_reached {name}");
    until("its end is an event", async || scratch.text(kinds).await == both).await;
    assert_eq!(scratch.number("select max(attempts)::bigint from refundd.refunds").await, 1);
    node.stop().await;
}

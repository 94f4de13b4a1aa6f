//! `refundd prove` over what real nodes sent.

mod days;
mod dropped;
mod in_a_browser;
mod inquiries;
mod shares;
mod short;

use std::process::{Command, Output};
use std::time::Duration;

use futures_util::future::join_all;
use playground::rule::{TestAlgorithm, TestRule};
use serde_json::Value;

use crate::cli::text;
use crate::harness::{Scratch, TestNode, until};

fn channel(rule: &str) -> String {
    format!(
        "[limit.acme]\n{rule}\nper = \"1s\"\n[channel.acme]\nendpoint = \"http://{{bank}}/acme/refunds\"\n\
         limits = [\"acme\"]\nmax_in_flight = 50\n"
    )
}

const FIXED: &str = "permits = 50";

pub fn prove(scratch: &Scratch, args: &[&str]) -> Output {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, scratch.file("prover", &channel(FIXED)).as_bytes()).unwrap();
    Command::new(env!("CARGO_BIN_EXE_refundd"))
        .arg("--config")
        .arg(file.path())
        .arg("prove")
        .args(args)
        .output()
        .unwrap()
}

pub fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(output)))
}

/// Two nodes send `count` refunds under a rule and stop.
async fn sent(rule: &str, count: u32) -> Scratch {
    let scratch = Scratch::new().await;
    let channels = channel(rule);
    let a = TestNode::start(&scratch, "a", &channels).await;
    let b = TestNode::start(&scratch, "b", &channels).await;
    scratch.insert("acme", "R-", count).await;
    let wanted = count as usize;
    assert!(scratch.bank.until(Duration::from_mins(2), |l| l.all().len() >= wanted).await);
    a.stop().await;
    b.stop().await;
    scratch
}

/// The ledger and the journal of a limit without any node, the rule three hours old.
async fn ledger(rule: &str) -> Scratch {
    let scratch = Scratch::new().await;
    scratch
        .sql(&format!(
            "insert into refundd.limit_rules values ('acme', now() - interval '3 hours', '{rule}', 'node-a')"
        ))
        .await;
    scratch
}

async fn holds_the_limit(rule: &str) {
    let scratch = sent(rule, 120).await;
    let said = prove(&scratch, &["--channel", "acme"]);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said));
    assert!(text(&said).contains("held") && text(&said).contains("120 first bytes"), "{}", text(&said));
    let said = prove(&scratch, &["--limit", "acme", "--from", "10m", "--json"]);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said));
    let page = json(&said);
    let limit = &page["limits"][0];
    assert_eq!((&page["verdict"], &limit["verdict"]), (&"held".into(), &"held".into()), "{page}");
    assert!(limit["permits"]["refunds"].as_u64() >= Some(120), "{page}");
    assert_eq!(limit["journal"]["first_bytes"], 120, "{page}");
    assert!(
        limit["spans_checked"].as_u64() > Some(1) && limit["worst_span"]["found"].as_u64() > Some(1),
        "{page}"
    );
    assert!(limit["unproven"][0]["why"].as_str().unwrap().contains("rule"), "{page}");
}

#[tokio::test]
async fn what_every_kind_of_limit_let_go_is_proven() {
    join_all(TestAlgorithm::ALL.map(|algorithm| async move {
        let rule = TestRule::usual(algorithm).settings();
        holds_the_limit(&rule).await;
    }))
    .await;
}

#[tokio::test]
async fn a_permit_too_many_is_found() {
    let scratch = sent(FIXED, 60).await;
    scratch
        .sql(
            "insert into refundd.permits (limit_name, window_start, ordinal, caller, node)
             select 'acme', min(window_start), n, 'by hand', 'by hand' from refundd.permits, generate_series(1001, 1051) n group by n",
        )
        .await;
    let said = prove(&scratch, &["--channel", "acme"]);
    assert_eq!(said.status.code(), Some(1), "{}", text(&said));
    assert!(text(&said).contains("broken") && text(&said).contains("above"), "{}", text(&said));
    let page = json(&prove(&scratch, &["--channel", "acme", "--json"]));
    assert_eq!(
        (&page["verdict"], &page["limits"][0]["above"]["count"]),
        (&"broken".into(), &1.into()),
        "{page}"
    );
    assert_eq!(page["limits"][0]["permits"]["other_services"], 51, "{page}");
}

#[tokio::test]
async fn all_limits_are_proven_at_once_with_a_line_for_each_and_their_sum() {
    let scratch = sent(FIXED, 60).await;
    scratch.sql("insert into refundd.limit_rules select 'other', published_at, rule, node from refundd.limit_rules").await;
    let said = prove(&scratch, &["--all"]);
    let page = text(&said);
    assert_eq!(said.status.code(), Some(0), "{page}");
    let in_part = "2 limits: 2 held (2 only in part), 0 broken, 0 unproven; ";
    for words in ["held       acme ", "held       other ", in_part, " in the proven time\n"] {
        assert!(page.contains(words), "`{words}` is missing: {page}");
    }
    // Most of the hour is before the first rule.
    let from = page.lines().next().and_then(|line| line.strip_prefix("From ")?.split(' ').next()).unwrap();
    let unproven: Vec<&str> =
        page.lines().filter(|line| line.contains(&format!("; unproven {from} to "))).collect();
    assert_eq!(unproven.len(), 2, "{page}");
    assert!(unproven.iter().all(|line| line.ends_with(": no node had written down a rule yet")), "{page}");
    let listed = json(&prove(&scratch, &["--all", "--json"]));
    assert_eq!(listed["limits"].as_array().map(Vec::len), Some(2), "{listed}");
    assert_eq!((&listed["verdict"], &listed["held_in_part"]), (&"held".into(), &2.into()), "{listed}");
    scratch
        .sql(
            "insert into refundd.permits (limit_name, window_start, ordinal, caller, node)
             select 'other', date_trunc('second', now()), n, 'by hand', 'by hand' from generate_series(1, 51) n",
        )
        .await;
    let broken = prove(&scratch, &["--all"]);
    assert_eq!(broken.status.code(), Some(1), "{}", text(&broken));
    let page = text(&broken);
    assert!(
        page.contains("broken     other ") && page.contains("1 held (1 only in part), 1 broken"),
        "{page}"
    );
}

/// Writes sends without a permit of their own into the journal of a limit that two nodes kept: `prove` finds each.
async fn finds_first_bytes_without_a_permit_of_their_own(rule: &str) {
    let scratch = sent(rule, 20).await;
    // The settings a minute old and more: a first byte without a permit cannot be of those before.
    scratch.sql("update refundd.channels set published_at = now() - interval '10 minutes'").await;
    assert_eq!(prove(&scratch, &["--channel", "acme"]).status.code(), Some(0));
    let copy = |permit: &str| {
        format!(
            "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, permit, started_at, outcome)
             select refund_id, channel, kind, 2, 2, node, {permit}, clock_timestamp(), outcome from refundd.attempts
              where refund_id = 7 and number = 1"
        )
    };
    for (permit, offence) in [
        ("permit", "permit_used_again"),
        ("null", "without_permit"),
        ("replace(permit, '#', '#9')", "unknown_permit"),
    ] {
        scratch.sql(&copy(permit)).await;
        let said = prove(&scratch, &["--limit", "acme", "--json"]);
        assert_eq!(said.status.code(), Some(1), "{}", text(&said));
        let journal = &json(&said)["limits"][0]["journal"];
        assert_eq!(
            (&journal[offence]["count"], &journal[offence]["refund"]),
            (&1.into(), &7.into()),
            "{journal}"
        );
    }
    let said = text(&prove(&scratch, &["--limit", "acme"]));
    for words in [
        "21 first bytes under these permits",
        "1 first byte had no permit of this limit; see `refundd review show 7`",
    ] {
        assert!(said.contains(words), "`{words}` is missing: {said}");
    }
}

#[tokio::test]
async fn a_first_byte_without_a_permit_of_its_own_is_found() {
    finds_first_bytes_without_a_permit_of_their_own(FIXED).await;
}

#[tokio::test]
async fn ledgers_longer_than_a_page_are_read_whole() {
    let scratch = ledger(r#"{"algorithm":"paced","permits":100,"per_us":1000000,"lateness_us":20000}"#).await;
    scratch
        .sql(
            "insert into refundd.permits (limit_name, window_start, ordinal, caller, node)
             select 'acme', date_trunc('second', now()) - interval '30 minutes' + n * interval '10200 microseconds', 1, 'shop', 'node-a'
               from generate_series(1, 25000) n",
        )
        .await;
    let page = json(&prove(&scratch, &["--limit", "acme", "--json"]));
    let limit = &page["limits"][0];
    assert_eq!((&page["verdict"], &limit["spans_checked"]), (&"held".into(), &25_000.into()), "{page}");
    assert_eq!(
        (&limit["worst_span"]["found"], &limit["closest_slots"]["found"]),
        (&100.into(), &10_200.into()),
        "{page}"
    );
}

#[tokio::test]
async fn a_rule_is_written_down_when_it_is_new_and_only_then() {
    let scratch = Scratch::new().await;
    let rows = || scratch.number("select count(*) from refundd.limit_rules");
    let a = TestNode::start(&scratch, "a", &channel(FIXED)).await;
    let b = TestNode::start(&scratch, "b", &channel(FIXED)).await;
    assert_eq!(rows().await, 1);
    for (permits, count) in [(50, 1), (40, 2), (40, 2), (50, 3)] {
        a.daemon.reload(scratch.config("a", &channel(&format!("permits = {permits}")))).await.unwrap();
        assert_eq!(rows().await, count, "{permits}");
    }
    let page = json(&prove(&scratch, &["--limit", "acme", "--json"]));
    let rules = page["limits"][0]["rules"].as_array().unwrap();
    let said: Vec<&str> = rules.iter().map(|rule| rule["rule"].as_str().unwrap()).collect();
    assert_eq!(said, ["50 in each 1s", "40 in each 1s", "50 in each 1s"]);
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn a_change_of_rule_under_load_is_proven() {
    let scratch = Scratch::new().await;
    let rules = [
        "permits = 60",
        "algorithm = \"sliding_log\"\npermits = 30",
        "algorithm = \"paced\"\npermits = 50",
        FIXED,
    ];
    let node = TestNode::start(&scratch, "a", &channel(rules[0])).await;
    scratch.insert("acme", "R-", 400).await;
    for (nth, rule) in rules.iter().enumerate() {
        node.daemon.reload(scratch.config("a", &channel(rule))).await.unwrap();
        let enough = (nth + 1) * 60;
        until("some are sent under it", async || scratch.bank.look(|l| l.all().len()) >= enough).await;
    }
    node.stop().await;
    let said = prove(&scratch, &["--channel", "acme"]);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said));
    assert_eq!(text(&said).matches("  then ").count(), 3, "{}", text(&said));
}

#[tokio::test]
async fn what_does_not_exist_is_answered_with_what_does() {
    let scratch = sent(FIXED, 1).await;
    for (flag, there) in [("--channel", "no such channel"), ("--limit", "no such limit")] {
        let said = prove(&scratch, &[flag, "acne"]);
        assert_eq!(said.status.code(), Some(1));
        assert!(text(&said).contains(there) && text(&said).contains("there are: acme"), "{}", text(&said));
    }
    for wrong in
        [&["--channel", "acme", "--from", "soon"][..], &[], &["--channel", "acme", "--limit", "acme"]]
    {
        assert_eq!(prove(&scratch, wrong).status.code(), Some(2), "{wrong:?}");
    }
    let empty = prove(&scratch, &["--limit", "acme", "--from", "1m", "--to", "2m"]);
    assert!(text(&empty).contains("is not before `to`"), "{}", text(&empty));
    let future = prove(&scratch, &["--limit", "acme", "--to", "2999-01-01T00:00:00Z"]);
    assert!(text(&future).contains("nothing is proven of the future"), "{}", text(&future));
}

#[test]
fn the_help_says_what_is_proven_and_how_it_exits() {
    let output = Command::new(env!("CARGO_BIN_EXE_refundd")).args(["prove", "--help"]).output().unwrap();
    assert!(output.status.success());
    insta::assert_snapshot!(text(&output));
}

//! `refundd export`: what was sent, held against the pretend bank's own ledger.

mod cancelled;
mod late;
mod once;
mod whole;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use playground::bank::{Kind, Step};
use refundd::refund::{Money, RefundId, State};

use super::{file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode, until};

type Row = BTreeMap<String, String>;

/// The rows of an export, and what it says on standard error.
fn export(config: &std::path::Path, period: &[&str]) -> (Vec<Row>, String) {
    export_of("acme", config, period)
}

fn export_of(channel: &str, config: &std::path::Path, period: &[&str]) -> (Vec<Row>, String) {
    let output = refundd(config, &[&["export", "--channel", channel], period].concat());
    assert!(output.status.success(), "{}", text(&output));
    let mut reader = csv::Reader::from_reader(output.stdout.as_slice());
    let rows = reader.deserialize().map(Result::unwrap).collect();
    (rows, String::from_utf8(output.stderr).unwrap())
}

/// An amount as the sums write it.
fn both_units(amount_minor: i64, currency: &str) -> String {
    let money = Money { amount_minor, currency: currency.to_owned() };
    format!("{amount_minor} in minor units = {money}")
}

#[tokio::test]
async fn the_export_and_its_sums_agree_with_the_banks_ledger() {
    let scratch = Scratch::new().await;
    // Two refunds are sent twice, one is rejected, and of one nobody knows.
    let busy = || Step::answers(503, r#"{"error":"busy"}"#).with_header(hyper::header::RETRY_AFTER, 1.into());
    scratch.bank.next("acme", [busy(), Step::rejects(), Step::pays_but_says_500(), busy()]);
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.insert("acme", "R-", 20).await;
    scratch
        .sql(
            "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
             select '=cmd|' || n, 'acme', '@P', 7 * n, 'JPY' from generate_series(1, 5) n",
        )
        .await;
    until("all ended or are shown", async || {
        let counts = scratch.counts().await;
        let of = |state| counts.get(&state).copied().unwrap_or(0);
        of(State::Succeeded) == 23 && of(State::Failed) == 1 && of(State::Review) == 1
    })
    .await;
    node.stop().await;
    let config = file(&scratch.file("a", UNLIMITED));
    let (rows, said) = export(config.path(), &["--from", "1h"]);

    let ledger = scratch.bank.ledger();
    let sends: Vec<_> = ledger.arrivals("acme").filter(|arrival| arrival.kind == Kind::Send).collect();
    let sent: BTreeSet<(String, String, String)> = sends
        .iter()
        .map(|arrival| {
            (arrival.key.to_string(), arrival.attempt.to_string(), arrival.amount_minor.to_string())
        })
        .collect();
    let exported: BTreeSet<(String, String, String)> = rows
        .iter()
        .map(|row| (row["request_id"].clone(), row["attempt"].clone(), row["amount_minor"].clone()))
        .collect();
    assert_eq!((rows.len(), exported), (sends.len(), sent));

    // The sums of each currency: sends, refunds, and the money of each refund once.
    for (currency, begins) in [("EUR", "R-"), ("JPY", "=cmd|")] {
        let of_currency = || sends.iter().filter(|arrival| arrival.refund_ref.starts_with(begins));
        let amounts: BTreeMap<&str, i64> =
            of_currency().map(|arrival| (&*arrival.refund_ref, arrival.amount_minor)).collect();
        let sum: i64 = amounts.values().sum();
        let line = format!(
            "{currency}: {} sends of {} refunds, {}\n",
            of_currency().count(),
            amounts.len(),
            both_units(sum, currency)
        );
        assert!(said.contains(&format!("{line}    the bank said so: ")), "{line}{said}");
        let paid: i64 =
            of_currency().filter(|arrival| arrival.paid).map(|arrival| arrival.amount_minor).sum();
        let says = |state: &str| -> i64 {
            let part = said.split(&line).nth(1).unwrap().lines().take_while(|line| line.starts_with(' '));
            let of_state = part.filter(|line| line.trim().starts_with(state));
            let minor = |line: &str| line.split_once(", ")?.1.split(' ').next()?.parse::<i64>().ok();
            of_state.map(|line| minor(line).unwrap()).sum()
        };
        // The bank paid the refund of which nobody knows.
        assert_eq!(says("succeeded") + says("review"), paid, "{said}");
    }
    // The file says which channel it is of, and the sums say when they were read.
    assert!(rows.iter().all(|row| row["channel"] == "acme" && row["contradicted"].is_empty()), "{rows:?}");
    let read_at = said.lines().next().and_then(|line| line.split_once(", as read at ")).unwrap().1;
    let read_at: Timestamp = read_at.parse().unwrap();
    let ended = rows.iter().map(|row| row["ended_at"].parse::<Timestamp>().unwrap()).max().unwrap();
    assert!(said.starts_with("acme from ") && ended <= read_at, "{ended} {said}");
    // No spreadsheet runs a cell, and the refs can be read back.
    assert!(rows.iter().any(|row| row["refund_ref"] == "'=cmd|1" && row["payment_ref"] == "'@P"), "{rows:?}");
    assert!(rows.iter().flat_map(BTreeMap::values).all(|cell| !cell.starts_with(['=', '+', '-', '@'])));
}

#[tokio::test]
async fn the_sums_keep_apart_what_the_bank_said_what_a_person_decided_and_what_is_open() {
    let scratch = Scratch::new().await;
    scratch.bank.next("acme", [Step::rejects(), Step::pays_but_says_500(), Step::pays_but_says_500()]);
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    scratch.insert("acme", "R-", 4).await;
    until("all ended or wait for a person", async || {
        scratch.count(State::Review).await == 2 && scratch.count(State::Succeeded).await == 1
    })
    .await;
    node.stop().await;
    let review = "select min(id) from refundd.refunds where state = 'review'";
    let id = scratch.number(review).await;
    scratch.decide(RefundId(id), State::Succeeded, "it is on the statement", "ann").await;
    let config = file(&scratch.file("a", UNLIMITED));
    let (rows, said) = export(config.path(), &["--from", "1h"]);
    let amount = async |condition: &str| {
        let sum = "select coalesce(sum(amount_minor), 0)::bigint from refundd.refunds where";
        both_units(scratch.number(&format!("{sum} {condition}")).await, "EUR")
    };
    let decided = amount(&format!("id = {id}")).await;
    let said = said.split_once('\n').unwrap().1;
    let expected = format!(
        "EUR: 4 sends of 4 refunds, {}\n    the bank said so: 2 refunds, {}\n        succeeded now: 1 refund, {}\n        \
         failed now: 1 refund, {}\n    a person decided: 1 refund, {decided}\n        succeeded now: 1 refund, {decided}\n    \
         still open: 1 refund, {open}\n        review now: 1 refund, {open}\n",
        amount("true").await,
        amount(&format!("state in ('succeeded', 'failed') and id <> {id}")).await,
        amount(&format!("state = 'succeeded' and id <> {id}")).await,
        amount("state = 'failed'").await,
        open = amount("state = 'review'").await,
    );
    assert_eq!(said, expected);
    let mut by: Vec<&str> = rows.iter().map(|row| row["ended_by"].as_str()).collect();
    by.sort_unstable();
    assert_eq!(by, ["", "bank", "bank", "person"]);
}

#[tokio::test]
async fn periods_that_touch_each_other_have_each_send_once() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    for n in 0..5 {
        scratch.insert("acme", &format!("R{n}-"), 3).await;
        until("they are paid", async || scratch.count(State::Succeeded).await == 3 * (n + 1)).await;
    }
    node.stop().await;
    let config = file(&scratch.file("a", UNLIMITED));
    let middle = scratch
        .text(
            "select to_char(finished_at at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')
               from refundd.attempts order by finished_at offset 7 limit 1",
        )
        .await;
    let (before, _) = export(config.path(), &["--from", "1h", "--to", &middle]);
    let (after, _) = export(config.path(), &["--from", &middle]);
    let at: Timestamp = middle.parse().unwrap();
    let begins_there =
        after.iter().any(|row| row["ended_at"].parse::<Timestamp>().is_ok_and(|ended| ended == at));
    assert!(!before.is_empty() && begins_there, "{middle}: {after:?}");
    let ids: BTreeSet<&String> = before.iter().chain(&after).map(|row| &row["refund_id"]).collect();
    assert_eq!((before.len() + after.len(), ids.len()), (15, 15));
}

/// The last send of all carries the money, also when it is in another period.
#[tokio::test]
async fn the_money_of_a_refund_that_was_sent_in_two_periods_is_in_the_sums_of_the_later_one() {
    let scratch = Scratch::with_refunds(1).await;
    let line = |ago: &str, outcome: &str, moved_to: &str| {
        format!(
            "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, finished_at, outcome, moved_to, code)
             values (1, 'acme', 'send', 1, 1, 'a', now() - interval '{ago}', now() - interval '{ago}', '{outcome}', '{moved_to}', 'http_status')"
        )
    };
    scratch.sql(&line("80 minutes", "not_executed", "ready")).await;
    scratch.sql(&line("70 minutes", "not_executed", "ready")).await;
    scratch.sql(&line("10 minutes", "succeeded", "succeeded")).await;
    scratch.lease("true", "attempts = 1").await;
    scratch.release("true", "state = 'succeeded', settled_at = now()").await;
    let amount = scratch.number("select amount_minor from refundd.refunds").await;
    let config = file(&scratch.file("a", UNLIMITED));
    let (_, before) = export(config.path(), &["--from", "90m", "--to", "1h"]);
    assert!(before.contains(&format!("EUR: 2 sends of 1 refund, {amount} in minor units")), "{before}");
    assert!(before.contains(&format!("counted in a later period: 1 refund, {amount}")), "{before}");
    assert!(!before.contains("succeeded now"), "{before}");
    let (_, after) = export(config.path(), &["--from", "1h"]);
    assert!(
        after.contains(&format!("succeeded now: 1 refund, {amount}")) && !after.contains("counted in"),
        "{after}"
    );
    let (_, both) = export(config.path(), &["--from", "90m"]);
    assert!(both.contains(&format!("EUR: 3 sends of 1 refund, {amount} in minor units")), "{both}");
    assert!(
        both.contains(&format!("succeeded now: 1 refund, {amount}")) && !both.contains("counted in"),
        "{both}"
    );
}

/// The line of the lapsed lease is in no export, so it is no send of its period.
#[tokio::test]
async fn a_refund_whose_next_send_was_written_after_the_period_is_in_the_sums_as_sent_again() {
    let scratch = Scratch::with_refunds(1).await;
    let line = |epoch: i64, ago: &str, outcome: &str, moved_to: &str, code: &str| {
        format!(
            "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, finished_at, outcome, moved_to, code)
             values (1, 'acme', 'send', {epoch}, {epoch}, 'a', case when '{code}' <> 'lease_lapsed' then now() - interval '80 minutes' end,
                     now() - interval '{ago}', '{outcome}', {moved_to}, '{code}')"
        )
    };
    scratch.sql(&line(1, "80 minutes", "not_executed", "'ready'", "http_status")).await;
    scratch.sql(&line(2, "70 minutes", "unknown", "'unknown'", "lease_lapsed")).await;
    scratch.sql(&line(2, "10 minutes", "succeeded", "null", "succeeded")).await;
    let amount = scratch.number("select amount_minor from refundd.refunds").await;
    let config = file(&scratch.file("a", UNLIMITED));
    for (period, words) in [
        (&["--from", "90m", "--to", "1h"][..], "counted in a later period"),
        (&["--from", "1h"], "still open"),
    ] {
        let (rows, said) = export(config.path(), period);
        assert_eq!(rows.len(), 1, "{said}");
        assert!(said.contains(&format!("EUR: 1 send of 1 refund, {amount} in minor units")), "{said}");
        assert!(said.contains(&format!("{words}: 1 refund, {amount}")), "{said}");
    }
}

#[tokio::test]
async fn an_export_that_is_cut_off_has_no_sums_and_fails() {
    let scratch = Scratch::with_refunds(1).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_refundd"));
    command.args(["export", "--channel", "acme", "--from", "1h", "--config"]).arg(config.path());
    command.stdout(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let output = command.stderr(std::process::Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("there are no sums") && !said.contains("in minor units"), "{said}");
}

#[tokio::test]
async fn a_lapsed_send_is_exported_once_and_one_that_was_handed_back_is_not() {
    let scratch = Scratch::with_refunds(3).await;
    let line = |refund: i64, started: &str, outcome: &str, moved_to: &str, code: &str| {
        format!(
            "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, outcome, moved_to, code)
             values ({refund}, 'acme', 'send', 1, 1, 'a', {started}, '{outcome}', {moved_to}, '{code}')"
        )
    };
    scratch.sql(&line(1, "null", "unknown", "'unknown'", "lease_lapsed")).await;
    scratch.sql(&line(1, "now()", "succeeded", "null", "succeeded")).await;
    scratch.sql(&line(2, "null", "unknown", "'unknown'", "lease_lapsed")).await;
    scratch.sql(&line(3, "null", "not_executed", "'ready'", "permit_lapsed")).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let (rows, said) = export(config.path(), &["--from", "1h"]);
    let sent: Vec<(&str, &str)> =
        rows.iter().map(|row| (row["refund_id"].as_str(), row["code"].as_str())).collect();
    assert_eq!(sent, [("1", "succeeded"), ("2", "lease_lapsed")], "{said}");
}

#[tokio::test]
async fn a_period_that_cannot_be_exported_whole_is_refused() {
    let scratch = Scratch::with_refunds(1).await;
    let config = file(&scratch.file("a", UNLIMITED));
    for (args, words) in [
        (&["--channel", "amce", "--from", "1h"][..], "there are: acme"),
        (&["--channel", "acme", "--from", "1h", "--to", "2999-01-01T00:00:00Z"], "is not over yet"),
        (&["--channel", "acme", "--from", "now", "--to", "1h"], "the period is empty"),
    ] {
        let output = refundd(config.path(), &[&["export"], args].concat());
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(text(&output).contains(words), "{}", text(&output));
    }
    let output = refundd(config.path(), &["export", "--channel", "acme"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
}

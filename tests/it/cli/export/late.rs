//! Lines that come late: the export follows the order of the sends and not that of the lines, and says what a late answer contradicts.

use refundd::prove::Period;
use refundd::store::{SentAgain, SentLine};

use super::{both_units, export, export_of};
use crate::cli::file;
use crate::dispatch::UNLIMITED;
use crate::harness::Scratch;

/// A line of the journal about a send: of refund 1 unless it says otherwise, written now and dated so many minutes ago.
struct Line {
    refund: i64,
    channel: &'static str,
    epoch: i64,
    node: &'static str,
    minutes_ago: u32,
    outcome: &'static str,
    moved_to: Option<&'static str>,
    code: &'static str,
    message: &'static str,
}

impl Line {
    fn new(epoch: i64, node: &'static str, minutes_ago: u32, outcome: &'static str) -> Line {
        Line {
            refund: 1,
            channel: "acme",
            epoch,
            node,
            minutes_ago,
            outcome,
            moved_to: None,
            code: "http_status",
            message: "",
        }
    }

    /// The line of a lease that lapsed.
    fn lapsed(epoch: i64, holder: &'static str, minutes_ago: u32) -> Line {
        let line = Line::new(epoch, holder, minutes_ago, "unknown");
        Line { moved_to: Some("unknown"), code: "lease_lapsed", ..line }
    }

    async fn write(self, scratch: &Scratch) {
        let Line { refund, channel, epoch, node, minutes_ago, outcome, moved_to, code, message } = self;
        let moved_to = moved_to.map_or_else(|| "null".to_owned(), |state| format!("'{state}'"));
        scratch
            .sql(&format!(
                "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, finished_at, outcome, moved_to, code, message)
                 select {refund}, '{channel}', 'send', {epoch}, {epoch}, '{node}', case when '{code}' <> 'lease_lapsed' then dated end, dated, '{outcome}', {moved_to}, '{code}',
                        nullif('{message}', '')
                   from (values (now() - interval '{minutes_ago} minutes')) as t (dated)"
            ))
            .await;
    }
}

/// The refund was sent under this epoch, and the bank executed it under this reference.
async fn succeeds(scratch: &Scratch, refund: i64, epoch: i64, bank_ref: &str) {
    let sending =
        format!("state = 'sending', lease_epoch = {epoch}, lease_node = 'a#1/2', lease_until = now()");
    scratch.sql(&format!("update refundd.refunds set {sending} where id = {refund}")).await;
    let over = "lease_node = null, lease_until = null, settled_at = now()";
    scratch
        .sql(&format!(
            "update refundd.refunds set state = 'succeeded', bank_ref = '{bank_ref}', {over} where id = {refund}"
        ))
        .await;
}

async fn amount(scratch: &Scratch, refund: i64) -> i64 {
    scratch.number(&format!("select amount_minor from refundd.refunds where id = {refund}")).await
}

const EARLIER: &[&str] = &["--from", "90m", "--to", "1h"];

#[tokio::test]
async fn the_money_is_in_the_period_of_the_last_send_also_when_the_line_of_an_earlier_send_comes_later() {
    let scratch = Scratch::with_refunds(1).await;
    Line::lapsed(1, "a#1/1", 80).write(&scratch).await;
    let succeeded = Line::new(2, "a#1", 70, "succeeded");
    Line { moved_to: Some("succeeded"), ..succeeded }.write(&scratch).await;
    succeeds(&scratch, 1, 2, "R2").await;
    // The node's own line about the first send.
    Line::new(1, "a#1", 10, "not_executed").write(&scratch).await;
    let amount = both_units(amount(&scratch, 1).await, "EUR");
    let config = file(&scratch.file("a", UNLIMITED));
    for (period, there, not_there) in [
        (EARLIER, "succeeded now", "counted in"),
        (&["--from", "1h"], "counted in an earlier period", "succeeded now"),
        (&["--from", "90m"], "succeeded now", "counted in"),
    ] {
        let (rows, said) = export(config.path(), period);
        assert_eq!(rows.len(), if period[1] == "90m" && period.len() == 2 { 2 } else { 1 }, "{said}");
        assert!(said.contains(&format!("{there}: 1 refund, {amount}\n")), "{period:?}: {said}");
        assert!(!said.contains(not_there), "{period:?}: {said}");
    }
}

#[tokio::test]
async fn the_sums_name_the_refunds_that_a_late_answer_contradicts() {
    let scratch = Scratch::with_refunds(3).await;
    for refund in 1..=2 {
        let not_executed = Line::new(1, "a#1", 50, "not_executed");
        Line { refund, moved_to: Some("ready"), ..not_executed }.write(&scratch).await;
        let succeeded = Line::new(2, "a#1", 40, "succeeded");
        Line { refund, moved_to: Some("succeeded"), ..succeeded }.write(&scratch).await;
        succeeds(&scratch, refund, 2, &format!("R2-{refund}")).await;
    }
    let said_paid = Line::new(1, "b#2", 30, "succeeded");
    Line { refund: 2, message: "paid; bank reference R1", ..said_paid }.write(&scratch).await;
    let events = "select count(*) from refundd.events where kind = 'late_answer_differs' and refund_id = 2";
    assert_eq!(scratch.number(events).await, 1);
    let config = file(&scratch.file("a", UNLIMITED));
    let (rows, said) = export(config.path(), &["--from", "1h"]);
    assert_eq!(rows.len(), 5, "{said}");
    let contradicted = format!(
        "contradicted by a late answer: 1 refund, {} (see `refundd log --kind late_answer_differs`)\n",
        both_units(amount(&scratch, 2).await, "EUR")
    );
    assert!(said.contains(&contradicted) && said.contains("5 sends of 2 refunds"), "{said}");
    for row in &rows {
        assert_eq!(row["contradicted"], if row["refund_id"] == "2" { "yes" } else { "" }, "{row:?}");
    }
    // The refund has a line in each of three periods, and its money is in the middle one alone.
    for (period, counts) in [
        (&["--from", "60m", "--to", "45m"][..], false),
        (&["--from", "45m", "--to", "35m"], true),
        (&["--from", "35m"], false),
    ] {
        let (rows, said) = export(config.path(), period);
        assert!(rows.iter().any(|row| row["contradicted"] == "yes"), "{period:?}: {said}");
        assert_eq!(said.contains(&contradicted), counts, "{period:?}: {said}");
        assert_eq!(said.contains("contradicted"), counts, "{period:?}: {said}");
    }
}

/// A failover that loses a claim gives its epoch to the next one.
#[tokio::test]
async fn the_line_of_a_lapsed_lease_gives_way_to_its_own_process_alone() {
    let scratch = Scratch::with_refunds(2).await;
    Line::lapsed(1, "b#2/7", 80).write(&scratch).await;
    Line::new(1, "a#1", 10, "succeeded").write(&scratch).await;
    // Names of nodes may have a slash.
    Line { refund: 2, ..Line::lapsed(1, "eu/b#2/7", 80) }.write(&scratch).await;
    Line { refund: 2, ..Line::new(1, "eu/b#2", 10, "unknown") }.write(&scratch).await;
    let config = file(&scratch.file("a", UNLIMITED));
    for (period, expected) in [(EARLIER, &["1"][..]), (&["--from", "1h"], &["1", "2"])] {
        let (rows, said) = export(config.path(), period);
        let refunds: Vec<&str> = rows.iter().map(|row| row["refund_id"].as_str()).collect();
        assert_eq!(refunds, expected, "{period:?}: {said}");
    }
}

/// A fail-over loses the claims of two sends to `acme`. Their refunds move, and get the same epoch on `slow`.
#[tokio::test]
async fn the_late_line_of_another_channel_takes_no_money_out_of_the_sums_of_the_bank_that_paid() {
    let scratch = Scratch::with_refunds(2).await;
    scratch.publish("slow").await;
    scratch.sql("select from refundd.move(array[1, 2], 'acme', 'slow', 'acme is closed', 'ann')").await;
    let paid = Line::new(1, "b#1", 30, "succeeded");
    Line { channel: "slow", moved_to: Some("succeeded"), ..paid }.write(&scratch).await;
    succeeds(&scratch, 1, 1, "S-1").await;
    Line { refund: 2, channel: "slow", ..Line::lapsed(1, "a#1/7", 30) }.write(&scratch).await;
    for refund in 1..=2 {
        let late = Line::new(1, "a#1", 10, "succeeded");
        Line { refund, message: "paid; bank reference A-1", ..late }.write(&scratch).await;
    }
    let (first, second) = (amount(&scratch, 1).await, amount(&scratch, 2).await);
    let both = both_units(first + second, "EUR");
    let config = file(&scratch.file("a", UNLIMITED));
    let request_id = scratch.text("select request_id::text from refundd.refunds where id = 1").await;

    let (rows, said) = export_of("slow", config.path(), &["--from", "1h"]);
    assert!(said.contains(&format!("EUR: 2 sends of 2 refunds, {both}\n")), "{said}");
    assert!(said.contains(&format!("succeeded now: 1 refund, {}\n", both_units(first, "EUR"))), "{said}");
    assert!(said.contains(&format!("still open: 1 refund, {}\n", both_units(second, "EUR"))), "{said}");
    assert!(!said.contains("another channel"), "{said}");
    assert_eq!((&*rows[0]["request_id"], &*rows[0]["bank_ref"]), (&*request_id, "S-1"), "{rows:?}");

    let (rows, said) = export_of("acme", config.path(), &["--from", "1h"]);
    let apart = format!("the refund is on another channel now: 2 refunds, {both} (ask this bank");
    assert!(said.contains(&format!("EUR: 2 sends of 2 refunds, {both}\n")), "{said}");
    assert!(said.contains(&apart) && !said.contains("succeeded now"), "{said}");
    assert_eq!(rows.len(), 2, "{said}");
    for row in &rows {
        assert_eq!(
            (&*row["request_id"], &*row["bank_ref"], &*row["outcome"]),
            ("", "", "succeeded"),
            "{row:?}"
        );
    }
}

/// The first page leaves the refund to the line of a lapsed lease on the second page. Then the node's own line comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_comes_between_two_pages_takes_no_refund_out_of_the_sums() {
    let scratch = Scratch::with_refunds(1).await;
    let not_executed = Line::new(1, "a#1", 20, "not_executed");
    Line { moved_to: Some("ready"), ..not_executed }.write(&scratch).await;
    scratch.sql("select setval('refundd.attempts_id_seq', 15000)").await;
    Line::lapsed(2, "a#1/2", 10).write(&scratch).await;
    let now = scratch.store.now().await.unwrap().as_microsecond();
    let period = Period { from_us: now - 3_600_000_000, to_us: now };
    let (mut pages, mut sends) = (0, Vec::new());
    let see = |lines: &[SentLine], _: i64| {
        if pages == 0 {
            let own = Line::new(2, "a#1", 0, "unknown").write(&scratch);
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(own));
        }
        pages += 1;
        sends.extend(lines.iter().map(|line| (line.number, line.again)));
        true
    };
    scratch.store.each_page_of_sent("acme", period, now, see).await.unwrap();
    // The next period has the node's own line, and the money with it.
    assert_eq!((pages, sends), (2, vec![(1, SentAgain::InThePeriod), (2, SentAgain::Later)]));
}

/// The bank paid at the first send and said 500. It refused the resend with a 429, and its statement has the first day.
#[tokio::test]
async fn a_resend_that_provably_executed_nothing_leaves_the_money_in_the_period_of_the_send_before() {
    let scratch = Scratch::with_refunds(1).await;
    let unknown = Line::new(1, "a#1", 80, "unknown");
    Line { moved_to: Some("unknown"), ..unknown }.write(&scratch).await;
    let not_executed = Line::new(2, "a#1", 10, "not_executed");
    Line { moved_to: Some("unknown"), ..not_executed }.write(&scratch).await;
    succeeds(&scratch, 1, 2, "R1").await;
    let amount = both_units(amount(&scratch, 1).await, "EUR");
    let config = file(&scratch.file("a", UNLIMITED));
    for (period, there, not_there) in [
        (EARLIER, "succeeded now", "counted in"),
        (&["--from", "1h"], "counted in an earlier period", "succeeded now"),
        (&["--from", "90m"], "succeeded now", "counted in"),
    ] {
        let (_, said) = export(config.path(), period);
        assert!(said.contains(&format!("{there}: 1 refund, {amount}\n")), "{period:?}: {said}");
        assert!(!said.contains(not_there), "{period:?}: {said}");
    }
}

/// As an export of a past period does not wait for what is written just now.
#[tokio::test]
async fn a_send_that_is_too_new_to_be_waited_for_takes_the_money_to_its_own_period() {
    let scratch = Scratch::with_refunds(1).await;
    let unknown = Line::new(1, "a#1", 80, "unknown");
    Line { moved_to: Some("unknown"), ..unknown }.write(&scratch).await;
    let succeeded = Line::new(2, "a#1", 10, "succeeded");
    Line { moved_to: Some("succeeded"), ..succeeded }.write(&scratch).await;
    succeeds(&scratch, 1, 2, "R2").await;
    let now = scratch.store.now().await.unwrap().as_microsecond();
    let ago = |minutes: i64| now - minutes * 60_000_000;
    for (period, whole_us, expected) in [
        (Period { from_us: ago(90), to_us: ago(60) }, ago(30), SentAgain::Later),
        (Period { from_us: ago(60), to_us: now }, now, SentAgain::No),
    ] {
        let mut sends = Vec::new();
        let see = |lines: &[SentLine], _: i64| {
            sends.extend(lines.iter().map(|line| line.again));
            true
        };
        scratch.store.each_page_of_sent("acme", period, whole_us, see).await.unwrap();
        assert_eq!(sends, [expected], "{period:?}");
    }
}

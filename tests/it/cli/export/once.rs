//! The money of each refund is in the sums of one period, in whatever order its sends and their lines come.

use std::collections::BTreeMap;

use refundd::prove::Period;
use refundd::store::{SentAgain, SentLine};

use crate::harness::Scratch;

/// Refund n + 1 has the n-th of all histories: a send, a lease that lapsed with the late line of its node, and one more send. Each
/// line is in one of three periods, and each send may have been executed, or was not.
const HISTORIES: &str = "
    insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, finished_at, outcome, code)
    select n + 1, 'acme', 'send', epoch, epoch, node, case when code <> 'lease_lapsed' then dated end, dated, outcome, code
      from generate_series(0, 647) n,
           lateral (values
               (1, 'a#1', n % 3, case n / 3 % 2 when 0 then 'unknown' else 'not_executed' end, 'http_status'),
               (2, 'a#1/2', n / 6 % 3, 'unknown', 'lease_lapsed'),
               (2, 'a#1', n / 18 % 3, case n / 54 % 2 when 0 then 'unknown' else 'not_executed' end, 'http_status'),
               (3, 'a#1', n / 108 % 3, case n / 324 % 2 when 0 then 'unknown' else 'not_executed' end, 'http_status')
           ) as line (epoch, node, nth, outcome, code),
           lateral (values (now() - (80 - 30 * nth) * interval '1 minute')) as t (dated)";

#[tokio::test]
async fn the_money_of_each_refund_is_in_the_sums_of_one_period_alone() {
    let scratch = Scratch::with_refunds(648).await;
    scratch.sql(HISTORIES).await;
    let now = scratch.store.now().await.unwrap().as_microsecond();
    let ends = [90, 60, 30, 0].map(|minutes: i64| now - minutes * 60_000_000);
    // Exports that look at all lines, and those that are made when the period has just ended.
    for looks_ahead in [true, false] {
        let mut counted: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        let mut may_be_executed = BTreeMap::new();
        for end in ends.windows(2) {
            let period = Period { from_us: end[0], to_us: end[1] };
            let whole_us = if looks_ahead { now } else { period.to_us };
            let see = |lines: &[SentLine], _: i64| {
                for line in lines {
                    let refund = line.refund.0;
                    *may_be_executed.entry(refund).or_insert(false) |= line.outcome != "not_executed";
                    if line.again == SentAgain::No {
                        counted.entry(refund).or_default().push(line.outcome.clone());
                    }
                }
                true
            };
            scratch.store.each_page_of_sent("acme", period, whole_us, see).await.unwrap();
        }
        assert_eq!(counted.len(), 648, "looks ahead: {looks_ahead}");
        for (refund, outcomes) in counted {
            assert_eq!(outcomes.len(), 1, "refund {refund}, looks ahead: {looks_ahead}: {outcomes:?}");
            // A send that executed nothing carries no money while another one may have.
            let is_harmless = outcomes[0] == "not_executed";
            assert!(!looks_ahead || is_harmless != may_be_executed[&refund], "refund {refund}: {outcomes:?}");
        }
    }
}

#[tokio::test]
async fn an_export_of_many_days_has_every_send_also_where_ids_and_times_are_in_different_orders() {
    let scratch = Scratch::with_refunds(6).await;
    // The first two and the last two lines are dated in the middle, as after steps of the clock. Before the middle is a gap.
    scratch
        .sql(
            "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, finished_at, outcome, code)
             select nth, 'acme', 'send', 1, 1, 'a#1', dated, dated, 'unknown', 'http_status'
               from unnest(array[20, 21, 200, 3, 19, 20]) with ordinality as line (days, nth),
                    lateral (values (now() - days * interval '1 day')) as t (dated)
              order by nth",
        )
        .await;
    let now = scratch.store.now().await.unwrap().as_microsecond();
    let day_us: i64 = 24 * 60 * 60 * 1_000_000;
    for (days, expected) in [(300, &[1, 2, 3, 4, 5, 6][..]), (30, &[1, 2, 4, 5, 6][..]), (10, &[4][..])] {
        let period = Period { from_us: now - days * day_us, to_us: now };
        let mut seen = Vec::new();
        let see = |lines: &[SentLine], _: i64| {
            seen.extend(lines.iter().map(|line| line.refund.0));
            true
        };
        scratch.store.each_page_of_sent("acme", period, now, see).await.unwrap();
        assert_eq!(seen, expected, "{days} days");
    }
}

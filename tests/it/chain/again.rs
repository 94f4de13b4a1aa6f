//! Lines that are sealed again, and lines that a note calls dropped: an owner who lowers `refundd.sealing` has a node seal what was
//! changed since, with a chain that is sound by itself.

use std::collections::BTreeSet;

use super::sealing::with_an_old_month;
use super::{HASH, attack, copy_of, first_fault, lines, seal, sealed_journal};
use crate::cli::text;
use crate::harness::Scratch;
use crate::prove::{json, prove};

/// The kinds of faults that the first ten of each channel have, and the seals that repeat lines.
fn kinds(scratch: &Scratch) -> (BTreeSet<String>, BTreeSet<i64>) {
    let page = json(&prove(scratch, &["--journal", "--json"]));
    let channels = page["channels"].as_array().unwrap();
    let faults = || channels.iter().flat_map(|channel| channel["faults"]["first"].as_array().unwrap());
    let repeated = faults().filter(|fault| fault["fault"] == "seal_repeated");
    (
        faults().map(|fault| fault["fault"].as_str().unwrap().to_owned()).collect(),
        repeated.map(|fault| fault["seal"].as_i64().unwrap()).collect(),
    )
}

#[tokio::test]
async fn a_line_that_is_changed_and_sealed_again_is_named_and_so_are_the_new_seals() {
    let whole = sealed_journal().await;
    whole.store.close().await;
    // The last one seals in four calls, between the seals of before.
    for (until_id, most, line, of_seal, again) in
        [(0, 1000, 5, 1, 4..=4), (0, 10, 5, 1, 4..=5), (16, 1000, 17, 3, 4..=4), (8, 3, 10, 2, 4..=7)]
    {
        let copy = copy_of(&whole).await;
        attack(
            &copy,
            &format!(
                "update refundd.attempts set outcome = 'unknown' where id = {line};
                 update refundd.sealing set until_id = {until_id}"
            ),
        )
        .await;
        while !copy.store.seal_journal(most).await.unwrap().is_done {}
        // The chain goes on behind them.
        lines(&copy, 2).await;
        assert_eq!(seal(&copy).await, 2);
        let (fault, at_line, at_seal, page) = first_fault(&copy, &["--journal"]);
        assert_eq!((fault.as_str(), at_line, at_seal), ("line_changed", Some(line), Some(of_seal)), "{page}");
        let (faults, repeated) = kinds(&copy);
        assert_eq!(faults, BTreeSet::from(["line_changed", "seal_repeated"].map(str::to_owned)), "{page}");
        assert_eq!(repeated, again.collect::<BTreeSet<i64>>(), "{page}");
        let said = text(&prove(&copy, &["--journal"]));
        assert!(said.contains("has lines that were sealed before"), "{said}");
    }
}

#[tokio::test]
async fn a_lowered_end_of_sealing_and_a_seal_that_does_not_fit_its_lines_are_named() {
    let whole = sealed_journal().await;
    whole.store.close().await;
    let by_hand = |change: &str| {
        format!(
            "update refundd.seals set {change} where channel = 'acme' and number = 3;
             update refundd.seals set hash = {HASH} where channel = 'acme' and number = 3"
        )
    };
    let lowered = "update refundd.sealing set until_id = 8";
    for (sql, fault, line, at_seal) in [
        (lowered.to_owned(), "seal_ahead", None, Some(3)),
        // What stands behind it is compared all the same.
        (
            format!("{lowered}; update refundd.attempts set code = 'x' where id = 17"),
            "line_changed",
            Some(17),
            Some(3),
        ),
        (by_hand("total = total + 1"), "seal_unfit", None, Some(3)),
        (by_hand("after_id = 17"), "seal_unfit", None, Some(3)),
    ] {
        let copy = copy_of(&whole).await;
        attack(&copy, &sql).await;
        let (found, at_line, seal, page) = first_fault(&copy, &["--journal"]);
        assert_eq!((found.as_str(), at_line, seal), (fault, line, at_seal), "{sql}: {page}");
    }
}

#[tokio::test]
async fn a_call_that_seals_lines_of_three_months_makes_a_whole_chain() {
    let scratch = sealed_journal().await;
    for _ in 0..2 {
        let months = "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, finished_at)
                      select 1, 'acme', 'manual', 0, 1, 'ann', 'decided', now() - n * interval '31 days' from generate_series(0, 2) n";
        scratch.sql(months).await;
        lines(&scratch, 3).await;
        assert_eq!(seal(&scratch).await, 6);
        let of_one_call = "select count(*) from refundd.seals where channel = 'acme' and to_id = (select max(to_id) from refundd.seals)";
        assert_eq!(scratch.number(of_one_call).await, 3);
    }
    let output = prove(&scratch, &["--journal"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}

#[tokio::test]
async fn lines_of_a_month_that_is_noted_as_dropped_are_named() {
    let scratch = with_an_old_month().await;
    let note = "insert into refundd.dropped_months
                values (null, date_trunc('month', now(), 'UTC') - interval '2 months', now(), interval '30 days')";
    attack(&scratch, &format!("delete from refundd.attempts where id = 5; {note}")).await;
    let (fault, line, at_seal, page) = first_fault(&scratch, &["--journal"]);
    assert_eq!((fault.as_str(), line, at_seal), ("line_not_dropped", Some(1), Some(1)), "{page}");
    let page = json(&prove(&scratch, &["--journal", "--json"]));
    assert_eq!(page["channels"][0]["faults"]["count"], 9, "{page}");
    let said = text(&prove(&scratch, &["--journal"]));
    assert!(said.contains("left       line 1 of refund ") && said.contains("noted as dropped"), "{said}");
}

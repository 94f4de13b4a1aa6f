//! The sums of an export: each refund once, by currency, by who ended it and by its state now.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::refund::text::counted;
use crate::refund::{State, in_both_units};
use crate::store::{EndedBy, SentAgain, SentLine};

/// The sums of one currency.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    sends: u64,
    /// The refunds of each state and by who ended them, and their sum. A sum may be more than any one amount can be.
    refunds: BTreeMap<(Option<EndedBy>, State), (u64, i128)>,
    /// The refunds that a later period counts, and their sum: they were sent again, or the line of a send came late.
    later: (u64, i128),
    /// The same of those that an earlier period counts: the line of a send came late, or their sends of this period provably executed nothing.
    before: (u64, i128),
    /// The refunds that are on another channel now, and their sum. What became of them there is not this bank's word.
    elsewhere: (u64, i128),
    /// The refunds that a late answer contradicts, and their sum. They are among `refunds` or `elsewhere`, too: periods that
    /// touch each other count each of them once.
    contradicted: (u64, i128),
}

/// The sums of each currency.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sums(BTreeMap<String, Sum>);

impl Sums {
    pub(super) fn add(&mut self, line: &SentLine) {
        let sum = self.0.entry(line.money.currency.clone()).or_default();
        sum.sends += 1;
        let count = |(refunds, amount): &mut (u64, i128)| {
            *refunds += 1;
            *amount += i128::from(line.money.amount_minor);
        };
        if line.is_contradicted && line.again == SentAgain::No {
            count(&mut sum.contradicted);
        }
        count(match line.again {
            SentAgain::No if line.is_elsewhere => &mut sum.elsewhere,
            SentAgain::No => sum.refunds.entry((line.ended_by, line.state)).or_default(),
            SentAgain::Before => &mut sum.before,
            SentAgain::Later => &mut sum.later,
            SentAgain::InThePeriod => return,
        });
    }
}

/// Who ended refunds, in words.
const WHO: [(Option<EndedBy>, &str); 5] = [
    (Some(EndedBy::Bank), "the bank said so"),
    (Some(EndedBy::Person), "a person decided"),
    (Some(EndedBy::Canceller), "a person or a program cancelled it"),
    (Some(EndedBy::Refundd), "the deadline passed before it was sent again"),
    (None, "still open"),
];

pub(super) fn shown_sums(sums: &Sums) -> String {
    let mut text = String::new();
    for (currency, Sum { sends, refunds, later, before, elsewhere, contradicted }) in &sums.0 {
        let of = |is_wanted: &dyn Fn(Option<EndedBy>) -> bool| {
            let wanted = refunds.iter().filter(|((by, _), _)| is_wanted(*by));
            wanted.fold((0, 0), |(count, amount), (_, (n, sum))| (count + n, amount + sum))
        };
        let (count, amount) = of(&|_| true);
        let apart = [later, before, elsewhere];
        let (count, amount) =
            apart.iter().fold((count, amount), |(count, amount), (n, sum)| (count + n, amount + sum));
        let (sends, count) = (counted(*sends, "send"), counted(count, "refund"));
        let sum = |amount: i128| in_both_units(amount, currency);
        let _ = writeln!(text, "{currency}: {sends} of {count}, {}", sum(amount));
        for (who, words) in WHO {
            let (count, amount) = of(&|by| by == who);
            if count == 0 && matches!(who, Some(EndedBy::Canceller | EndedBy::Refundd)) {
                continue;
            }
            let _ = writeln!(text, "    {words}: {}, {}", counted(count, "refund"), sum(amount));
            for ((_, state), (count, amount)) in refunds.iter().filter(|((by, _), _)| *by == who) {
                let _ =
                    writeln!(text, "        {state} now: {}, {}", counted(*count, "refund"), sum(*amount));
            }
        }
        for (words, (count, amount), where_to_look) in [
            ("counted in a later period", later, ""),
            ("counted in an earlier period", before, ""),
            (
                "the refund is on another channel now",
                elsewhere,
                " (ask this bank about these sends, unless they are `not_executed`)",
            ),
            (
                "contradicted by a late answer",
                contradicted,
                " (see `refundd log --kind late_answer_differs`)",
            ),
        ] {
            if *count > 0 {
                let count = counted(*count, "refund");
                let _ = writeln!(text, "    {words}: {count}, {}{where_to_look}", sum(*amount));
            }
        }
    }
    if sums.0.is_empty() {
        text.push_str("nothing was sent\n");
    }
    text
}

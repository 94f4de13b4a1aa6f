//! A channel's whole backlog: the sums, the question, and the change of exactly those refunds that the sums counted.
//!
//! Refunds come into a channel while a person reads the sums: a producer's long transaction ends, or somebody moves refunds
//! here. No bound on ids keeps these out, so the ids themselves are kept.

use std::collections::HashSet;
use std::io::{IsTerminal, Write, stderr, stdin};
use std::process::ExitCode;

use anyhow::{Context, bail};

use super::{BulkWork, Manner, Words};
use crate::bulk::AT_ONCE;
use crate::cli::progress::ProgressDisplay;
use crate::cli::totals::{ExpectedTotals, Totals, part};
use crate::refund::RefundId;
use crate::refund::text::{counted, shown};
use crate::store::{Stays, WaitingSum};

/// How many refunds of a channel that stay are named.
const MOST_NAMED: usize = 1_000;

impl BulkWork<'_> {
    /// Changes a channel's backlog: the refunds that the sums count, as far as nodes do not send them meanwhile.
    pub(super) async fn channel(&mut self, channel: &str, manner: &Manner) -> anyhow::Result<ExitCode> {
        let newest = self.store.newest_refund().await?;
        let sums = if self.is_dry {
            self.bulk.sums(channel).await?
        } else {
            self.bulk.sums_with_ids(channel).await?
        };
        let goes = self.tell_sums(&sums);
        if let Some(room) = self.bulk.room().await? {
            let room = counted(room, "refund");
            println!("Channel `{}` has room for {room} (max_backlog)", self.words.target);
        }
        if manner.expect.as_ref().is_some_and(|expected| self.differs(channel, &goes, expected)) {
            eprintln!("Nothing was changed.");
            return Ok(ExitCode::FAILURE);
        }
        if self.is_dry || goes.count() == 0 {
            self.name_staying(channel, newest).await?;
            if goes.count() > 0 {
                println!("To change these totals and no others: --expect {}", goes.expected());
            }
            println!("Nothing was changed.");
            return Ok(ExitCode::SUCCESS);
        }
        if !manner.yes && !agrees(self.words)? {
            eprintln!("Nothing was changed.");
            return Ok(ExitCode::FAILURE);
        }
        let ids: Vec<RefundId> = sums.into_iter().flat_map(|sum| sum.ids).collect();
        let (mut progress, mut is_full, mut given_back) = (ProgressDisplay::new(), false, 0);
        for ids in ids.chunks(AT_ONCE) {
            let mut left: HashSet<RefundId> = ids.iter().copied().collect();
            loop {
                // What somebody has moved back since this run changed it stays.
                let rest: Vec<RefundId> = ids.iter().filter(|id| left.contains(*id)).copied().collect();
                let (ready, gone) =
                    self.bulk.these_of(channel, &rest).await.with_context(|| self.so_far())?;
                for refund in &gone {
                    self.done.add(&refund.money);
                    left.remove(&refund.id);
                }
                self.withdraw(&gone).await;
                progress.show(|| format!("{} {}", self.done.count(), self.words.done));
                // Nodes may have claimed the others, and then the next look finds none. Or the other channel has no room.
                if gone.len() == ready {
                    break;
                }
                is_full =
                    gone.is_empty() && self.bulk.room().await.with_context(|| self.so_far())? == Some(0);
                if is_full {
                    break;
                }
                tokio::task::yield_now().await;
            }
            if is_full {
                break;
            }
            let left: Vec<RefundId> = left.into_iter().collect();
            given_back += self.store.never_sent_among(&left).await.with_context(|| self.so_far())?;
        }
        progress.clear();
        self.tell(0, 0, 0);
        // All is done: a look that fails now changes nothing of it.
        if let Err(error) = self.name_staying(channel, newest).await {
            eprintln!("refundd: the refunds that stay could not be read: {error:#}");
        }
        if is_full {
            eprintln!(
                "refundd: channel `{}` has as many refunds waiting as its max_backlog allows: the other refunds stay",
                self.words.target
            );
            return Ok(ExitCode::FAILURE);
        }
        let is_all = self.tell_what_was_left(ids.len(), given_back);
        if let Err(error) = self.tell_what_came(channel).await {
            eprintln!("refundd: whether more refunds came meanwhile could not be read: {error:#}");
        }
        // A script pays the sums by another way after exit code 0.
        Ok(if is_all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Prints the sums. Answers the totals of the refunds that go.
    fn tell_sums(&self, sums: &[WaitingSum]) -> Totals {
        let mut goes = Totals::default();
        for sum in sums {
            let does = match sum.stays {
                None => {
                    goes.add_sum(&sum.currency, sum.refunds, sum.sum);
                    self.would()
                }
                Some(why) => {
                    format!("{}: {}", if sum.refunds == 1 { "stays" } else { "stay" }, self.because(why))
                }
            };
            println!("{} in all, {does}", part(&sum.currency, sum.refunds, sum.sum));
        }
        goes
    }

    /// Whether the refunds that go have other totals than a person expects. Says each difference.
    fn differs(&self, channel: &str, goes: &Totals, expected: &ExpectedTotals) -> bool {
        let place = format!("the part of channel {} that {}", shown(channel), self.would());
        let differences = expected.differences(goes, &place);
        for difference in &differences {
            eprintln!("refundd: {difference}");
        }
        !differences.is_empty()
    }

    fn would(&self) -> String {
        format!("{} {}", if self.is_dry { "would be" } else { "can be" }, self.words.done)
    }

    /// Says how many of the refunds that the sums counted were not changed. Answers whether all were.
    fn tell_what_was_left(&self, counted_by_sums: usize, still_wait: u64) -> bool {
        let left = u64::try_from(counted_by_sums).unwrap_or(u64::MAX).saturating_sub(self.done.count());
        if left > 0 {
            let were = if left == 1 { "was" } else { "were" };
            let wait = match still_wait {
                0 => String::new(),
                1 => "; 1 of them still waits, here or in another channel".to_owned(),
                many => format!("; {many} of them still wait, here or in another channel"),
            };
            eprintln!(
                "refundd: {} of these sums {were} not {}: a node claimed them, or somebody else changed them{wait}",
                counted(left, "refund"),
                self.words.done
            );
        }
        left == 0
    }

    /// Says how many refunds could go now that the sums did not count, or that a node gave back since.
    async fn tell_what_came(&self, channel: &str) -> anyhow::Result<()> {
        let sums = self.bulk.sums(channel).await?;
        let came = sums.iter().filter(|sum| sum.stays.is_none()).map(|sum| sum.refunds).sum();
        if came > 0 {
            eprintln!(
                "refundd: {} of channel {} can still be {}, and came since these sums, or a node gave {} back; {}",
                counted(came, "refund"),
                shown(channel),
                self.words.done,
                if came == 1 { "it" } else { "them" },
                self.go_on,
            );
        }
        Ok(())
    }

    /// Names the first refunds of a channel that stay.
    async fn name_staying(&self, channel: &str, newest: RefundId) -> anyhow::Result<()> {
        let mut staying = self.bulk.staying(channel, newest, MOST_NAMED + 1).await?;
        let has_more = staying.len() > MOST_NAMED;
        staying.truncate(MOST_NAMED);
        self.name(&staying);
        if has_more {
            eprintln!("refundd: more refunds of channel {} stay", shown(channel));
        }
        Ok(())
    }

    /// Why the `ready` refunds of a sum stay.
    fn because(&self, why: Stays) -> String {
        let target = self.words.target;
        match why {
            Stays::SentBefore => "sent before".to_owned(),
            Stays::DeadlinePassed => "past the deadline".to_owned(),
            Stays::AmountTooHigh => format!("above what channel `{target}` takes (max_amount_minor)"),
            Stays::CardNumber => {
                format!("it holds what looks like a card number, which channel `{target}` does not take")
            }
            Stays::State(_) | Stays::OtherChannel => "claimed meanwhile".to_owned(),
        }
    }
}

/// Asks a person about a channel's whole backlog.
fn agrees(words: Words<'_>) -> anyhow::Result<bool> {
    if !stdin().is_terminal() {
        bail!(
            "{}: look with --dry-run, and add --yes and the --expect that it shows; nothing was changed",
            words.unasked
        );
    }
    eprint!("{} [y/N] ", words.question);
    stderr().flush()?;
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

//! `acquire.rs`: permits for another service, and the requests that the other service sends under them.

use refundd::bucket::{Acquired, Purpose};
use refundd::limiter::Permit;
use refundd::store::Spent;

use crate::bank::Other;
use crate::clock::micros;
use crate::mistake::Mistake;
use crate::plan::Fault;
use crate::violation::{Checked, taken};
use crate::world::node::{AcquiredPermits, Chore, TOLERANCE};
use crate::world::{World, note};

impl World<'_> {
    /// `acquire::acquire`, up to the write to the ledger.
    pub async fn acquire(&mut self, n: usize, channel_index: usize) -> Checked<bool> {
        if !self.plan.has(Fault::Acquire) || self.calm {
            return Ok(false);
        }
        let channel = self.channel(n, channel_index);
        let Some(limit) = self.rng.choice(&channel.limits).cloned() else { return Ok(false) };
        self.say_still().await;
        let fate = self.fate();
        self.nodes[n].link.fares(fate);
        let bucket = self.nodes[n].bucket.clone();
        let want = self.rng.u32(1..=limit.rule.at_once().clamp(1, 2));
        let acquired = bucket.acquire(&limit, want, None).await;
        let sure = matches!(acquired, Ok(Acquired::Granted { .. } | Acquired::Denied { .. }));
        self.note_rule_use(std::slice::from_ref(&limit), sure);
        if matches!(acquired, Err(_) | Ok(Acquired::ClockStepped { .. })) {
            self.waste(n, channel_index);
        }
        match acquired {
            Ok(Acquired::Granted { permits, .. }) => {
                note!(
                    self,
                    "node {n} acquires of {}: {:?}",
                    limit.name,
                    permits.iter().map(Permit::describe).collect::<Vec<_>>()
                );
                self.nodes[n].acquired.push(AcquiredPermits { limit, channel_index, permits });
            }
            Ok(Acquired::Forgot(forgotten)) => {
                note!(
                    self,
                    "node {n} hears that Redis forgot {}, of which another service wants permits",
                    limit.name
                );
                self.nodes[n].worker(Purpose::Send, channel_index).chores.push_back(Chore::Adopt(forgotten));
            }
            Ok(Acquired::Denied { .. } | Acquired::Restoring | Acquired::ClockStepped { .. }) | Err(_) => {
                note!(self, "node {n} acquires nothing of {}", limit.name);
            }
        }
        Ok(true)
    }

    /// The other half of `acquire::acquire`. The caller gets its permits once they stand in the ledger, and sends
    /// within their span.
    pub async fn spend(&mut self, n: usize) -> Checked<bool> {
        if self.nodes[n].acquired.is_empty() {
            return Ok(false);
        }
        let at = self.rng.usize(0..self.nodes[n].acquired.len());
        let AcquiredPermits { limit, channel_index, permits } = self.nodes[n].acquired.remove(at);
        self.travel();
        let lost = self.troubled();
        if lost {
            self.waste(n, channel_index);
        }
        if lost && self.rng.bool() {
            return Ok(true);
        }
        self.stage.tell_time().await;
        let name = self.nodes[n].name.clone();
        let spent = taken(
            self.nodes[n].store.spend(&permits, "shop", &name, TOLERANCE + Permit::NEXT_SLOT, &[]).await,
        )?;
        self.travel();
        if matches!(spent, Spent::Paused | Spent::ClocksApart) {
            self.waste(n, channel_index);
        }
        let now = self.stage.clock.instant();
        let over = permits.iter().filter_map(|permit| permit.span).any(|span| span.closes <= now);
        match spent {
            Spent::Yes if (over && !self.is(Mistake::AcquireAnsweredLate)) || lost => {
                note!(self, "node {n}: nobody is told of what was acquired of {}", limit.name);
            }
            Spent::Yes => {
                let quick = (micros(limit.rule.lateness) / 2 - 1).clamp(0, 30_000);
                for span in permits.iter().filter_map(|permit| permit.span) {
                    let (opens, closes) = (self.stage.clock.at(span.opens), self.stage.clock.at(span.closes));
                    let first = opens.max(self.now());
                    let leaves = match self.rng.u8(0..3) {
                        0 => first,
                        1 => closes - 1,
                        _ => self.rng.i64(first..closes.max(first + 1)),
                    };
                    let arrives = leaves.max(first) + self.rng.i64(0..=quick);
                    note!(
                        self,
                        "another service sends under {}: it arrives at {:.6}",
                        limit.name,
                        arrives as f64 / 1e6
                    );
                    self.bank.others.push(Other { limit: limit.name.clone(), arrives });
                }
                self.keeps(&limit)?;
            }
            Spent::Paused => note!(self, "node {n} may acquire nothing: everything is paused"),
            Spent::ClocksApart => note!(self, "node {n} finds the clocks apart"),
            Spent::Refused => {
                for permit in permits.into_iter().take(1) {
                    let catch_up = Chore::CatchUp(std::sync::Arc::clone(&limit), permit);
                    self.nodes[n].worker(Purpose::Send, channel_index).chores.push_back(catch_up);
                }
                note!(self, "node {n} is refused what was acquired of {}", limit.name);
            }
        }
        Ok(true)
    }

    /// The node forgets at once what nobody got. Here the channel's worker does it before its next take.
    fn waste(&mut self, n: usize, channel_index: usize) {
        self.nodes[n].worker(Purpose::Send, channel_index).wasted = true;
    }
}

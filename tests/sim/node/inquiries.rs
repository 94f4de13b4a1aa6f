//! `ChannelWorker` with the work `Inquiries`, and `DuePoller` of inquiries: up to the lease of an inquiry.

use std::sync::Arc;
use std::time::Duration;

use refundd::bucket::{Bucket, End, Errand as Line, Order};
use refundd::channel::Channel;
use refundd::limiter::Permit;
use refundd::refund::RefundId;
use refundd::store::Asked;

use super::channel_worker::was_heard;
use super::{Ask, Errand, Food};
use crate::laws::{Lawful, taken};
use crate::world::{CAPACITY, Ghost, TOLERANCE, World, note};
use crate::zoo::Mistake;

impl World<'_> {
    pub fn asks_about(&self, n: usize, lane: usize) -> bool {
        self.channel(n, lane).inquiry.is_some()
    }

    /// Whether a row of a channel is to be asked about now.
    pub fn wants_to_ask(&self, lane: usize) -> bool {
        let now = self.stage.postgres_now();
        self.rows.values().any(|row| row.lane == lane && row.inquire_us.is_some_and(|at| at <= now))
    }

    /// `ChannelWorker::inquiries`: the channel with the limits that inquiries go under.
    fn asking(&self, n: usize, lane: usize) -> Option<Arc<Channel>> {
        let channel = self.channel(n, lane);
        Some(match &channel.inquiry.as_ref()?.limits {
            None => channel,
            Some(limits) => {
                Arc::new(Channel { limits: limits.clone(), adaptive: false, ..channel.as_ref().clone() })
            }
        })
    }

    /// `DuePoller::find_due`, up to the fill, for one channel.
    pub async fn look_out(&mut self, n: usize, lane: usize) -> Lawful<bool> {
        if !self.asks_about(n, lane) {
            return Ok(false);
        }
        self.nodes[n].desks[lane].look_out = self.now() + 1_000_000;
        let fate = self.fate();
        self.nodes[n].link.fares(fate);
        let channel = self.channel(n, lane).name.clone();
        let bucket = self.nodes[n].bucket.clone();
        if self.is(Mistake::AskWithoutAPermit) {
            self.take_without_a_permit(n, lane, &channel).await?;
            return Ok(true);
        }
        let Ok(lines) = bucket.look_for(Line::Inquire, std::slice::from_ref(&channel)).await else {
            return Ok(true);
        };
        if lines[0].depth >= u64::from(CAPACITY / 2) || !self.wants_to_ask(lane) {
            return Ok(true);
        }
        self.stage.tell_time().await;
        let ids = taken(self.nodes[n].store.due_inquiries(&channel, CAPACITY).await)?;
        if !ids.is_empty() {
            self.nodes[n].food.push(Food { line: Line::Inquire, channel, ids, end: End::Back });
        }
        Ok(true)
    }

    async fn take_without_a_permit(
        &mut self,
        n: usize,
        lane: usize,
        channel: &refundd::refund::ChannelName,
    ) -> Lawful<()> {
        self.stage.tell_time().await;
        let ids = taken(self.nodes[n].store.due_inquiries(channel, CAPACITY).await)?;
        if let Some(asking) = self.asking(n, lane).filter(|_| !ids.is_empty()) {
            let permit = Permit { numbers: Vec::new(), span: None };
            let taken = ids.into_iter().map(|id| (id, permit.clone())).collect();
            self.nodes[n].desks[lane].taken = Some((asking, taken));
        }
        Ok(())
    }

    /// `ChannelWorker::round`, up to the claim, with `Inquiries::take`.
    pub async fn take_to_ask(&mut self, n: usize, lane: usize) -> Lawful<bool> {
        let Some(channel) = self.asking(n, lane) else { return Ok(false) };
        let slots = self.nodes[n].slots_to_ask(lane, &channel);
        if !self.nodes[n].may_take(Line::Inquire, lane, self.now()) || slots == 0 {
            return Ok(false);
        }
        if !self.connects(n, Line::Inquire, lane) {
            return Ok(true);
        }
        let fate = self.fate();
        self.nodes[n].link.fares(fate);
        let bucket = self.nodes[n].bucket.clone();
        if self.nodes[n].desks[lane].wasted {
            if bucket.forget_long_windows(&channel.limits).await.is_err() {
                self.stumble(n, Line::Inquire, lane, "forget");
                return Ok(true);
            }
            self.nodes[n].desks[lane].wasted = false;
        }
        let order = Order { want: self.rng.u32(1..=slots), low_water: 0, haste: Bucket::MOST_HASTE };
        let took = bucket.take_inquiries(&channel, order, between(&channel)).await;
        self.asked_under(&channel.limits, was_heard(&took));
        self.took(n, Line::Inquire, lane, channel, took);
        Ok(true)
    }

    /// `ChannelWorker::claim_once` and `heed`.
    pub async fn claim_to_ask(&mut self, n: usize, lane: usize) -> Lawful<bool> {
        let Some((channel, granted)) = self.nodes[n].desks[lane].taken.take() else { return Ok(false) };
        let (leased_at, asked_at) = (self.now(), self.stage.clock.instant());
        let ahead = channel.limits.iter().map(|limit| limit.ahead).max().unwrap_or_default();
        let tolerance = TOLERANCE + ahead + Bucket::MOST_HASTE;
        let name = self.nodes[n].name.clone();
        self.travel();
        let (lost, late) = (self.troubled(), self.rng.bool());
        let ran = !lost || self.rng.bool();
        let mut claimed = None;
        if ran {
            let asked = Asked {
                channel: &channel.name,
                node: &name,
                holder: &name,
                lease: channel.lease,
                clock_tolerance: tolerance,
                taken: &granted,
                resend_within: None,
                most_sends: channel.retry.sends,
                bank_address: &channel.bank_address(),
            };
            self.stage.tell_time_and_look().await;
            claimed = Some(taken(self.nodes[n].store.claim_inquiries(&asked).await)?);
            self.observe().await?;
            self.travel();
        } else if late {
            let (holder, lease, taken) = (name.clone(), channel.lease, granted.clone());
            self.ghosts.push(Ghost {
                line: Line::Inquire,
                channel: lane,
                node: name,
                holder,
                lease,
                taken,
                more: Vec::new(),
                tolerance,
                resend_within: None,
                most_sends: channel.retry.sends,
                bank_address: channel.bank_address(),
                store: self.store_as_of_now(n),
            });
        }
        if lost {
            note!(self, "node {n} does not hear whether it may ask about {:?}", ids_of(&granted));
            self.nodes[n].desks[lane].wasted = true;
            self.stumble(n, Line::Inquire, lane, "claim");
            return Ok(true);
        }
        let Some(claimed) = claimed else { return Ok(true) };
        note!(
            self,
            "node {n} may ask about {:?}{}{}{}, spent before {:?}, stale {:?}",
            claimed.leased.iter().map(|asked| (asked.id.0, asked.number)).collect::<Vec<_>>(),
            if claimed.held_back { ", held back" } else { "" },
            if claimed.clocks_apart { ", clocks apart" } else { "" },
            if claimed.outdated { ", outdated" } else { "" },
            claimed.spent_before.iter().map(|id| id.0).collect::<Vec<_>>(),
            claimed.stale.iter().map(|id| id.0).collect::<Vec<_>>(),
        );
        let first_byte_by = asked_at + channel.lease.saturating_sub(channel.timeout + Channel::LEASE_MARGIN);
        for asked in claimed.leased {
            let Some(permit) = claimed.permits.get(&asked.id) else { continue };
            let (channel, permit) = (Arc::clone(&channel), permit.clone());
            self.nodes[n].asks.push(Ask { channel, lane, asked, permit, leased_at, first_byte_by });
        }
        let refresh = claimed.outdated || !claimed.spent_before.is_empty();
        if let Some((_, permit)) = granted.first().filter(|_| refresh) {
            for limit in &channel.limits {
                let catch_up = Errand::CatchUp(Arc::clone(limit), permit.clone());
                self.nodes[n].desks[lane].errands.push_back(catch_up);
            }
        }
        if claimed.held_back || claimed.clocks_apart || !claimed.unspent.is_empty() {
            self.nodes[n].desks[lane].wasted = true;
        }
        if claimed.held_back {
            self.hear(n).await?;
        }
        if claimed.clocks_apart {
            self.nodes[n].desks[lane].not_before = self.now() + 1_000_000;
        }
        Ok(true)
    }
}

/// `Inquiries::between`.
fn between(channel: &Channel) -> Duration {
    if channel.inquiry.as_ref().is_some_and(|inquiry| inquiry.limits.is_some()) {
        return Duration::ZERO;
    }
    channel.limits.iter().map(|limit| limit.rule.per / limit.rule.permits.max(1)).max().unwrap_or_default()
        * 10
}

fn ids_of(granted: &[(RefundId, Permit)]) -> Vec<i64> {
    granted.iter().map(|(id, _)| id.0).collect()
}

//! `ChannelWorker::round`, `claim_and_start` and `take_back`, with the work `Sends` or `Inquiries`.

use std::sync::Arc;
use std::time::Duration;

use refundd::bucket::{Bucket, BucketError, Errand as Line, Order, Take};
use refundd::channel::Channel;
use refundd::limiter::{Permit, PermitNumber, timing};
use refundd::refund::inquiry;
use refundd::refund::{Leased, RefundId};
use refundd::store::{Asked, Claimed, Store};

use super::{Ask, Back, Errand, Send};
use crate::clock::micros;
use crate::laws::{Lawful, taken};
use crate::world::{CAPACITY, Ghost, TOLERANCE, World, note};
use crate::zoo::Mistake;

fn named(numbers: &[PermitNumber]) -> String {
    let each =
        |n: &PermitNumber| format!("{}@{}#{} g{}", n.limit, n.window_start_us, n.ordinal, n.generation);
    numbers.iter().map(each).collect::<Vec<_>>().join(" ")
}

/// A refund under a lease: `Work::Leased`.
enum Begun {
    Send(Leased),
    Ask(inquiry::Asked),
}

impl Begun {
    fn id(&self) -> RefundId {
        match self {
            Begun::Send(refund) => refund.id,
            Begun::Ask(asked) => asked.id,
        }
    }
}

fn begun<T>(claimed: Claimed<T>, of: impl Fn(T) -> Begun) -> Claimed<Begun> {
    Claimed {
        leased: claimed.leased.into_iter().map(of).collect(),
        permits: claimed.permits,
        unspent: claimed.unspent,
        beyond: claimed.beyond,
        spent_before: claimed.spent_before,
        stale: claimed.stale,
        held_back: claimed.held_back,
        clocks_apart: claimed.clocks_apart,
        outdated: claimed.outdated,
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

/// Whether Redis read the rules that were asked under. Where it knows a limit no more, it looks at none after that one, and
/// tells of no line.
pub(super) fn was_heard(took: &Result<Take, BucketError>) -> bool {
    matches!(took, Ok(Take::Granted { .. } | Take::Denied { depth: Some(1..), .. }))
}

impl World<'_> {
    pub fn channel(&self, n: usize, lane: usize) -> Arc<Channel> {
        let node = &self.nodes[n];
        let files = if node.moved.contains(&lane) { &self.plan.moved } else { &self.plan.files };
        Arc::clone(&files[node.file][lane])
    }

    /// The channel with the limits that a worker goes under: `ChannelWorker::sends` and `inquiries`.
    pub(super) fn limited(&self, n: usize, line: Line, lane: usize) -> Option<Arc<Channel>> {
        let channel = self.channel(n, lane);
        if line == Line::Send {
            return Some(channel);
        }
        Some(match &channel.inquiry.as_ref()?.limits {
            None => channel,
            Some(limits) => {
                Arc::new(Channel { limits: limits.clone(), adaptive: false, ..channel.as_ref().clone() })
            }
        })
    }

    /// `ChannelWorker::round`, up to the claim.
    pub async fn take(&mut self, n: usize, line: Line, lane: usize) -> Lawful<bool> {
        let Some(channel) = self.limited(n, line, lane) else { return Ok(false) };
        let slots = self.nodes[n].slots(line, lane, &channel);
        if !self.nodes[n].may_take(line, lane, self.now()) || slots == 0 {
            return Ok(false);
        }
        if !self.connects(n, line, lane) {
            return Ok(true);
        }
        let fate = self.fate();
        self.nodes[n].link.fares(fate);
        let bucket = self.nodes[n].bucket.clone();
        if self.nodes[n].of(line, lane).wasted {
            if bucket.forget_long_windows(&channel.limits).await.is_err() {
                self.stumble(n, line, lane, "forget");
                return Ok(true);
            }
            self.nodes[n].of(line, lane).wasted = false;
        }
        let want = self.rng.u32(1..=slots);
        let took = match line {
            Line::Send => {
                let haste = Duration::from_micros(self.plan.slow.unsigned_abs() * 2 + 500);
                bucket.take(&channel, Order { want, low_water: CAPACITY / 2, haste }).await
            }
            Line::Inquire => {
                let order = Order { want, low_water: 0, haste: Bucket::MOST_HASTE };
                bucket.take_inquiries(&channel, order, between(&channel)).await
            }
        };
        self.asked_under(&channel.limits, was_heard(&took));
        self.took(n, line, lane, channel, took);
        Ok(true)
    }

    /// `Pool::reserve`: without an open connection nothing is taken, and until there is one nothing is asked for.
    pub(super) fn connects(&mut self, n: usize, line: Line, lane: usize) -> bool {
        let dial = if self.calm { 0 } else { self.plan.dial };
        let us = self.rng.i64(0..=dial);
        self.stage.clock.pass(us);
        if self.calm || !self.plan.moods.refuses(&mut self.rng) {
            return true;
        }
        let wait = self.rng.i64(200_000..=3_000_000);
        self.nodes[n].of(line, lane).not_before = self.now() + wait;
        note!(self, "node {n} finds the bank of c{lane} closed");
        false
    }

    /// What follows from a take, of either line.
    pub(super) fn took(
        &mut self,
        n: usize,
        line: Line,
        lane: usize,
        channel: Arc<Channel>,
        took: Result<Take, BucketError>,
    ) {
        let now = self.now();
        if took.is_ok() {
            self.nodes[n].clock_read = Some(self.stage.redis.steps_of_clock());
        }
        let what = if line == Line::Send { "takes" } else { "takes, to ask about," };
        let lane_of = self.nodes[n].of(line, lane);
        match took {
            Ok(Take::Granted { taken, feed, again, .. }) => {
                lane_of.not_before = again.map_or(now, |again| now + micros(again.span));
                note!(
                    self,
                    "node {n} {what} {} of c{lane}: {}",
                    taken.len(),
                    taken
                        .iter()
                        .map(|(id, p)| format!("{id} ({})", named(&p.numbers)))
                        .collect::<Vec<_>>()
                        .join(", ")
                );
                self.nodes[n].of(line, lane).taken = Some((channel, taken));
                if feed {
                    self.nodes[n].hungry.insert(lane);
                }
            }
            Ok(Take::Denied { wait, .. }) => {
                lane_of.not_before = now + micros(wait.span).clamp(1_000, micros(timing::STAYS_AWAY));
                note!(self, "node {n} is told to wait {:?} by {}", wait.span, wait.limit);
            }
            Ok(Take::Empty) => {
                // It sleeps until the bucket is filled, which the due poller of its node sees within a second.
                lane_of.not_before = now + 1_000_000;
                if line == Line::Send {
                    self.nodes[n].hungry.insert(lane);
                }
                note!(self, "node {n} finds the line of c{lane} empty");
            }
            Ok(Take::Forgot(forgotten)) => {
                note!(self, "node {n} hears that Redis forgot {}", forgotten.limit.name);
                self.nodes[n].of(line, lane).errands.push_back(Errand::Adopt(forgotten));
            }
            Ok(Take::ClockStepped { by_us }) => {
                lane_of.wasted = true;
                note!(self, "node {n} notices that Redis's clock was set by {by_us} us");
            }
            Err(_) => {
                lane_of.wasted = true;
                self.stumble(n, line, lane, "take");
            }
        }
    }

    /// For a statement that is said now and runs later.
    pub(super) fn store_as_of_now(&self, n: usize) -> Store {
        let (store, now) = (self.nodes[n].store.clone(), self.stage.clock.instant());
        match store.clock_witness().map(|witness| witness.as_of(now)) {
            Some(witness) => store.witnessed_by(witness),
            None => store,
        }
    }

    /// `ChannelWorker::claim_and_start`.
    pub async fn claim(&mut self, n: usize, line: Line, lane: usize) -> Lawful<bool> {
        let Some((channel, granted)) = self.nodes[n].of(line, lane).taken.take() else { return Ok(false) };
        let more = std::mem::take(&mut self.nodes[n].of(line, lane).more);
        let (leased_at, asked_at) = (self.now(), self.stage.clock.instant());
        let ahead = channel.limits.iter().map(|limit| limit.ahead).max().unwrap_or_default();
        let tolerance = TOLERANCE + ahead + Bucket::MOST_HASTE;
        let node = &mut self.nodes[n];
        let holder = format!("{}/{}", node.name, node.claims);
        node.claims += 1;
        let name = node.name.clone();
        if line == Line::Send && self.is(Mistake::SendBeforeTheClaim) {
            self.lease_blindly(n, lane, &channel, &granted, asked_at);
        }
        self.travel();
        let (lost, late) = (self.troubled(), self.rng.bool());
        let ran = !lost || self.rng.bool();
        let mut claimed = None;
        if ran {
            let asked = Asked {
                channel: &channel.name,
                node: &name,
                holder: &holder,
                lease: channel.lease,
                clock_tolerance: tolerance,
                taken: &granted,
                resend_within: channel.resend_within(),
                most_sends: channel.retry.sends,
                bank_address: &channel.bank_address(),
            };
            self.stage.tell_time_and_look().await;
            let store = &self.nodes[n].store;
            claimed = Some(match line {
                Line::Send => begun(taken(store.claim_among(&asked, &more).await)?, Begun::Send),
                Line::Inquire => begun(taken(store.claim_inquiries(&asked).await)?, Begun::Ask),
            });
            self.observe().await?;
            self.travel();
        } else if late {
            let taken = granted.clone();
            self.ghosts.push(Ghost {
                line,
                channel: lane,
                node: name,
                holder: holder.clone(),
                lease: channel.lease,
                taken,
                more: more.clone(),
                tolerance,
                resend_within: channel.resend_within(),
                most_sends: channel.retry.sends,
                bank_address: channel.bank_address(),
                store: self.store_as_of_now(n),
            });
        }
        if lost {
            note!(
                self,
                "node {n} does not hear of its claim {holder} ({})",
                if ran { "it was made" } else { "it was not made, so far" }
            );
            if line == Line::Send && self.is(Mistake::SendAfterALostClaim) {
                self.lease_blindly(n, lane, &channel, &granted, asked_at);
            }
            self.nodes[n].of(line, lane).wasted = true;
            if line == Line::Send {
                let ids = granted.into_iter().map(|(id, _)| id).chain(more).collect();
                let until = self.now() + micros(channel.lease);
                self.nodes[n].backs.push(Back { ids, holder, next: 0, until });
            }
            self.stumble(n, line, lane, "claim");
            return Ok(true);
        }
        let Some(mut claimed) = claimed else { return Ok(true) };
        if line == Line::Send {
            claimed.leased.sort_by_key(Begun::id);
        }
        note!(
            self,
            "node {n} claims {line:?} {:?}{}{}{}, spent before {:?}, stale {:?}",
            claimed.leased.iter().map(|leased| leased.id().0).collect::<Vec<_>>(),
            if claimed.held_back { ", held back" } else { "" },
            if claimed.clocks_apart { ", clocks apart" } else { "" },
            if claimed.outdated { ", outdated" } else { "" },
            claimed.spent_before.iter().map(|id| id.0).collect::<Vec<_>>(),
            claimed.stale.iter().map(|id| id.0).collect::<Vec<_>>(),
        );
        let first_byte_by = asked_at + channel.lease.saturating_sub(channel.timeout + Channel::LEASE_MARGIN);
        let first_byte_by = if line == Line::Send && self.is(Mistake::NoLeash) {
            first_byte_by + Duration::from_hours(1)
        } else {
            first_byte_by
        };
        for leased in claimed.leased {
            let Some(permit) = claimed.permits.get(&leased.id()).cloned() else { continue };
            let channel = Arc::clone(&channel);
            match leased {
                Begun::Send(refund) => {
                    self.nodes[n].sends.push(Send { channel, lane, refund, permit, first_byte_by });
                }
                Begun::Ask(asked) => {
                    let ask = Ask { channel, lane, asked, permit, leased_at, first_byte_by };
                    self.nodes[n].asks.push(ask);
                }
            }
        }
        let refresh = claimed.outdated || !claimed.spent_before.is_empty();
        if let Some((_, permit)) = granted.first().filter(|_| refresh) {
            for limit in &channel.limits {
                let catch_up = Errand::CatchUp(Arc::clone(limit), permit.clone());
                self.nodes[n].of(line, lane).errands.push_back(catch_up);
            }
        }
        if claimed.held_back || claimed.clocks_apart || !claimed.unspent.is_empty() {
            self.nodes[n].of(line, lane).wasted = true;
        }
        if claimed.held_back {
            self.hear(n).await?;
        }
        if claimed.clocks_apart {
            self.nodes[n].of(line, lane).not_before = self.now() + 1_000_000;
        }
        if !claimed.beyond.is_empty() {
            let fate = self.fate();
            self.nodes[n].link.fares(fate);
            let bucket = self.nodes[n].bucket.clone();
            // What is lost comes back from its row.
            bucket.put_back(&channel.name, &claimed.beyond).await.ok();
        }
        if line == Line::Send {
            self.carry_over(n, lane, channel, claimed.unspent).await;
        }
        Ok(true)
    }

    /// The rest of `ChannelWorker::claim_and_start`: permits that are left over go on to the next ids in line.
    async fn carry_over(&mut self, n: usize, lane: usize, channel: Arc<Channel>, left: Vec<Permit>) {
        let (now, late) = (self.stage.clock.instant(), self.is(Mistake::LeftOverUsedLate));
        let open: Vec<Permit> = left
            .into_iter()
            .filter_map(|permit| {
                let mut span = permit.span?;
                if late {
                    span.closes += Duration::from_hours(1);
                }
                (now < span.closes).then_some(Permit { span: Some(span), ..permit })
            })
            .collect();
        if open.is_empty() {
            return;
        }
        let fate = self.fate();
        self.nodes[n].link.fares(fate);
        let bucket = self.nodes[n].bucket.clone();
        let most = u32::try_from(open.len() * 4).unwrap_or(u32::MAX);
        let Ok((mut ids, _)) = bucket.more(&channel.name, most).await else { return };
        if ids.is_empty() {
            return;
        }
        note!(self, "node {n} goes on to {ids:?} of c{lane} with {} permits that are left over", open.len());
        let more = ids.split_off(ids.len().min(open.len()));
        let lane = &mut self.nodes[n].lanes[lane];
        lane.more = more;
        lane.taken = Some((channel, ids.into_iter().zip(open).collect()));
    }

    /// What a worker does that does not wait for its claim, or goes on without having heard of it.
    fn lease_blindly(
        &mut self,
        n: usize,
        lane: usize,
        channel: &Arc<Channel>,
        granted: &[(RefundId, Permit)],
        asked_at: std::time::Instant,
    ) {
        for (id, permit) in granted {
            let epoch = self.rows.get(&id.0).map_or(0, |row| row.epoch) + 1;
            let refund = Leased {
                id: *id,
                epoch,
                attempt: 1,
                is_resend: false,
                is_first: true,
                owed: refundd::refund::Owed {
                    refund_id: *id,
                    refund_ref: String::new(),
                    amount_minor: 0,
                    currency: String::new(),
                    bank_ref: None,
                },
                request_id: refundd::refund::RequestId(uuid::Uuid::nil()),
                body: Arc::from(Vec::new()),
            };
            let first_byte_by = asked_at + channel.timeout;
            self.nodes[n].sends.push(Send {
                channel: Arc::clone(channel),
                lane,
                refund,
                permit: permit.clone(),
                first_byte_by,
            });
        }
    }

    /// `ChannelWorker::take_back`.
    pub async fn take_back(&mut self, n: usize) -> Lawful<bool> {
        let now = self.now();
        let Some(at) = self.nodes[n].backs.iter().position(|back| back.next <= now) else { return Ok(false) };
        let mut back = self.nodes[n].backs.remove(at);
        self.travel();
        let lost = self.troubled();
        let mut found = 0;
        if !lost {
            self.stage.tell_time_and_look().await;
            found = taken(self.nodes[n].store.unclaim(&back.ids, &back.holder).await)?;
            note!(self, "node {n} takes back {found} of {:?} under {}", back.ids, back.holder);
            self.observe().await?;
        }
        if found == 0 && self.now() < back.until {
            back.next = self.now() + 1_000_000;
            self.nodes[n].backs.push(back);
        }
        Ok(true)
    }
}

//! `inquiry.rs`, `inquiry/lookout.rs` and `inquiry/ask.rs`: asking the bank what became of a refund.

use std::sync::Arc;
use std::time::Duration;

use refundd::bank::finding::finding;
use refundd::bucket::{Bucket, End, Errand as Line, Order};
use refundd::channel::Channel;
use refundd::limiter::{Permit, PermitNumber};
use refundd::refund::inquiry::{Finding, Found, Resolution};
use refundd::refund::{RefundId, State};
use refundd::store::{Asked, Inquired};

use super::{Ask, Errand, Food, Question, Word};
use crate::bank::Seen;
use crate::bank::questions::{self, Reply};
use crate::clock::micros;
use crate::laws::{Lawful, taken};
use crate::world::{CAPACITY, Ghost, TOLERANCE, World, note};
use crate::zoo::Mistake;

impl World<'_> {
    pub fn asks_about(&self, lane: usize) -> bool {
        self.plan.files[0][lane].inquiry.is_some()
    }

    /// Whether a row of a channel is to be asked about now.
    pub fn wants_to_ask(&self, lane: usize) -> bool {
        let now = self.now();
        self.rows.values().any(|row| row.lane == lane && row.inquire_us.is_some_and(|at| at <= now))
    }

    /// `Inquirer::new`: the channel with the limits that inquiries go under.
    fn asking(&self, n: usize, lane: usize) -> Option<Arc<Channel>> {
        let channel = self.channel(n, lane);
        Some(match &channel.inquiry.as_ref()?.limits {
            None => channel,
            Some(limits) => {
                Arc::new(Channel { limits: limits.clone(), adaptive: false, ..channel.as_ref().clone() })
            }
        })
    }

    /// `Lookout::feed`, the first half, for one channel.
    pub async fn look_out(&mut self, n: usize, lane: usize) -> Lawful<bool> {
        if !self.asks_about(lane) {
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
        if lines[0].depth >= u64::from(CAPACITY / 2) {
            return Ok(true);
        }
        self.stage.tell_time().await;
        let ids = taken(self.stage.store.due_inquiries(&channel, CAPACITY).await)?;
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
        let ids = taken(self.stage.store.due_inquiries(channel, CAPACITY).await)?;
        if let Some(asking) = self.asking(n, lane).filter(|_| !ids.is_empty()) {
            let permit = Permit { numbers: Vec::new(), span: None };
            let taken = ids.into_iter().map(|id| (id, permit.clone())).collect();
            self.nodes[n].desks[lane].taken = Some((asking, taken));
        }
        Ok(())
    }

    /// `Inquirer::round`, up to the claim.
    pub async fn take_to_ask(&mut self, n: usize, lane: usize) -> Lawful<bool> {
        let Some(channel) = self.asking(n, lane) else { return Ok(false) };
        let slots = self.nodes[n].slots_to_ask(lane, &channel);
        if !self.nodes[n].may_take(Line::Inquire, lane, self.now()) || slots == 0 {
            return Ok(false);
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
        self.took(n, Line::Inquire, lane, channel, took);
        Ok(true)
    }

    /// `Inquirer::claim_and_ask`.
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
            };
            self.stage.tell_time().await;
            claimed = Some(taken(self.stage.store.claim_inquiries(&asked).await)?);
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
                tolerance,
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
        let leash = asked_at + channel.lease.saturating_sub(channel.timeout + Channel::LEASE_MARGIN);
        for asked in claimed.leased {
            let Some((_, permit)) = granted.iter().find(|(id, _)| *id == asked.id) else { continue };
            let (channel, permit) = (Arc::clone(&channel), permit.clone());
            self.nodes[n].asks.push(Ask { channel, lane, asked, permit, leased_at, leash });
        }
        let refresh = claimed.outdated || !claimed.spent_before.is_empty();
        if let Some((_, permit)) = granted.first().filter(|_| refresh) {
            for limit in &channel.limits {
                let catch_up = Errand::CatchUp(Arc::clone(limit), permit.clone());
                self.nodes[n].desks[lane].errands.push_back(catch_up);
            }
        }
        if claimed.held_back || claimed.clocks_apart {
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

    /// `Ask::wait_and_ask` and `Bank::inquire`, up to the first byte.
    pub async fn ask(&mut self, n: usize) -> Lawful<bool> {
        let now = self.stage.clock.instant();
        let open: Vec<usize> = self.nodes[n]
            .asks
            .iter()
            .enumerate()
            .filter(|(_, ask)| ask.permit.span.is_none_or(|span| span.opens <= now))
            .map(|(at, _)| at)
            .collect();
        let Some(&at) = self.rng.choice(&open) else { return Ok(false) };
        let ask = self.nodes[n].asks.remove(at);
        if !self.calm && self.plan.moods.refuses(&mut self.rng) {
            let found = Found::new(Finding::Nothing, "connect_refused", "refused");
            return self.told(n, ask, found, None).await.map(|()| true);
        }
        self.travel();
        let closes = ask.permit.span.map_or(ask.leash, |span| span.closes.min(ask.leash));
        if self.stage.clock.instant() >= closes {
            let found = Found::new(Finding::HandedBack, "permit_lapsed", "the permit's span was over");
            return self.told(n, ask, found, None).await.map(|()| true);
        }
        self.may_ask(&ask).await?;
        let place = self.question(n, &ask)?;
        note!(
            self,
            "node {n} asks about refund {}, inquiry {}: the bank will say {:?}",
            ask.asked.id,
            ask.asked.number,
            self.bank.questions[place].says
        );
        self.nodes[n].questions.push(Question { ask, place });
        Ok(true)
    }

    /// The inquiry is on its way; what the bank will say is decided.
    fn question(&mut self, n: usize, ask: &Ask) -> Lawful<usize> {
        let now = self.now();
        let quick = ask.channel.limits.iter().map(|limit| micros(limit.rule.lateness) / 2 - 1).min();
        let moods = if self.calm { self.plan.moods.calm() } else { self.plan.moods.clone() };
        let is_final = ask.channel.inquiry.as_ref().is_some_and(|inquiry| inquiry.trust.not_found_is_final);
        let spans = (now, micros(ask.channel.timeout), quick.unwrap_or(30_000));
        let Ask { asked, channel, .. } = ask;
        let amount = asked.owed.amount_minor;
        let reply = Reply::draw(&moods, &mut self.rng, &self.bank, asked.id, amount, spans, is_final);
        self.bank.questions.push(questions::Question {
            refund: asked.id,
            node: n,
            process: self.nodes[n].process,
            limits: channel.limits.iter().map(|limit| limit.name.clone()).collect(),
            sent: now,
            arrives: now + reply.way,
            ends: now + reply.ends,
            says: reply.says,
            seen: reply.seen,
        });
        channel.limits.iter().try_for_each(|limit| self.keeps(limit))?;
        Ok(self.bank.questions.len() - 1)
    }

    /// `Bank::inquire` after the answer, `Ask::run` up to the settling.
    pub async fn listen(&mut self, n: usize) -> Lawful<bool> {
        let now = self.now();
        let over: Vec<usize> = self.nodes[n]
            .questions
            .iter()
            .enumerate()
            .filter(|(_, question)| self.bank.questions[question.place].ends <= now)
            .map(|(at, _)| at)
            .collect();
        let Some(&at) = self.rng.choice(&over) else { return Ok(false) };
        let Question { ask, place } = self.nodes[n].questions.remove(at);
        let Some(inquiry) = ask.channel.inquiry.clone() else { return Ok(true) };
        let mut found = match &self.bank.questions[place].seen {
            Seen::Whole { status, headers, body } => {
                finding(&inquiry, None, &ask.asked.owed, *status, headers, body)
            }
            Seen::Cut => Found::new(Finding::Nothing, "answer_lost", "the connection was cut"),
            Seen::TimeOut => Found::new(Finding::Nothing, "timeout", "no whole answer in time"),
        };
        if let Some(mistake) = self.mistake {
            mistake.hears(&mut found);
        }
        self.told(n, ask, found, Some(place)).await?;
        Ok(true)
    }

    async fn told(&mut self, n: usize, ask: Ask, found: Found, place: Option<usize>) -> Lawful<()> {
        let Ask { channel, lane, asked, permit, leased_at, .. } = ask;
        let Some(inquiry) = channel.inquiry.clone() else { return Ok(()) };
        let took = Duration::from_micros((self.now() - leased_at).unsigned_abs());
        let mut trust = inquiry.trust;
        if let Some(mistake) = self.mistake {
            mistake.trusts(&mut trust);
        }
        let jitter = self.rng.f64();
        let mut resolution =
            Resolution::of(&found.finding, &asked, took, trust, &channel.retry, channel.cool_down, jitter);
        if self.is(Mistake::NotFoundIsFailed) && found.finding == Finding::NotFound {
            resolution = Resolution { next: State::Failed, inquire_in: None, ..resolution };
        }
        note!(
            self,
            "node {n}: inquiry {} about refund {} found {}, and it goes to {}",
            asked.number,
            asked.id,
            found.code,
            resolution.next
        );
        match found.finding {
            Finding::AskedToWait { retry_after } => {
                let wait = retry_after.unwrap_or(channel.cool_down).max(Duration::from_secs(1));
                self.hold_back(n, lane, &channel.name, Some(wait)).await?;
            }
            Finding::Unauthorised => self.hold_back(n, lane, &channel.name, None).await?,
            _ => {}
        }
        let permit = (!permit.numbers.is_empty())
            .then(|| permit.numbers.iter().map(PermitNumber::describe).collect::<Vec<_>>().join(","));
        let started = place.map(|_| self.stage.clock.instant());
        let channel = channel.name.clone();
        let inquired = Inquired { asked, channel, started, permit, found, resolution };
        self.nodes[n].words.push(Word { inquired, leased_at, lane, place });
        Ok(())
    }

    /// `Ask::settle`, one try.
    pub async fn believe(&mut self, n: usize) -> Lawful<bool> {
        if self.nodes[n].words.is_empty() {
            return Ok(false);
        }
        let at = self.rng.usize(0..self.nodes[n].words.len());
        let word = self.nodes[n].words.remove(at);
        self.travel();
        let lost = self.troubled();
        if !lost || self.rng.bool() {
            self.stage.tell_time().await;
            let name = self.nodes[n].name.clone();
            let before = self.rows.get(&word.inquired.asked.id.0).cloned();
            let moved = taken(self.stage.store.settle_inquiry(&name, &word.inquired).await)?;
            note!(
                self,
                "node {n} settles inquiry {} about refund {}: {}{}",
                word.inquired.asked.number,
                word.inquired.asked.id,
                if moved { "it moves" } else { "too late" },
                if lost { ", and does not hear of it" } else { "" },
            );
            self.observe().await?;
            self.is_proved(&word, before, moved)?;
        }
        // After the lease the bank is asked again anyway.
        let lease = micros(self.plan.files[0][word.lane].lease);
        if lost && self.now() - word.leased_at <= lease {
            self.nodes[n].words.push(word);
        }
        Ok(true)
    }
}

/// `Inquirer::between`.
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

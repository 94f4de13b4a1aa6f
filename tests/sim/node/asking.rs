//! `channel_worker/inquire.rs` and `bank.rs`: one inquiry under its lease, up to its settlement.

use std::time::Duration;

use refundd::bank::finding::finding;
use refundd::limiter::PermitNumber;
use refundd::refund::inquiry::{Finding, Found, Resolution};
use refundd::refund::{Code, State};
use refundd::store::Inquired;

use super::{Ask, Question, Word};
use crate::bank::Seen;
use crate::bank::questions::{self, Reply};
use crate::clock::micros;
use crate::laws::{Lawful, taken};
use crate::plan::bank_of;
use crate::world::{World, note};
use crate::zoo::Mistake;

impl World<'_> {
    /// `Attempt::make`, `InquiryAttempt::inquire` and `Bank::inquire`, up to the first byte.
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
        // The connection in hand died meanwhile, and there is no other.
        if !self.calm && self.plan.moods.refuses(&mut self.rng) {
            let found = Found::new(Finding::HandedBack, Code::ConnectionLost, "lost before the first byte");
            return self.told(n, ask, found, None).await.map(|()| true);
        }
        self.travel();
        let closes = ask.permit.span.map_or(ask.first_byte_by, |span| span.closes.min(ask.first_byte_by));
        if self.stage.clock.instant() >= closes {
            let found = Found::new(Finding::HandedBack, Code::PermitLapsed, "the permit's span was over");
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
        let is_final = self.plan.final_after(ask.lane).is_some();
        let spans = (now, micros(ask.channel.timeout), quick.unwrap_or(30_000));
        let Ask { asked, channel, .. } = ask;
        let amount = asked.owed.amount_minor;
        let whom = (asked.id, bank_of(channel));
        let reply = Reply::draw(&moods, &mut self.rng, &self.bank, whom, amount, spans, is_final);
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

    /// `Bank::inquire` after the answer, `InquiryAttempt::run` up to the settling.
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
            Seen::Cut => Found::new(Finding::Nothing, Code::AnswerLost, "the connection was cut"),
            Seen::TimeOut => Found::new(Finding::Nothing, Code::Timeout, "no whole answer in time"),
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
                let named = retry_after.map(|wait| wait.max(Duration::from_secs(1)));
                let sent = place.map_or(self.now(), |place| self.bank.questions[place].sent);
                let age = Duration::from_micros((self.now() - sent).unsigned_abs());
                self.hold_back(n, lane, &channel, super::send::Word::Wait { named, age }).await?;
            }
            Finding::Unauthorised => self.hold_back(n, lane, &channel, super::send::Word::NotLetIn).await?,
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
            self.stage.tell_time_and_look().await;
            let name = self.nodes[n].name.clone();
            let before = self.rows.get(&word.inquired.asked.id.0).cloned();
            let moved = taken(self.nodes[n].store.settle_inquiry(&name, &word.inquired).await)?;
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

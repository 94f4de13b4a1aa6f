//! `channel_worker/inquire.rs` and `bank.rs`: one inquiry under its lease, until it is settled.

use std::time::Duration;

use refundd::bank::inquiry_outcome::read_inquiry_answer;
use refundd::limiter::PermitNumber;
use refundd::refund::inquiry::{InquiryAnswer, InquiryOutcome, InquirySettlement};
use refundd::refund::{Code, State};
use refundd::store::{Inquired, InquiryEffect};

use super::send::BankRefusal;
use crate::bank::Seen;
use crate::bank::questions::{self, Reply};
use crate::clock::micros;
use crate::mistake::Mistake;
use crate::plan::bank_of;
use crate::violation::{Checked, taken};
use crate::world::node::{Ask, InquiryFlight, UnsettledInquiry};
use crate::world::{World, note};

impl World<'_> {
    /// `Attempt::make`, `InquiryAttempt::inquire` and `Bank::inquire`, up to the first byte.
    pub async fn ask(&mut self, n: usize) -> Checked<bool> {
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
        // The open connection died meanwhile, and no other can be opened.
        if !self.calm && self.plan.moods.refuses(&mut self.rng) {
            let answer = InquiryAnswer::new(
                InquiryOutcome::HandedBack,
                Code::ConnectionLost,
                "lost before the first byte",
            );
            return self.conclude_inquiry(n, ask, answer, None).await.map(|()| true);
        }
        self.travel();
        let closes = ask.permit.span.map_or(ask.first_byte_by, |span| span.closes.min(ask.first_byte_by));
        if self.stage.clock.instant() >= closes {
            let answer = InquiryAnswer::new(
                InquiryOutcome::HandedBack,
                Code::PermitLapsed,
                "the permit's span was over",
            );
            return self.conclude_inquiry(n, ask, answer, None).await.map(|()| true);
        }
        self.may_ask(&ask).await?;
        let place = self.question(n, &ask)?;
        note!(
            self,
            "node {n} asks about refund {}, inquiry {}: the bank will say {:?}",
            ask.inquiry.id,
            ask.inquiry.number,
            self.bank.questions[place].says
        );
        self.nodes[n].inquiry_flights.push(InquiryFlight { ask, place });
        Ok(true)
    }

    /// Sends the inquiry, and decides what the bank will answer.
    fn question(&mut self, n: usize, ask: &Ask) -> Checked<usize> {
        let now = self.now();
        let quick = ask.channel.limits.iter().map(|limit| micros(limit.rule.lateness) / 2 - 1).min();
        let moods = if self.calm { self.plan.moods.calm() } else { self.plan.moods.clone() };
        let is_final = self.plan.final_after(ask.channel_index).is_some();
        let spans = (now, micros(ask.channel.timeout), quick.unwrap_or(30_000));
        let Ask { inquiry, channel, .. } = ask;
        let amount = inquiry.expected.money.amount_minor;
        let whom = (inquiry.id, bank_of(channel));
        let reply = Reply::draw(&moods, &mut self.rng, &self.bank, whom, amount, spans, is_final);
        self.bank.questions.push(questions::Question {
            refund: inquiry.id,
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

    /// `Bank::inquire` after the answer, and `InquiryAttempt::run` until it settles.
    pub async fn read_reply(&mut self, n: usize) -> Checked<bool> {
        let now = self.now();
        let over: Vec<usize> = self.nodes[n]
            .inquiry_flights
            .iter()
            .enumerate()
            .filter(|(_, flight)| self.bank.questions[flight.place].ends <= now)
            .map(|(at, _)| at)
            .collect();
        let Some(&at) = self.rng.choice(&over) else { return Ok(false) };
        let InquiryFlight { ask, place } = self.nodes[n].inquiry_flights.remove(at);
        let Some(policy) = ask.channel.inquiry.clone() else { return Ok(true) };
        let mut answer = match &self.bank.questions[place].seen {
            Seen::Whole { status, headers, body } => {
                let rules = &ask.channel.answer_rules;
                read_inquiry_answer(&policy, rules, None, &ask.inquiry.expected, *status, headers, body)
            }
            Seen::Cut => {
                InquiryAnswer::new(InquiryOutcome::Nothing, Code::AnswerLost, "the connection was cut")
            }
            Seen::TimeOut => {
                InquiryAnswer::new(InquiryOutcome::Nothing, Code::Timeout, "no whole answer in time")
            }
        };
        if let Some(mistake) = self.mistake {
            mistake.reads_inquiry(&mut answer);
        }
        self.conclude_inquiry(n, ask, answer, Some(place)).await?;
        Ok(true)
    }

    async fn conclude_inquiry(
        &mut self,
        n: usize,
        ask: Ask,
        answer: InquiryAnswer,
        place: Option<usize>,
    ) -> Checked<()> {
        let Ask { channel, channel_index, inquiry, permit, leased_at, .. } = ask;
        let Some(policy) = channel.inquiry.clone() else { return Ok(()) };
        let took = Duration::from_micros((self.now() - leased_at).unsigned_abs());
        let mut trust = policy.trust;
        if let Some(mistake) = self.mistake {
            mistake.trusts(&mut trust);
        }
        let jitter = self.rng.f64();
        let mut settlement = InquirySettlement::of(
            &answer.outcome,
            &inquiry,
            took,
            trust,
            &channel.retry,
            channel.cool_down,
            jitter,
        );
        if self.is(Mistake::NotFoundIsFailed) && answer.outcome == InquiryOutcome::NotFound {
            settlement = InquirySettlement { next: State::Failed, inquire_in: None, ..settlement };
        }
        note!(
            self,
            "node {n}: inquiry {} about refund {} found {}, and it goes to {}",
            inquiry.number,
            inquiry.id,
            answer.code,
            settlement.next
        );
        let sent = place.map_or(self.now(), |place| self.bank.questions[place].sent);
        let age = Duration::from_micros((self.now() - sent).unsigned_abs());
        match answer.outcome {
            InquiryOutcome::SlowDown { retry_after } => {
                let named = retry_after.map(|wait| wait.max(Duration::from_secs(1)));
                self.suspend(n, channel_index, &channel, BankRefusal::Wait { named }, age).await?;
            }
            InquiryOutcome::Unauthorised => {
                self.suspend(n, channel_index, &channel, BankRefusal::Unauthorised, age).await?;
            }
            _ => {}
        }
        let permit = (!permit.numbers.is_empty())
            .then(|| permit.numbers.iter().map(PermitNumber::describe).collect::<Vec<_>>().join(","));
        let started = place.map(|_| self.stage.clock.instant());
        let channel = channel.name.clone();
        let inquired = Inquired { inquiry, channel, started, permit, answer, settlement };
        self.nodes[n].unsettled_inquiries.push(UnsettledInquiry {
            inquired,
            leased_at,
            channel_index,
            place,
        });
        Ok(())
    }

    /// `InquiryAttempt::settle`, one try.
    pub async fn settle_inquiry(&mut self, n: usize) -> Checked<bool> {
        if self.nodes[n].unsettled_inquiries.is_empty() {
            return Ok(false);
        }
        let at = self.rng.usize(0..self.nodes[n].unsettled_inquiries.len());
        let unsettled = self.nodes[n].unsettled_inquiries.remove(at);
        self.travel();
        let lost = self.troubled();
        if !lost || self.rng.bool() {
            self.stage.tell_time_and_look().await;
            let name = self.nodes[n].name.clone();
            let before = self.rows.get(&unsettled.inquired.inquiry.id.0).cloned();
            let effect = taken(self.nodes[n].store.settle_inquiry(&name, &unsettled.inquired).await)?;
            let moved = matches!(effect, InquiryEffect::Moved(_));
            note!(
                self,
                "node {n} settles inquiry {} about refund {}: {}{}",
                unsettled.inquired.inquiry.number,
                unsettled.inquired.inquiry.id,
                if moved { "it moves" } else { "too late" },
                if lost { ", and does not hear of it" } else { "" },
            );
            self.observe().await?;
            self.is_proved(&unsettled, before, moved)?;
        }
        // After the lease the bank is asked again anyway, so an older result is dropped, unless the bank has the refund.
        let lease = micros(self.plan.files[0][unsettled.channel_index].lease);
        let is_kept = unsettled.inquired.answer.outcome.has_refund();
        if lost && (is_kept || self.now() - unsettled.leased_at <= lease) {
            self.nodes[n].unsettled_inquiries.push(unsettled);
        }
        Ok(true)
    }
}

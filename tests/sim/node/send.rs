//! `channel_worker/send.rs` and `bank.rs`: one refund under its lease, until its outcome waits for the settler.

use std::sync::Arc;
use std::time::Duration;

use refundd::bank::outcome::read_answer;
use refundd::channel::Channel;
use refundd::limiter::PermitNumber;
use refundd::refund::{Answer, Code, Outcome, Sending, Settlement};
use refundd::store::{OwnSuspension, Refusal, Settled};

use crate::bank::{Call, Course, Seen};
use crate::clock::micros;
use crate::mistake::Mistake;
use crate::plan::bank_of;
use crate::violation::{Checked, taken};
use crate::world::node::{Flight, Send};
use crate::world::{World, note};

/// An answer of the bank that suspends the whole channel, as in `node/suspending.rs`.
#[derive(Debug, Clone, Copy)]
pub(super) enum BankRefusal {
    Wait { named: Option<Duration> },
    Unauthorised,
}

impl World<'_> {
    /// `Attempt::make`, `SendAttempt::run` and `Bank::send`, up to the first byte.
    pub async fn send(&mut self, n: usize) -> Checked<bool> {
        let now = self.stage.clock.instant();
        let open: Vec<usize> = self.nodes[n]
            .sends
            .iter()
            .enumerate()
            .filter(|(_, send)| send.permit.span.is_none_or(|span| span.opens <= now))
            .map(|(at, _)| at)
            .collect();
        let Some(&at) = self.rng.choice(&open) else { return Ok(false) };
        let send = self.nodes[n].sends.remove(at);
        let channel_index = send.channel_index;
        // The open connection died meanwhile, and no other can be opened.
        let lost = !self.calm && self.plan.moods.refuses(&mut self.rng);
        if lost {
            let answer = Answer::new(Outcome::HandedBack, Code::ConnectionLost, "lost before the first byte");
            self.conclude(n, send, answer, None).await?;
            return Ok(true);
        }
        self.travel();
        let closes = send.permit.span.map_or(send.first_byte_by, |span| span.closes.min(send.first_byte_by));
        let closes = if self.is(Mistake::PermitUsedLate) { send.first_byte_by } else { closes };
        if self.stage.clock.instant() >= closes {
            let answer = Answer::new(Outcome::HandedBack, Code::PermitLapsed, "the permit's span was over");
            self.conclude(n, send, answer, None).await?;
            return Ok(true);
        }
        if self.is(Mistake::LookBeforeTheDial) && !self.calm {
            let us = self.rng.i64(0..=self.plan.dial);
            self.stage.clock.pass(us);
        }
        self.may_leave(&send).await?;
        let call = self.transmit(n, &send)?;
        note!(
            self,
            "node {n} sends refund {} on c{channel_index}, attempt {}",
            send.refund.id,
            send.refund.attempt
        );
        self.nodes[n].flights.push(Flight { send, call });
        Ok(true)
    }

    /// Sends the request. The bank's ledger already holds its result.
    fn transmit(&mut self, n: usize, send: &Send) -> Checked<usize> {
        let now = self.now();
        let timeout = micros(send.channel.timeout);
        let quick = send.channel.limits.iter().map(|limit| micros(limit.rule.lateness) / 2 - 1).min();
        let moods = if self.calm { self.plan.moods.calm() } else { self.plan.moods.clone() };
        let course = Course::draw(&moods, &mut self.rng, timeout, quick.unwrap_or(30_000));
        let key = if self.is(Mistake::KeyPerAttempt) {
            refundd::refund::RequestId(uuid::Uuid::from_u128(self.bank.calls.len() as u128))
        } else {
            send.refund.request_id
        };
        self.bank.calls.push(Call {
            refund: send.refund.id,
            key,
            body: Arc::clone(&send.refund.body),
            channel: send.channel_index,
            bank: bank_of(&send.channel),
            node: n,
            process: self.nodes[n].process,
            permits: send.permit.numbers.clone(),
            sent: now,
            arrives: course.way.map(|way| now + way),
            in_time: course.in_time,
            executes: course.executes.map(|at| now + at),
            ends: now + course.ends,
            seen: course.seen,
        });
        self.judge_last_call()?;
        Ok(self.bank.calls.len() - 1)
    }

    /// `Bank::exchange` after the answer, and `SendAttempt::run` to its end.
    pub async fn land(&mut self, n: usize) -> Checked<bool> {
        let now = self.now();
        let over: Vec<usize> = self.nodes[n]
            .flights
            .iter()
            .enumerate()
            .filter(|(_, flight)| self.bank.calls[flight.call].ends <= now)
            .map(|(at, _)| at)
            .collect();
        let Some(&at) = self.rng.choice(&over) else { return Ok(false) };
        let Flight { send, call } = self.nodes[n].flights.remove(at);
        let call = self.bank.calls[call].clone();
        let mut answer = match &call.seen {
            Seen::Whole { status, headers, body } => {
                read_answer(&send.channel, &send.refund.expected, *status, headers, body)
            }
            Seen::Cut => Answer::new(Outcome::Unknown, Code::AnswerLost, "the connection was cut"),
            Seen::TimeOut => Answer::new(Outcome::Unknown, Code::Timeout, "no whole answer in time"),
        };
        if let Seen::Whole { status: 307, .. } = call.seen
            && self.is(Mistake::RedirectsFollowed)
        {
            self.may_leave(&send).await?;
            let call = self.transmit(n, &send)?;
            self.nodes[n].flights.push(Flight { send, call });
            return Ok(true);
        }
        if let Some(mistake) = self.mistake {
            mistake.reads(&mut answer);
        }
        self.conclude(n, send, answer, Some(call.sent)).await?;
        Ok(true)
    }

    async fn conclude(&mut self, n: usize, send: Send, answer: Answer, started: Option<i64>) -> Checked<()> {
        let sending = Sending {
            number: u32::try_from(send.refund.attempt).unwrap_or(u32::MAX),
            is_resend: send.refund.is_resend && !self.is(Mistake::ResendIsFirst),
            uncounted_leases: send.refund.uncounted_leases(),
        };
        let channel = &send.channel;
        let jitter = self.rng.f64();
        let mut settlement = Settlement::of(&answer, sending, &channel.policy(), jitter);
        if let Some(mistake) = self.mistake {
            mistake.settles(&answer, &mut settlement);
        }
        note!(
            self,
            "node {n}: refund {} came to {}, and goes to {}",
            send.refund.id,
            answer.code,
            settlement.next
        );
        let name = channel.name.clone();
        let age = Duration::from_micros(started.map_or(0, |at| self.now() - at).unsigned_abs());
        let waits = &self.nodes[n].waits_of_banks;
        let instant = self.stage.clock.instant();
        waits.note(&name, send.refund.id, &answer.outcome, instant.checked_sub(age).unwrap_or(instant));
        let alone = match answer.outcome {
            Outcome::SlowDown { .. } if !sending.keeps_place() => {
                waits.refused_alone(&name, send.refund.id, &channel.retry, settlement.wait, instant)
            }
            _ => None,
        };
        if let Some((_, wait)) = alone {
            settlement.wait = wait;
        }
        match answer.outcome {
            Outcome::SlowDown { .. } if alone.is_some() => {}
            Outcome::SlowDown { retry_after } => {
                let named = retry_after.map(|wait| wait.max(Duration::from_secs(1)));
                self.suspend(n, send.channel_index, channel, BankRefusal::Wait { named }, age).await?;
            }
            Outcome::Unauthorised => {
                self.suspend(n, send.channel_index, channel, BankRefusal::Unauthorised, age).await?;
            }
            _ => {}
        }
        let numbers = &send.permit.numbers;
        let permit = numbers.iter().map(PermitNumber::describe).collect::<Vec<_>>().join(",");
        self.nodes[n].outbox.push(Settled {
            id: send.refund.id,
            refund_ref: send.refund.expected.refund_ref.clone(),
            money: send.refund.expected.money.clone(),
            request_id: send.refund.request_id,
            epoch: send.refund.epoch,
            holder: Arc::clone(&send.refund.holder),
            channel: name,
            attempt: send.refund.attempt,
            started: started.map(|_| self.stage.clock.instant()),
            is_first: send.refund.is_first,
            permit: (!numbers.is_empty()).then_some(permit),
            answer,
            settlement,
            duration: Duration::ZERO,
            waited: Duration::ZERO,
        });
        Ok(())
    }

    /// `Node::suspend`: for as long as the database says, or until a person resumes the channel.
    pub(super) async fn suspend(
        &mut self,
        n: usize,
        channel_index: usize,
        channel: &Channel,
        refusal: BankRefusal,
        age: Duration,
    ) -> Checked<()> {
        self.travel();
        let now = self.now();
        let failed = self.troubled();
        self.ever_suspended = true;
        if matches!(refusal, BankRefusal::Wait { .. }) {
            self.nodes[n].waits_of_banks.start_anew(&channel.name, self.stage.clock.instant());
        }
        self.stage.tell_time_and_look().await;
        let spacing = channel.spacing();
        let until = match refusal {
            BankRefusal::Wait { named } => Some(now + micros(named.unwrap_or(channel.cool_down))),
            BankRefusal::Unauthorised => None,
        };
        self.nodes[n].suspended_until.insert(channel_index, until);
        let store = self.nodes[n].store.clone();
        match refusal {
            _ if failed => {}
            BankRefusal::Unauthorised => {
                let name = self.nodes[n].name.clone();
                let own = OwnSuspension::Credentials { age };
                taken(store.suspend(&channel.name, own, "not let in", &name).await)?;
            }
            BankRefusal::Wait { named } => {
                let refused = Refusal {
                    named,
                    reason: "asked to",
                    slow: channel.adaptive && spacing.is_some(),
                    spacing,
                    step: channel.climb_step(),
                    cool_down: channel.cool_down,
                    age,
                };
                if let Some((left, _)) = taken(store.refused(&channel.name, &refused).await)? {
                    self.nodes[n].suspended_until.insert(channel_index, Some(now + micros(left)));
                }
            }
        }
        self.observe().await
    }
}

//! The steps of producers and of people.

use refundd::caller::Names;
use refundd::refund::{Money, NewRefund, State};
use refundd::store::{Approved, Canceller, Decided, Decision, Pause, ProposalAnswer, SuspendedBy};

use crate::clock::BEGAN_US;
use crate::plan::Fault;
use crate::violation::{Checked, broken, taken};
use crate::world::{Choice, World, note};

impl World<'_> {
    /// A producer saves refunds.
    pub async fn save(&mut self, refunds: &[NewRefund]) {
        self.stage.tell_time_and_look().await;
        self.stage.store.save(refunds).await.unwrap();
        for refund in refunds {
            note!(self, "a producer saves refund {} on {}", refund.refund_ref, refund.channel);
        }
    }

    /// The next refund of a producer.
    pub fn refund(&mut self) -> NewRefund {
        self.saved += 1;
        let channel = self.rng.usize(0..self.plan.files[0].len());
        let now = self.stage.postgres_now();
        let after = |us: i64| jiff::Timestamp::from_microsecond(BEGAN_US + now + us).ok();
        let due = if self.rng.u8(0..5) == 0 { self.rng.i64(0..3_000_000) } else { 0 };
        let deadline =
            if self.rng.u8(0..6) == 0 { after(due + self.rng.i64(1_000..20_000_000)) } else { None };
        NewRefund {
            refund_ref: format!("R-{}", self.saved),
            channel: self.plan.files[0][channel].name.clone(),
            payment_ref: format!("P-{}", self.saved),
            money: Money { amount_minor: i64::from(self.saved) * 100, currency: "EUR".to_owned() },
            payload: None,
            due_at: after(due),
            deadline_at: deadline,
            traceparent: None,
        }
    }

    pub(super) async fn cancel(&mut self) -> Checked<bool> {
        let open: Vec<State> = State::ALL.into_iter().filter(|state| !state.is_end()).collect();
        let Some(&id) = self.rng.choice(&self.in_state(&open)) else { return Ok(false) };
        if !self.plan.has(Fault::Cancel) {
            return Ok(false);
        }
        self.stage.tell_time_and_look().await;
        let done = taken(self.stage.store.cancel(id, None, &Canceller::producer(Names::All)).await)?;
        note!(
            self,
            "the producer cancels refund {id}: {}",
            if matches!(done, refundd::store::Cancelled::Now(_)) { "done" } else { "too late" }
        );
        self.observe().await.map(|()| true)
    }

    pub(super) async fn pause(&mut self, channel_index: usize) -> Checked<bool> {
        if !self.plan.has(Fault::Pause) {
            return Ok(false);
        }
        let channel = self.plan.files[0][channel_index].name.clone();
        self.ever_suspended = true;
        self.stage.tell_time_and_look().await;
        let pause = Pause { reason: "to see", who: "a person", lasts: None };
        taken(self.stage.store.pause(channel.as_str(), &pause).await)?;
        note!(self, "a person pauses {channel}");
        self.observe().await.map(|()| true)
    }

    pub async fn resume(&mut self, channel_index: usize) -> Checked<bool> {
        let channel = self.plan.files[0][channel_index].name.clone();
        if !self.rows.values().any(|row| row.paused) {
            return Ok(false);
        }
        self.stage.tell_time_and_look().await;
        let store = &self.stage.store;
        taken(store.resume(channel.as_str(), "a person", None).await)?;
        taken(store.release(channel.as_str(), SuspendedBy::Credentials, "a person", None).await)?;
        note!(self, "a person resumes {channel}");
        self.observe().await.map(|()| true)
    }

    /// A person decides in one of four ways: by the bank's ledger now, by an older look at it, by repeating an
    /// earlier choice, or without asking the bank.
    pub async fn decide(&mut self) -> Checked<bool> {
        let mood = if self.calm { 9 } else { self.rng.u8(0..10) };
        let choice = match mood {
            0..2 => self.rng.choice(&self.choices).copied(),
            2 => self.hasty(),
            _ => self.informed(),
        };
        let Some(choice) = choice else { return Ok(false) };
        if mood >= 3 {
            self.choices.push(choice);
        }
        if mood == 3 {
            note!(self, "a person looks at refund {} and means to say {}", choice.id, choice.next);
            return Ok(true);
        }
        self.decide_as(choice).await?;
        // A person who knows that the bank did nothing may have the refund sent again at once.
        if mood > 3 && choice.next == State::Failed && !self.calm && self.rng.bool() {
            let version = self.rows[&choice.id.0].version;
            self.decide_as(Choice { version, next: State::Ready, not_executed: true, ..choice }).await?;
        }
        Ok(true)
    }

    /// Chooses to send a refund again without a confirmation about earlier sends. That is never dangerous.
    fn hasty(&mut self) -> Option<Choice> {
        let id = *self.rng.choice(&self.in_state(&[State::Review, State::Failed]))?;
        Some(Choice { id, version: self.rows[&id.0].version, next: State::Ready, not_executed: false })
    }

    /// Looks at the bank's ledger and chooses accordingly. `None` while the bank may still pay.
    fn informed(&mut self) -> Option<Choice> {
        let mut open = self.in_state(&[State::Review, State::Accepted, State::Unknown, State::Failed]);
        if self.calm {
            // In the end refundd settles refunds itself. A person helps only after three inquiries in vain.
            open.retain(|id| {
                let row = &self.rows[&id.0];
                match (row.state, row.inquire_us) {
                    (State::Failed, _) | (State::Unknown, None) => false,
                    (_, None) => true,
                    (_, Some(_)) => row.inquiries >= 3,
                }
            });
        }
        let id = *self.rng.choice(&open)?;
        let (now, state) = (self.now(), self.rows[&id.0].state);
        let next = if self.paid(id, now) > 0 {
            State::Succeeded
        } else if self.bank.ever_pays(id) || self.bank.of(id).any(|call| call.ends > now) {
            return None;
        } else if state == State::Failed {
            State::Ready
        } else if state == State::Review && !self.calm {
            *self.rng.choice(&[State::Ready, State::Failed, State::Cancelled]).unwrap_or(&State::Failed)
        } else {
            State::Failed
        };
        let version = self.rows[&id.0].version;
        Some(Choice { id, version, next, not_executed: next == State::Ready })
    }

    /// Decides in the database, where needed with a second person. Checks that the decision took effect only at the version
    /// that the person saw.
    async fn decide_as(&mut self, choice: Choice) -> Checked<()> {
        let Choice { id, version: seen, next, not_executed } = choice;
        let decision = Decision { id, seen, next, not_executed, why: "the bank says so", who: "a person" };
        self.stage.tell_time_and_look().await;
        let decided = taken(self.stage.store.decide(&decision).await)?;
        let Decided::Proposed(_, proposal) = decided else {
            return self.decided(choice, matches!(decided, Decided::Done(_))).await;
        };
        note!(self, "a person proposes that refund {id} at version {seen} is {next}");
        self.observe().await?;
        let answer = ProposalAnswer { id: proposal.id, why: "the bank says so", who: "another person" };
        self.stage.tell_time_and_look().await;
        let approved = taken(self.stage.store.approve(&answer, seen).await)?;
        self.decided(choice, matches!(approved, Approved::Done(..))).await
    }

    async fn decided(&mut self, choice: Choice, done: bool) -> Checked<()> {
        let Choice { id, version, next, .. } = choice;
        note!(
            self,
            "a person decides that refund {id} at version {version} is {next}: {}",
            if done { "done" } else { "not allowed" }
        );
        if done && self.rows[&id.0].version != version {
            return broken(
                "a decision names what it saw",
                format!(
                    "refund {id} is {next} by a look at {version}, it was at {}",
                    self.rows[&id.0].version
                ),
            );
        }
        self.observe().await
    }
}

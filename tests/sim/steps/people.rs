//! Producers and people.

use refundd::refund::State;
use refundd::store::Decided;

use crate::laws::{Lawful, taken};
use crate::plan::Fault;
use crate::world::{World, note};

impl World<'_> {
    pub(super) async fn cancel(&mut self) -> Lawful<bool> {
        let open: Vec<State> = State::ALL.into_iter().filter(|state| !state.is_end()).collect();
        let Some(&id) = self.rng.choice(&self.in_state(&open)) else { return Ok(false) };
        if !self.plan.has(Fault::Cancel) {
            return Ok(false);
        }
        self.stage.tell_time_and_look().await;
        let done = taken(self.stage.store.cancel(id).await)?;
        note!(
            self,
            "the producer cancels refund {id}: {}",
            if matches!(done, refundd::store::Cancelled::Now(_)) { "done" } else { "too late" }
        );
        self.observe().await.map(|()| true)
    }

    pub(super) async fn pause(&mut self, lane: usize) -> Lawful<bool> {
        if !self.plan.has(Fault::Pause) {
            return Ok(false);
        }
        let channel = self.plan.files[0][lane].name.clone();
        self.ever_held = true;
        self.stage.tell_time_and_look().await;
        taken(self.stage.store.pause(channel.as_str(), "to see", "a person", false).await)?;
        note!(self, "a person pauses {channel}");
        self.observe().await.map(|()| true)
    }

    pub async fn resume(&mut self, lane: usize) -> Lawful<bool> {
        let channel = self.plan.files[0][lane].name.clone();
        if !self.rows.values().any(|row| row.paused) {
            return Ok(false);
        }
        self.stage.tell_time_and_look().await;
        taken(self.stage.store.resume(channel.as_str()).await)?;
        note!(self, "a person resumes {channel}");
        self.observe().await.map(|()| true)
    }

    /// A person asks the bank, and decides as it is.
    pub async fn decide(&mut self) -> Lawful<bool> {
        let mut open = self.in_state(&[State::Review, State::Accepted, State::Unknown, State::Failed]);
        if self.calm {
            // Left to the daemon, until the bank was asked a few times in vain.
            open.retain(|id| {
                let row = &self.rows[&id.0];
                match (row.state, row.inquire_us) {
                    (State::Failed, _) | (State::Unknown, None) => false,
                    (_, None) => true,
                    (_, Some(_)) => row.inquiries >= 3,
                }
            });
        }
        let Some(&id) = self.rng.choice(&open) else { return Ok(false) };
        let (now, state) = (self.now(), self.rows[&id.0].state);
        let next = if self.paid(id, now) > 0 {
            State::Succeeded
        } else if self.bank.ever_pays(id) || self.bank.of(id).any(|call| call.ends > now) {
            return Ok(false);
        } else if state == State::Failed {
            State::Ready
        } else if state == State::Review && !self.calm {
            *self.rng.choice(&[State::Ready, State::Failed, State::Cancelled]).unwrap_or(&State::Failed)
        } else {
            State::Failed
        };
        self.stage.tell_time_and_look().await;
        let done = taken(self.stage.store.decide(id, next, "the bank says so", "a person").await)?;
        note!(
            self,
            "a person decides that refund {id} is {next}: {}",
            if matches!(done, Decided::Done(_)) { "done" } else { "not allowed" }
        );
        self.observe().await?;
        // Who was told by the bank that it did nothing may have it sent again at once.
        if next == State::Failed && !self.calm && self.rng.bool() {
            self.stage.tell_time_and_look().await;
            taken(self.stage.store.decide(id, State::Ready, "send it again", "a person").await)?;
            note!(self, "and has it sent again");
            self.observe().await?;
        }
        Ok(true)
    }
}

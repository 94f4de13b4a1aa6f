//! Producers and people.

use refundd::refund::{RefundId, State};
use refundd::store::{Decided, Decision};

use crate::laws::{Lawful, broken, taken};
use crate::plan::Fault;
use crate::world::{World, note};

/// What a person says of a refund, and the version that the person saw.
#[derive(Debug, Clone, Copy)]
pub struct Said {
    id: RefundId,
    version: i32,
    next: State,
    not_executed: bool,
}

impl World<'_> {
    pub(super) async fn cancel(&mut self) -> Lawful<bool> {
        let open: Vec<State> = State::ALL.into_iter().filter(|state| !state.is_end()).collect();
        let Some(&id) = self.rng.choice(&self.in_state(&open)) else { return Ok(false) };
        if !self.plan.has(Fault::Cancel) {
            return Ok(false);
        }
        self.stage.tell_time_and_look().await;
        let done = taken(self.stage.store.cancel(id, None).await)?;
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

    /// A person decides: as the bank says now, as it said a while ago, once more word for word, or without asking it.
    pub async fn decide(&mut self) -> Lawful<bool> {
        let mood = if self.calm { 9 } else { self.rng.u8(0..10) };
        let said = match mood {
            0..2 => self.rng.choice(&self.said).copied(),
            2 => self.hasty(),
            _ => self.informed(),
        };
        let Some(said) = said else { return Ok(false) };
        if mood >= 3 {
            self.said.push(said);
        }
        if mood == 3 {
            note!(self, "a person looks at refund {} and means to say {}", said.id, said.next);
            return Ok(true);
        }
        self.say(said).await?;
        // Who was told by the bank that it did nothing may have it sent again at once.
        if mood > 3 && said.next == State::Failed && !self.calm && self.rng.bool() {
            let version = self.rows[&said.id.0].version;
            self.say(Said { version, next: State::Ready, not_executed: true, ..said }).await?;
        }
        Ok(true)
    }

    /// Has a refund sent again without a word about earlier sends: that is never dangerous.
    fn hasty(&mut self) -> Option<Said> {
        let id = *self.rng.choice(&self.in_state(&[State::Review, State::Failed]))?;
        Some(Said { id, version: self.rows[&id.0].version, next: State::Ready, not_executed: false })
    }

    /// Asks the bank, and decides as it is.
    fn informed(&mut self) -> Option<Said> {
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
        Some(Said { id, version, next, not_executed: next == State::Ready })
    }

    async fn say(&mut self, said: Said) -> Lawful<()> {
        let Said { id, version, next, not_executed } = said;
        let seen = Some(version);
        let decision = Decision { id, seen, next, not_executed, why: "the bank says so", who: "a person" };
        self.stage.tell_time_and_look().await;
        let done = matches!(taken(self.stage.store.decide(&decision).await)?, Decided::Done(_));
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

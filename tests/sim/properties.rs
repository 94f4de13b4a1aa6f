//! The properties that the simulation checks after every step, by the rows of the database and by the bank's own
//! ledger.
//!
//! The properties that hold only when every refund has ended are in `end`.

mod end;
mod inquiries;
mod limits;

use std::collections::BTreeMap;
use std::sync::Arc;

use refundd::limiter::Limit;
use refundd::refund::{RefundId, State};

use super::stage::own;
use super::violation::{Checked, broken};
use super::wire::{number, text};
use super::world::World;
use super::world::node::Send;
use super::world::row::Row;

impl World<'_> {
    /// Reads every row after a statement, and checks how it changed.
    pub async fn observe(&mut self) -> Checked<()> {
        let seen = self.stage.wire.seen().await;
        let rows = match seen {
            Some(rows) => rows,
            None => self.stage.wire.ask(own::LOOK, None).await,
        };
        // The statement ran at the time that was last sent to Postgres.
        let (ran, ran_by_postgres) = (self.stage.ran_at(), self.stage.ran_at_by_postgres());
        let mut rows: Vec<(RefundId, Row)> = rows.iter().map(Row::read).collect();
        rows.sort_by_key(|(id, _)| *id);
        for (id, mut new) in rows {
            let old = self.rows.get(&id.0);
            let was_so = old.filter(|old| old.uncertain_us == new.uncertain_us);
            new.uncertain_since = was_so.map_or(ran, |old| old.uncertain_since);
            new.true_deadline = match old {
                Some(old) => old.true_deadline,
                None => new.deadline_us.map(|us| us - (ran_by_postgres - ran)),
            };
            if let Some(old) = old {
                if old.state != new.state {
                    moved(id, old, &new, ran_by_postgres)?;
                    not_too_early(id, old, &new, ran)?;
                }
                if old.inquiries != new.inquiries {
                    inquiries::leased(id, old, ran_by_postgres)?;
                }
            }
            self.agrees(id, new.state)?;
            self.rows.insert(id.0, new);
        }
        Ok(())
    }

    /// Checks that a row does not contradict the bank's ledger.
    fn agrees(&self, id: RefundId, state: State) -> Checked<()> {
        let now = self.now();
        match state {
            State::Ready if self.bank.ever_pays(id) => {
                broken("only what was not executed is ready", format!("refund {id} was or will be paid"))
            }
            State::Ready if self.bank.of(id).any(|call| call.ends > now) => broken(
                "only what was not executed is ready",
                format!("a request for refund {id} is under way"),
            ),
            State::Succeeded if self.paid(id, now) == 0 => {
                broken("the row agrees with the bank", format!("refund {id} succeeded, the bank never paid"))
            }
            State::Failed | State::Cancelled if self.bank.ever_pays(id) => {
                broken("the row agrees with the bank", format!("refund {id} is {state}, the bank pays"))
            }
            _ => Ok(()),
        }
    }

    /// How often the bank paid a refund until `by`. The bank knows keys for a while where its channel relies on that.
    pub fn paid(&self, id: RefundId, by: i64) -> usize {
        let remembers = self.bank.of(id).next().and_then(|call| self.plan.remembers(call.channel));
        self.bank.paid(id, by, remembers)
    }

    /// Checks a send right before its first byte leaves.
    pub async fn may_leave(&mut self, send: &Send) -> Checked<()> {
        let id = send.refund.id;
        let row = self.rows.get(&id.0);
        if !row.is_some_and(|row| row.state == State::Sending && row.epoch == send.refund.epoch) {
            return broken(
                "a request is made only under a lease",
                format!("refund {id} is sent under lease {}, the row is {row:?}", send.refund.epoch),
            );
        }
        let now = self.now();
        if self.bank.of(id).any(|call| call.ends > now) {
            return broken("never two at once", format!("refund {id} is under way already"));
        }
        self.spends(id, &send.channel.limits).await
    }

    /// Checks that the ledger holds a permit of each limit for every request about a refund, the next one too.
    async fn spends(&mut self, id: RefundId, limits: &[Arc<Limit>]) -> Checked<()> {
        if limits.is_empty() {
            return Ok(());
        }
        let rows = self.stage.wire.ask(own::SPENT, Some(&id.to_string())).await;
        let spent: BTreeMap<&str, i64> =
            rows.iter().map(|row| (text(row, 0), number(row, 1).unwrap())).collect();
        for limit in limits {
            let sent = self
                .bank
                .of(id)
                .filter(|call| call.permits.iter().any(|number| number.limit == limit.name))
                .count();
            let inquiries = self
                .bank
                .questions
                .iter()
                .filter(|question| question.refund == id && question.limits.contains(&limit.name))
                .count();
            let spent = spent.get(limit.name.as_str()).copied().unwrap_or(0);
            if usize::try_from(spent).unwrap_or(0) < sent + inquiries + 1 {
                return broken(
                    "every request spends a permit of its own",
                    format!(
                        "refund {id} was sent {sent} times and asked about {inquiries} times, limit {} kept {spent}, and one more leaves",
                        limit.name
                    ),
                );
            }
        }
        Ok(())
    }

    /// Checks the last request after it was sent.
    pub fn judge_last_call(&self) -> Checked<()> {
        let Some(call) = self.bank.calls.last() else { return Ok(()) };
        let id = call.refund;
        let first = self.bank.of(id).next();
        if first.is_some_and(|first| first.key != call.key || first.body != call.body) {
            return broken("the same key and the same bytes for life", format!("refund {id} changed"));
        }
        if self.paid(id, i64::MAX) > 1 {
            return broken("nothing is paid twice", format!("refund {id}"));
        }
        let limits: Vec<_> = self.plan.files[0][call.channel].limits.clone();
        limits.iter().try_for_each(|limit| self.keeps(limit))
    }
}

/// Checks that a `ready` refund failed only after its deadline, by the world's clock.
fn not_too_early(id: RefundId, old: &Row, new: &Row, ran: i64) -> Checked<()> {
    if (old.state, new.state) == (State::Ready, State::Failed) && old.true_deadline.is_none_or(|at| at > ran)
    {
        return broken(
            "a deadline passes when its time has passed",
            format!("refund {id} failed at {ran}, its deadline is {:?}", old.true_deadline),
        );
    }
    Ok(())
}

/// Checks a move from one state to another.
fn moved(id: RefundId, old: &Row, new: &Row, ran: i64) -> Checked<()> {
    if !old.state.may_move_to(new.state) {
        return broken("moves are legal", format!("refund {id} went from {} to {}", old.state, new.state));
    }
    if new.version <= old.version {
        return broken(
            "every move makes a version",
            format!("refund {id} is {} at {}", new.state, new.version),
        );
    }
    if new.state != State::Sending {
        return Ok(());
    }
    let wrong = |what: &str| broken("a claim takes only what may be sent", format!("refund {id} {what}"));
    if old.paused {
        return wrong("was claimed on a paused channel");
    }
    if old.cool_us.is_some_and(|until| until > ran) {
        return wrong("was claimed on a cooling channel");
    }
    if old.deadline_us.is_some_and(|at| at <= ran) {
        return wrong("was claimed past its deadline");
    }
    if old.due_us > ran {
        return wrong("was claimed before it was due");
    }
    if new.epoch <= old.epoch {
        return wrong("was claimed under an old epoch");
    }
    Ok(())
}

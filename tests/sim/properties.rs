//! The properties that the simulation checks after every step, by the rows of the database and by the bank's own
//! ledger.
//!
//! The properties that hold only when every refund has ended are in `end`.

pub mod effective_limits;
pub mod end;
mod inquiries;
mod limits;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use refundd::limiter::Limit;
use refundd::refund::{RefundId, State};

use super::clock::BEGAN_US;
use super::node::Send;
use super::stage;
use super::wire::Columns;
use super::world::World;

/// A property was broken.
#[derive(Debug, Clone)]
pub struct Violation {
    pub property: &'static str,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.property, self.what)
    }
}

pub type Checked<T> = Result<T, Violation>;

pub fn broken<T>(property: &'static str, what: impl Into<String>) -> Checked<T> {
    Err(Violation { property, what: what.into() })
}

/// The value of a statement. A refused statement breaks a property: refundd must send none that the database refuses.
pub fn taken<T>(result: Result<T, refundd::store::StoreError>) -> Checked<T> {
    result.map_err(|error| {
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        Violation { property: "the database takes every statement", what: format!("{error}: {source}") }
    })
}

/// A refund's row, with the suspension of its channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The index of its channel.
    pub channel_index: usize,
    pub state: State,
    pub version: i32,
    pub epoch: i64,
    pub due_us: i64,
    pub deadline_us: Option<i64>,
    /// The deadline by the world's clock.
    pub true_deadline: Option<i64>,
    pub lease_us: Option<i64>,
    pub uncertain_us: Option<i64>,
    /// When `uncertain_us` was written, by the world's clock.
    pub uncertain_since: i64,
    pub inquire_us: Option<i64>,
    pub inquiries: i32,
    pub paused: bool,
    pub cool_us: Option<i64>,
}

/// Reads every row.
pub const LOOK: &str = "
    select r.id, right(r.channel, 1)::bigint, r.state, r.lease_epoch::bigint, r.due_at, r.deadline_at, r.lease_until,
           r.uncertain_at, r.inquire_at, r.inquiries::bigint,
           (select min(s.since) from refundd.suspended s where s.channel = r.channel),
           (select c.cool_until from refundd.channels c where c.channel = r.channel), r.version::bigint
      from refundd.refunds r";

/// Reads how many permits the ledger has for a refund, for each limit.
pub const SPENT: &str =
    "select limit_name, count(*) from refundd.permits where refund_id = $1::bigint group by 1";

impl Row {
    /// Reads the columns of [`LOOK`].
    fn read(columns: &Columns) -> (RefundId, Row) {
        // Postgres counts microseconds from 2000.
        let time = |nth: usize| number(columns, nth).map(|us| us + 946_684_800_000_000 - BEGAN_US);
        let row = Row {
            channel_index: usize::try_from(number(columns, 1).unwrap()).unwrap(),
            state: text(columns, 2).parse().unwrap(),
            epoch: number(columns, 3).unwrap(),
            due_us: time(4).unwrap(),
            deadline_us: time(5),
            true_deadline: None,
            lease_us: time(6),
            uncertain_us: time(7),
            uncertain_since: 0,
            inquire_us: time(8),
            inquiries: i32::try_from(number(columns, 9).unwrap()).unwrap(),
            paused: columns[10].is_some(),
            cool_us: time(11),
            version: i32::try_from(number(columns, 12).unwrap()).unwrap(),
        };
        (RefundId(number(columns, 0).unwrap()), row)
    }
}

/// A column of eight bytes as a number; `None` is null.
pub fn number(columns: &Columns, nth: usize) -> Option<i64> {
    columns[nth].as_deref().map(|bytes| i64::from_be_bytes(bytes.try_into().unwrap()))
}

pub fn text(columns: &Columns, nth: usize) -> &str {
    columns[nth].as_deref().map(|bytes| std::str::from_utf8(bytes).unwrap()).unwrap_or_default()
}

impl World<'_> {
    /// Reads every row after a statement, and checks how it changed.
    pub async fn observe(&mut self) -> Checked<()> {
        let seen = self.stage.wire.seen().await;
        let rows = match seen {
            Some(rows) => rows,
            None => self.stage.wire.ask(stage::LOOK, None).await,
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
        let rows = self.stage.wire.ask(stage::SPENT, Some(&id.to_string())).await;
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

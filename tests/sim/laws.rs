//! The laws, judged after every step by the rows as they stand and by the bank's own ledger.

mod end;
mod inquiries;
mod limits;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use refundd::limiter::Limit;
use refundd::refund::{OnUnknown, RefundId, State};
use sqlx::Row as _;

use super::clock::{BEGAN_US, micros};
use super::node::Send;
use super::world::World;

/// A law was broken.
#[derive(Debug, Clone)]
pub struct Violation {
    pub law: &'static str,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.law, self.what)
    }
}

pub type Lawful<T> = Result<T, Violation>;

pub fn broken<T>(law: &'static str, what: impl Into<String>) -> Lawful<T> {
    Err(Violation { law, what: what.into() })
}

/// What the statements refuse that nothing broke is a mistake of ours.
pub fn taken<T>(result: Result<T, refundd::store::StoreError>) -> Lawful<T> {
    result.map_err(|error| {
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        Violation { law: "the database takes every statement", what: format!("{error}: {source}") }
    })
}

/// A row as it stands, with what holds its channel back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its channel, by number.
    pub lane: usize,
    pub state: State,
    pub epoch: i64,
    pub due_us: i64,
    pub deadline_us: Option<i64>,
    pub lease_us: Option<i64>,
    pub uncertain_us: Option<i64>,
    pub inquire_us: Option<i64>,
    pub inquiries: i32,
    pub paused: bool,
    pub cool_us: Option<i64>,
}

const LOOK: &str = "
    select r.id, right(r.channel, 1)::integer as lane, r.state, r.lease_epoch, (extract(epoch from r.due_at) * 1000000)::bigint as due_us,
           (extract(epoch from r.deadline_at) * 1000000)::bigint as deadline_us,
           (extract(epoch from r.lease_until) * 1000000)::bigint as lease_us,
           (extract(epoch from r.uncertain_at) * 1000000)::bigint as uncertain_us,
           (extract(epoch from r.inquire_at) * 1000000)::bigint as inquire_us, r.inquiries, c.paused_at is not null as paused,
           (extract(epoch from c.cool_until) * 1000000)::bigint as cool_us
      from refundd.refunds r join refundd.channels c on c.channel = r.channel order by r.id";

impl World<'_> {
    /// Looks at every row after a statement, and judges what became of it.
    pub async fn observe(&mut self) -> Lawful<()> {
        let rows = sqlx::query(LOOK).fetch_all(&mut self.stage.sql).await.unwrap();
        // The statement ran at the time that Postgres was told last.
        let ran = self.stage.told_us();
        for row in &rows {
            let id = RefundId(row.get("id"));
            let new = Row {
                lane: usize::try_from(row.get::<i32, _>("lane")).unwrap(),
                state: row.get::<&str, _>("state").parse().unwrap(),
                epoch: row.get("lease_epoch"),
                due_us: row.get::<i64, _>("due_us") - BEGAN_US,
                deadline_us: row.get::<Option<i64>, _>("deadline_us").map(|us| us - BEGAN_US),
                lease_us: row.get::<Option<i64>, _>("lease_us").map(|us| us - BEGAN_US),
                uncertain_us: row.get::<Option<i64>, _>("uncertain_us").map(|us| us - BEGAN_US),
                inquire_us: row.get::<Option<i64>, _>("inquire_us").map(|us| us - BEGAN_US),
                inquiries: row.get("inquiries"),
                paused: row.get("paused"),
                cool_us: row.get::<Option<i64>, _>("cool_us").map(|us| us - BEGAN_US),
            };
            if let Some(old) = self.rows.get(&id.0) {
                if old.state != new.state {
                    moved(id, old, &new, ran)?;
                }
                if old.inquiries != new.inquiries {
                    inquiries::leased(id, old, ran)?;
                }
            }
            self.agrees(id, new.state)?;
            self.rows.insert(id.0, new);
        }
        Ok(())
    }

    /// The row says nothing that the bank's ledger does not.
    fn agrees(&self, id: RefundId, state: State) -> Lawful<()> {
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

    /// How often the bank paid by then, which remembers keys where its channel counts on that.
    pub fn paid(&self, id: RefundId, by: i64) -> usize {
        let remembers =
            self.bank.of(id).next().and_then(|call| match self.plan.files[0][call.channel].on_unknown {
                OnUnknown::Resend { key_retention } => Some(micros(key_retention)),
                OnUnknown::Review | OnUnknown::Inquire => None,
            });
        self.bank.paid(id, by, remembers)
    }

    /// Right before the first byte leaves.
    pub async fn may_leave(&mut self, send: &Send) -> Lawful<()> {
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

    /// Of each limit, the ledger holds a permit for every request about a refund, the next one too.
    async fn spends(&mut self, id: RefundId, limits: &[Arc<Limit>]) -> Lawful<()> {
        if limits.is_empty() {
            return Ok(());
        }
        let rows: Vec<(String, i64)> = sqlx::query_as(
            "select limit_name, count(*) from refundd.permits where refund_id = $1 group by 1",
        )
        .bind(id.0)
        .fetch_all(&mut self.stage.sql)
        .await
        .unwrap();
        let spent: BTreeMap<String, i64> = rows.into_iter().collect();
        for limit in limits {
            let sent = self
                .bank
                .of(id)
                .filter(|call| call.permits.iter().any(|number| number.limit == limit.name))
                .count();
            let asked = self
                .bank
                .questions
                .iter()
                .filter(|question| question.refund == id && question.limits.contains(&limit.name))
                .count();
            let spent = spent.get(limit.name.as_str()).copied().unwrap_or(0);
            if usize::try_from(spent).unwrap_or(0) < sent + asked + 1 {
                return broken(
                    "every request spends a permit of its own",
                    format!(
                        "refund {id} was sent {sent} times and asked about {asked} times, limit {} kept {spent}, and one more leaves",
                        limit.name
                    ),
                );
            }
        }
        Ok(())
    }

    /// After a request was sent.
    pub fn judge_last_call(&self) -> Lawful<()> {
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

fn moved(id: RefundId, old: &Row, new: &Row, ran: i64) -> Lawful<()> {
    if !old.state.may_move_to(new.state) {
        return broken("moves are legal", format!("refund {id} went from {} to {}", old.state, new.state));
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

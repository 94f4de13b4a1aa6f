//! The laws, judged after every step by the rows as they stand and by the bank's own ledger.

use std::collections::BTreeMap;
use std::fmt;

use refundd::limiter::{Algorithm, Limit};
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
    pub paused: bool,
    pub cool_us: Option<i64>,
}

const LOOK: &str = "
    select r.id, right(r.channel, 1)::integer as lane, r.state, r.lease_epoch, (extract(epoch from r.due_at) * 1000000)::bigint as due_us,
           (extract(epoch from r.deadline_at) * 1000000)::bigint as deadline_us,
           (extract(epoch from r.lease_until) * 1000000)::bigint as lease_us, c.paused_at is not null as paused,
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
                paused: row.get("paused"),
                cool_us: row.get::<Option<i64>, _>("cool_us").map(|us| us - BEGAN_US),
            };
            if let Some(old) = self.rows.get(&id.0)
                && old.state != new.state
            {
                moved(id, old, &new, ran)?;
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
        let channel = &send.channel;
        if !channel.limits.is_empty() {
            let rows: Vec<(String, i64)> = sqlx::query_as(
                "select limit_name, count(*) from refundd.permits where refund_id = $1 group by 1",
            )
            .bind(id.0)
            .fetch_all(&mut self.stage.sql)
            .await
            .unwrap();
            let spent: BTreeMap<String, i64> = rows.into_iter().collect();
            for limit in &channel.limits {
                let of =
                    |call: &&super::bank::Call| call.permits.iter().any(|number| number.limit == limit.name);
                let sent = self.bank.of(id).filter(of).count() + 1;
                let spent = spent.get(limit.name.as_str()).copied().unwrap_or(0);
                if usize::try_from(spent).unwrap_or(0) < sent {
                    return broken(
                        "every request spends a permit of its own",
                        format!(
                            "refund {id} is sent for the {sent}. time, limit {} kept {spent}",
                            limit.name
                        ),
                    );
                }
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

    fn keeps(&self, limit: &Limit) -> Lawful<()> {
        let uses =
            |channel: usize| self.plan.files[0][channel].limits.iter().any(|other| other.name == limit.name);
        let mut arrived: Vec<i64> = self
            .bank
            .calls
            .iter()
            .filter(|call| call.in_time && uses(call.channel))
            .filter_map(|call| call.arrives)
            .collect();
        arrived.sort_unstable();
        let per = micros(limit.rule.per);
        // Of several files the loosest counts: which is in force is not the bank's to know.
        let same =
            || self.plan.files.iter().flatten().flat_map(|c| &c.limits).filter(|l| l.name == limit.name);
        let permits = same().map(|limit| limit.rule.permits as usize).max().unwrap_or(0);
        let burst = same()
            .map(|limit| match limit.rule.algorithm {
                Algorithm::TokenBucket { burst } => burst as usize,
                _ => 0,
            })
            .max()
            .unwrap_or(0);
        let fixed = matches!(limit.rule.algorithm, Algorithm::FixedWindow { .. });
        if fixed && !self.stepped {
            let mut windows: BTreeMap<i64, usize> = BTreeMap::new();
            for at in &arrived {
                *windows.entry((BEGAN_US + at).div_euclid(per)).or_default() += 1;
            }
            return match windows.iter().find(|(_, count)| **count > permits) {
                Some((window, count)) => broken(
                    "no limit is ever exceeded",
                    format!(
                        "{count} arrivals in the window from {} under {} ({})",
                        window * per - BEGAN_US,
                        limit.name,
                        limit.rule
                    ),
                ),
                None => Ok(()),
            };
        }
        let most = if fixed { 2 * permits } else { permits + burst };
        for (nth, at) in arrived.iter().enumerate() {
            let count = arrived[nth..].partition_point(|other| *other < at + per);
            if count > most {
                return broken(
                    "no limit is ever exceeded",
                    format!("{count} arrivals in the span from {at} under {} ({})", limit.name, limit.rule),
                );
            }
        }
        Ok(())
    }

    /// When everything has come to its end.
    pub async fn agrees_in_the_end(&mut self) -> Lawful<()> {
        let now = self.now();
        for (id, row) in &self.rows {
            let paid = self.paid(RefundId(*id), now);
            if !row.state.is_end() {
                return broken("nothing is lost", format!("refund {id} is {} and stays so", row.state));
            }
            if paid != usize::from(row.state == State::Succeeded) {
                return broken(
                    "the row agrees with the bank",
                    format!("refund {id} is {}, the bank paid {paid} times", row.state),
                );
            }
        }
        let kept: Vec<(i64, i64)> =
            sqlx::query_as("select refund_id, count(*) from refundd.attempts where kind = 'send' group by 1")
                .fetch_all(&mut self.stage.sql)
                .await
                .unwrap();
        let kept: BTreeMap<i64, i64> = kept.into_iter().collect();
        let twice: Vec<(i64, i64)> = sqlx::query_as(
            "select refund_id, lease_epoch from refundd.attempts where kind = 'send' and code <> 'lease_lapsed'
              group by 1, 2 having count(*) > 1",
        )
        .fetch_all(&mut self.stage.sql)
        .await
        .unwrap();
        if let Some((id, epoch)) = twice.first() {
            return broken(
                "the journal has one line for each request",
                format!("refund {id}, lease {epoch}"),
            );
        }
        for id in self.rows.keys() {
            let (sent, kept) = (self.bank.of(RefundId(*id)).count(), kept.get(id).copied().unwrap_or(0));
            if usize::try_from(kept).unwrap_or(0) < sent {
                return broken(
                    "every request is in the journal",
                    format!("refund {id} was sent {sent} times, {kept} are kept"),
                );
            }
        }
        Ok(())
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

//! Decisions that wait for a second person: their list, and the second person's answers.
//!
//! The functions `refundd.approve` and `refundd.withdraw` check who may answer, move the refund and write the journal. No other
//! statement can do so. `review.rs` keeps a decision as a proposal.

mod end;

use jiff::Timestamp;
use serde::Serialize;
use sqlx::Row;
use sqlx::postgres::PgRow;

pub use end::ProposalEnd;

use super::claim::read_money;
use super::connections::Ask;
use super::look::{read_refund, refund_columns};
use super::named::{Statement, bind, statement};
use super::second_person::NeededFor;
use super::{Doing, Store, StoreError, read_state, timestamp};
use crate::caller::Names;
use crate::refund::{Money, ProposalId, Refund, RefundId, State};

/// A decision that waits for a second person. It never changes, so its id is its version, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Proposal {
    pub id: ProposalId,
    pub refund_id: RefundId,
    pub channel: String,
    /// The version of the refund that the proposer saw. An approval names it.
    pub version: i32,
    /// The state that the proposer chose.
    pub state: State,
    /// The proposer says that the bank executed none of the earlier sends.
    pub not_executed: bool,
    pub needed_for: NeededFor,
    pub reason: String,
    pub by: String,
    pub proposed_at: Option<Timestamp>,
    /// The proposal cannot be approved after this time.
    pub expires_at: Option<Timestamp>,
    /// How the proposal ended, and who ended it; `None` while it has not ended.
    #[serde(skip)]
    pub ended: Option<(ProposalEnd, String)>,
}

/// A proposal that can be approved now, with the refund that it is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WaitingProposal {
    #[serde(flatten)]
    pub proposal: Proposal,
    pub refund_ref: String,
    #[serde(flatten)]
    pub money: Money,
    /// The state that the refund has while the proposal waits.
    pub state_now: State,
}

/// Which waiting proposals to list, oldest first.
#[derive(Debug, Clone)]
pub struct ProposalFilter {
    pub channel: Option<String>,
    /// The channels whose refunds exist for the one who asks.
    pub channels: Names,
    /// Only proposals about these refunds.
    pub refunds: Option<Vec<RefundId>>,
    /// Only proposals made after this one.
    pub after: Option<ProposalId>,
    /// The most proposals of the answer.
    pub limit: u32,
}

impl ProposalFilter {
    /// All waiting proposals of these channels. `limit` is 0: set it, too.
    pub fn of(channels: Names) -> ProposalFilter {
        ProposalFilter { channels, channel: None, refunds: None, after: None, limit: 0 }
    }
}

/// A second person's answer to a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProposalAnswer<'a> {
    pub id: ProposalId,
    pub why: &'a str,
    pub who: &'a str,
}

/// The result of an approval.
#[derive(Debug)]
pub enum Approved {
    /// The refund moved as it was proposed.
    Done(Refund, Proposal),
    /// The refund has another version than the approver named, or than the proposal names. In the second case the proposal is
    /// void.
    Changed(Refund, Proposal),
    /// The approver is the proposer.
    SamePerson(Proposal),
    Expired(Proposal),
    /// The proposal was approved, withdrawn or replaced before.
    Ended(Proposal),
    NoSuchProposal,
}

/// The result of a withdrawal.
#[derive(Debug)]
pub enum Withdrawn {
    Done(Proposal),
    /// The proposal was approved, withdrawn or replaced before, or it has expired or is void.
    Ended(Proposal),
    NoSuchProposal,
}

/// The columns of a proposal `p` for [`read_proposal`].
macro_rules! proposal_columns {
    ($p:literal) => {
        concat!(
            $p,
            ".id as proposal_id, ",
            $p,
            ".refund_id as proposed_for, ",
            $p,
            ".channel as proposal_channel, ",
            $p,
            ".version as seen_version, ",
            $p,
            ".moves_to, ",
            $p,
            ".confirms_not_executed, ",
            $p,
            ".needed_for, ",
            $p,
            ".reason as proposal_reason, ",
            $p,
            ".proposed_by, ",
            $p,
            ".ended_as, ",
            $p,
            ".ended_by,
         (extract(epoch from ",
            $p,
            ".proposed_at) * 1000000)::bigint as proposed_us,
         (extract(epoch from ",
            $p,
            ".expires_at) * 1000000)::bigint as expires_us"
        )
    };
}
pub(super) use proposal_columns;

// A proposal waits as long as its refund has the version that the proposer saw.
const LIST: Statement = statement!(concat!(
    "select ",
    proposal_columns!("p"),
    ", r.refund_ref, r.amount_minor, r.currency, r.state
       from refundd.proposals p join refundd.refunds r on r.id = p.refund_id and r.version = p.version
      where p.ended_as is null and p.expires_at > now()
        and (:channel::text is null or p.channel = :channel)
        and (:channels::text[] is null or p.channel = any(:channels))
        and (:refunds::bigint[] is null or p.refund_id = any(:refunds))
        and (:after::bigint is null or p.id > :after)
      order by p.id limit :most"
));

const COUNT: &str = "
    select p.channel, count(*) as waiting
      from refundd.proposals p join refundd.refunds r on r.id = p.refund_id and r.version = p.version
     where p.ended_as is null and p.expires_at > now() group by p.channel";

// A refund that moved since belongs to another channel.
const CHANNEL: &str = "select p.channel from refundd.proposals p join refundd.refunds r using (channel) where r.id = p.refund_id and p.id = $1";

const APPROVE: Statement = statement!(concat!(
    "select a.result, ",
    proposal_columns!("(a.p)"),
    ", ",
    refund_columns!(),
    " from refundd.approve(:id, :seen, :why, :who) a cross join lateral (select (a.r).*) r"
));

const WITHDRAW: &str =
    concat!("select a.result, ", proposal_columns!("(a.p)"), " from refundd.withdraw($1, $2, $3) a");

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("proposals", LIST.sql),
    ("count_proposals", COUNT),
    ("proposals_of_refund", end::OF_REFUND),
    ("channel_of_proposal", CHANNEL),
    ("approve", APPROVE.sql),
    ("withdraw", WITHDRAW),
];

pub(super) fn read_proposal(row: &PgRow) -> Result<Proposal, StoreError> {
    let id: i64 = row.get("proposal_id");
    let text = |column: &'static str| row.get::<&str, _>(column);
    let bad =
        |column| StoreError::Row { table: "refundd.proposals", id, column, found: text(column).to_owned() };
    let needed_for = match text("needed_for") {
        "uncertain" => NeededFor::Uncertain,
        "amount" => NeededFor::Amount,
        _ => return Err(bad("needed_for")),
    };
    let ended = match row.get::<Option<&str>, _>("ended_as").zip(row.get("ended_by")) {
        Some((how, by)) => Some((ProposalEnd::read(how).ok_or_else(|| bad("ended_as"))?, by)),
        None => None,
    };
    Ok(Proposal {
        id: ProposalId(id),
        refund_id: RefundId(row.get("proposed_for")),
        channel: row.get("proposal_channel"),
        version: row.get("seen_version"),
        state: text("moves_to").parse().map_err(|_| bad("moves_to"))?,
        not_executed: row.get("confirms_not_executed"),
        needed_for,
        reason: row.get("proposal_reason"),
        by: row.get("proposed_by"),
        proposed_at: timestamp(row, "proposed_us"),
        expires_at: timestamp(row, "expires_us"),
        ended,
    })
}

fn read_waiting(row: &PgRow) -> Result<WaitingProposal, StoreError> {
    let proposal = read_proposal(row)?;
    let state_now = read_state(row, proposal.refund_id.0)?;
    Ok(WaitingProposal { proposal, refund_ref: row.get("refund_ref"), money: read_money(row), state_now })
}

impl Store {
    /// Lists the proposals that can be approved now, oldest first.
    pub async fn proposals(&self, filter: &ProposalFilter) -> Result<Vec<WaitingProposal>, StoreError> {
        let query = bind!(
            LIST,
            channel: filter.channel,
            channels: filter.channels.these(),
            refunds: filter.refunds.as_ref().map(|ids| ids.iter().map(|id| id.0).collect::<Vec<_>>()),
            after: filter.after.map(|id| id.0),
            most: i64::from(filter.limit),
        );
        let rows = query.all(&self.db.patient()).await.doing("list proposals")?;
        rows.iter().map(read_waiting).collect()
    }

    /// How many proposals of each channel can be approved now. Channels without one are left out.
    pub async fn count_proposals(&self) -> Result<Vec<(String, u64)>, StoreError> {
        let rows = sqlx::query(COUNT).all(&self.db.patient()).await.doing("count proposals")?;
        let count = |row: &PgRow| u64::try_from(row.get::<i64, _>("waiting")).unwrap_or(0);
        Ok(rows.iter().map(|row| (row.get("channel"), count(row))).collect())
    }

    /// The channel of a proposal, also of one that has ended; `None` if there is no such proposal, or if its refund moved to another channel.
    pub async fn channel_of_proposal(&self, id: ProposalId) -> Result<Option<String>, StoreError> {
        let row = sqlx::query(CHANNEL).bind(id.0).maybe(&self.db).await.doing("look a proposal up")?;
        Ok(row.map(|row| row.get("channel")))
    }

    /// Carries out a proposal in the name of a second person. `seen` is the version of the refund that this person saw.
    pub async fn approve(&self, answer: &ProposalAnswer<'_>, seen: i32) -> Result<Approved, StoreError> {
        let &ProposalAnswer { id, why, who } = answer;
        let query = bind!(APPROVE, id: id.0, seen: seen, why: why, who: who);
        let row = query.one(&self.db).await.doing("approve a proposal")?;
        let result: &str = row.get("result");
        if result == "no_such_proposal" {
            return Ok(Approved::NoSuchProposal);
        }
        let proposal = read_proposal(&row)?;
        Ok(match result {
            "approved" => Approved::Done(read_refund(&row)?, proposal),
            "changed" => Approved::Changed(read_refund(&row)?, proposal),
            "same_person" => Approved::SamePerson(proposal),
            "expired" => Approved::Expired(proposal),
            "ended" => Approved::Ended(proposal),
            other => return Err(unknown_result(proposal.id, other)),
        })
    }

    /// Ends a proposal that was not approved.
    pub async fn withdraw(&self, answer: &ProposalAnswer<'_>) -> Result<Withdrawn, StoreError> {
        let &ProposalAnswer { id, why, who } = answer;
        let query = sqlx::query(WITHDRAW).bind(id.0).bind(why).bind(who);
        let row = query.one(&self.db).await.doing("withdraw a proposal")?;
        Ok(match row.get("result") {
            "no_such_proposal" => Withdrawn::NoSuchProposal,
            "withdrawn" => Withdrawn::Done(read_proposal(&row)?),
            "ended" => Withdrawn::Ended(read_proposal(&row)?),
            other => return Err(unknown_result(id, other)),
        })
    }
}

fn unknown_result(id: ProposalId, found: &str) -> StoreError {
    StoreError::Row { table: "refundd.proposals", id: id.0, column: "result", found: found.to_owned() }
}

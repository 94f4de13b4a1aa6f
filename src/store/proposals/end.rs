//! How a proposal ended, and what became of one that its refund left behind.

use jiff::Timestamp;

use super::{Proposal, proposal_columns, read_proposal};
use crate::refund::{ProposalId, RefundId};
use crate::store::connections::Ask;
use crate::store::{Doing, Store, StoreError};

pub(super) const OF_REFUND: &str = concat!(
    "select ",
    proposal_columns!("p"),
    " from refundd.proposals p where p.refund_id = $1 and p.id = any($2)"
);

const VOID: &str = "void: the refund changed, and nobody had approved it";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProposalEnd {
    Approved,
    Withdrawn,
    /// The same person proposed something else.
    Replaced,
    Expired,
    /// Its refund changed.
    Void,
}

impl ProposalEnd {
    pub(super) fn read(text: &str) -> Option<ProposalEnd> {
        match text {
            "approved" => Some(ProposalEnd::Approved),
            "withdrawn" => Some(ProposalEnd::Withdrawn),
            "replaced" => Some(ProposalEnd::Replaced),
            "expired" => Some(ProposalEnd::Expired),
            "void" => Some(ProposalEnd::Void),
            _ => None,
        }
    }
}

impl Proposal {
    /// How it ended, such as `was withdrawn by ann before`; empty while it has not ended.
    #[must_use]
    pub fn end(&self) -> String {
        let Some((how, by)) = &self.ended else { return String::new() };
        match how {
            ProposalEnd::Approved => format!("was approved by {by} before"),
            ProposalEnd::Withdrawn => format!("was withdrawn by {by} before"),
            ProposalEnd::Replaced => format!("was replaced by {by} before"),
            ProposalEnd::Expired => "has expired".to_owned(),
            ProposalEnd::Void => "is void, because its refund has changed".to_owned(),
        }
    }

    /// What became of it, for the story of its refund, which has this version now; `None` while it waits. It is void as soon as
    /// its refund changes, also before that is written down.
    #[must_use]
    pub fn became(&self, version: i32, now: Timestamp) -> Option<String> {
        let is_over = self.expires_at.is_some_and(|at| at <= now);
        Some(match &self.ended {
            Some((ProposalEnd::Approved, by)) => format!("approved by {by}"),
            Some((ProposalEnd::Withdrawn, by)) => format!("withdrawn by {by}"),
            Some((ProposalEnd::Replaced, by)) => format!("replaced by another proposal of {by}"),
            Some((ProposalEnd::Void, _)) => VOID.to_owned(),
            _ if version != self.version => VOID.to_owned(),
            None if !is_over => return None,
            None | Some((ProposalEnd::Expired, _)) => "expired: nobody approved it in time".to_owned(),
        })
    }
}

impl Store {
    /// Those of these proposals that are about the refund, also those that have ended.
    pub async fn proposals_of(
        &self,
        refund: RefundId,
        ids: &[ProposalId],
    ) -> Result<Vec<Proposal>, StoreError> {
        let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
        let rows = sqlx::query(OF_REFUND).bind(refund.0).bind(&ids).all(&self.db.patient()).await;
        rows.doing("look at the proposals of a refund")?.iter().map(read_proposal).collect()
    }
}

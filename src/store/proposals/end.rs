//! How a proposal ended.

use super::Proposal;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProposalEnd {
    Approved,
    Withdrawn,
    /// The same person proposed something else.
    Replaced,
    Expired,
}

impl ProposalEnd {
    pub(super) fn read(text: &str) -> Option<ProposalEnd> {
        match text {
            "approved" => Some(ProposalEnd::Approved),
            "withdrawn" => Some(ProposalEnd::Withdrawn),
            "replaced" => Some(ProposalEnd::Replaced),
            "expired" => Some(ProposalEnd::Expired),
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
        }
    }
}

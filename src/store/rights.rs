//! The rights that a node's role needs if it does not own the schema. The file config/node-role.sql grants the same
//! rights.
//!
//! A node checks its rights once, at the start. Only the leading node uses most of them, and only now and then, so a
//! missing right would show late.

use sqlx::Row;

use super::connections::Ask;
use super::named::{Statement, bind, statement};
use super::{Doing, Store, StoreError};

/// Tables, and the rights that a node needs on all or some of their columns.
const TABLES: &[(&str, &[&str])] = &[
    ("refunds", &["select", "insert", "update"]),
    ("addresses", &["select", "insert"]),
    ("attempts", &["select", "insert"]),
    ("permits", &["select", "insert"]),
    ("channels", &["select", "insert", "update"]),
    ("suspensions", &["select", "insert", "update"]),
    ("suspended", &["select"]),
    ("events", &["select"]),
    ("feed", &["select"]),
    ("limits", &["select", "insert", "update"]),
    ("limit_rules", &["select", "insert"]),
    ("zone_days", &["select", "insert"]),
    ("nodes", &["select", "insert", "update", "delete"]),
    ("limit_shares", &["select", "insert", "update", "delete"]),
    ("ended", &["select", "insert", "update"]),
    ("ended_until", &["select", "update"]),
    ("clock_steps", &["select", "insert"]),
    ("clock", &["select", "insert", "update"]),
    ("proposals", &["select"]),
    ("second_person", &["select", "insert"]),
    ("seals", &["select"]),
    ("sealing", &["select"]),
    ("migrations", &["select"]),
];

/// Columns of `refunds` that later migrations added: a role that was granted the older columns may lack these.
const LATER: &[&str] = &["version", "sent_to"];

/// Functions that a node's statements call, and those that these functions call with the node's rights.
const FUNCTIONS: &[&str] = &[
    "approve",
    "attempts_since",
    "cancel",
    "count_ended",
    "counts",
    "decide",
    "deliver",
    "feed_reach",
    "forget_events",
    "is_where_it_was_sent",
    "ledger_keeps_rules",
    "may_be_resent",
    "may_have_been_executed",
    "move_is_legal",
    "note_reach",
    "permits_are_kept_for",
    "permits_keep_rules",
    "propose",
    "recovery_moved",
    "rule_most",
    "rule_reach",
    "rule_shape",
    "seal_journal",
    "send_is_kept",
    "slow_share",
    "slow_steps",
    "spans",
    "spans_keep_rule",
    "stepped_back",
    "stepped_forward",
    "transactions_under_way",
    "turn_attempts",
    "turn_permits",
    "windows_keep_rule",
    "withdraw",
];

const LACKING: Statement = statement!(include_str!("sql/lacking.sql"));

pub(super) const STATEMENTS: &[(&str, &str)] = &[("lacking", LACKING.sql)];

impl Store {
    /// This connection's role, and the rights that a node needs and the role lacks.
    pub async fn lacking_rights(&self) -> Result<(String, Vec<String>), StoreError> {
        let pairs =
            || TABLES.iter().flat_map(|(name, rights)| rights.iter().map(move |right| (*name, *right)));
        let query = bind!(
            LACKING,
            table_name: pairs().map(|(name, _)| name).collect::<Vec<_>>(),
            table_right: pairs().map(|(_, right)| right).collect::<Vec<_>>(),
            function: FUNCTIONS,
            later_column: LATER,
        );
        let row = query.one(&self.db).await.doing("look at the rights of this role")?;
        Ok((row.get("role"), row.get("lacking")))
    }
}

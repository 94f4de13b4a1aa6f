//! The rights that a node's role needs if it does not own the schema. The file config/node-role.sql grants the same
//! rights.
//!
//! A node checks its rights once, at the start. Only the leading node uses most of them, and only now and then, so a
//! missing right would show late.

use std::fmt;

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
    ("share_rules", &["select", "insert", "update", "delete"]),
    ("share_locks", &["select", "insert", "update"]),
    ("ended", &["select", "insert", "update"]),
    ("ended_until", &["select", "update"]),
    ("clock_steps", &["select", "insert"]),
    ("clock", &["select", "insert", "update"]),
    ("proposals", &["select"]),
    ("second_person", &["select", "insert"]),
    ("seals", &["select"]),
    ("sealing", &["select"]),
    ("dropped_months", &["select"]),
    ("migrations", &["select"]),
];

/// Columns of `refunds` that later migrations added, and the right that a node needs: a role that was granted the older columns
/// may lack these.
const LATER: &[(&str, &str)] = &[("version", "update"), ("sent_to", "update"), ("traceparent", "insert")];

/// Functions that a node's statements call, and those that these functions call with the node's rights.
const FUNCTIONS: &[&str] = &[
    "approve",
    "attempts_since",
    "backlog_room",
    "bounds_in_span",
    "cancel",
    "clocks_keep_rule",
    "count_ended",
    "counts",
    "decide",
    "deliver",
    "expire_proposals",
    "feed_reach",
    "forget_events",
    "gaps_keep_rule",
    "inquiry_is_kept",
    "is_where_it_was_sent",
    "journal_has_a_send",
    "ledger_keeps_rules",
    "lock_shares",
    "may_be_resent",
    "may_have_been_executed",
    "move",
    "move_is_legal",
    "note_bank_ref",
    "note_lost_refund",
    "note_reach",
    "openings_are_near",
    "outcome_is_kept",
    "own_rule_has_room",
    "permits_are_kept_for",
    "permits_keep_rules",
    "propose",
    "recovery_moved",
    "refund_holds_card_number",
    "reserve_share",
    "rule_is_stricter",
    "rule_most",
    "rule_reach",
    "rule_shape",
    "seal_journal",
    "send_is_kept",
    "slow_share",
    "slow_steps",
    "spans",
    "spans_keep_rule",
    "spent_permits_keep_rules",
    "stepped_back",
    "stepped_forward",
    "transactions_under_way",
    "turn_attempts",
    "turn_permits",
    "was_said_paid",
    "why_it_stays",
    "windows_keep_rule",
    "withdraw",
];

/// Tables on which a node may insert or update whole rows. On the others it has rights on some columns alone.
const WHOLE_ROWS: &[&str] = &[
    "channels",
    "suspensions",
    "limits",
    "ended",
    "ended_until",
    "clock",
    "nodes",
    "limit_shares",
    "share_rules",
    "share_locks",
];

/// Columns of `refunds` that nobody may update.
const FIXED_COLUMNS: &[&str] = &[
    "id",
    "refund_ref",
    "channel",
    "payment_ref",
    "amount_minor",
    "currency",
    "payload",
    "deadline_at",
    "request_id",
    "created_at",
];

const LACKING: Statement = statement!(include_str!("sql/lacking.sql"));
const EXCESS: Statement = statement!(include_str!("sql/excess.sql"));

pub(super) const STATEMENTS: &[(&str, &str)] = &[("lacking", LACKING.sql), ("excess", EXCESS.sql)];

/// What keeps a node from running on a database that answers, and the way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaFault {
    pub found: String,
    pub way_out: String,
}

impl fmt::Display for SchemaFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.found, self.way_out)
    }
}

/// What a connection's role may not do, although a node needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lacking {
    pub role: String,
    /// The owner of the schema; `None` without a schema.
    pub owner: Option<String>,
    /// Each missing right; empty if none is missing.
    pub rights: Vec<String>,
}

/// What a connection's role may do beyond what a node needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excess {
    pub role: String,
    pub is_superuser: bool,
    /// Whether the role owns the tables of the schema, or is a member of their owner.
    pub is_owner: bool,
    /// Each further right; empty for a superuser and for the owner, who have all.
    pub rights: Vec<String>,
}

impl Store {
    /// The rights that a node needs and this connection's role lacks.
    pub async fn lacking_rights(&self) -> Result<Lacking, StoreError> {
        let pairs =
            || TABLES.iter().flat_map(|(name, rights)| rights.iter().map(move |right| (*name, *right)));
        let query = bind!(
            LACKING,
            table_name: pairs().map(|(name, _)| name).collect::<Vec<_>>(),
            table_right: pairs().map(|(_, right)| right).collect::<Vec<_>>(),
            function: FUNCTIONS,
            later_column: LATER.iter().map(|(column, _)| *column).collect::<Vec<_>>(),
            later_right: LATER.iter().map(|(_, right)| *right).collect::<Vec<_>>(),
        );
        let row = query.one(&self.db).await.doing("look at the rights of this role")?;
        Ok(Lacking { role: row.get("role"), owner: row.get("owner"), rights: row.get("lacking") })
    }

    /// The rights that a node needs and this connection's role lacks, as a fault; `None` if it lacks none.
    pub async fn fault_of_rights(&self) -> Result<Option<SchemaFault>, StoreError> {
        let Lacking { role, owner, rights } = self.lacking_rights().await?;
        let owner = owner.map_or_else(String::new, |owner| format!(" `{owner}`"));
        let some = rights.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(", ");
        let missing = match rights.len() {
            0 => return Ok(None),
            1..=3 => format!("It lacks {some}"),
            count => format!("It lacks {count} rights, such as {some}"),
        };
        Ok(Some(SchemaFault {
            found: format!("[postgres] url: the role `{role}` lacks rights that a node needs"),
            way_out: format!(
                "as the owner of the schema{owner}, run config/node-role.sql (/usr/share/refundd/node-role.sql) with psql, again after \
                 each `refundd migrate` and the first time as a superuser or an owner with createrole, and \
                 `grant refundd_node to \"{role}\"`; or name the owner in the url. {missing}"
            ),
        }))
    }

    /// A schema that lacks migrations of this program, as a fault; `None` if it lacks none.
    pub async fn fault_of_schema(&self) -> Result<Option<SchemaFault>, StoreError> {
        let schema = self.schema().await?;
        Ok(schema.missing.map(|missing| SchemaFault {
            found: format!(
                "the database's schema is at version {} and lacks migration {missing}; this refundd needs all up to {}",
                schema.applied, schema.known
            ),
            way_out: "run `refundd migrate` as the owner of the schema".to_owned(),
        }))
    }

    /// What this connection's role may do beyond what a node needs.
    pub async fn excess_rights(&self) -> Result<Excess, StoreError> {
        let of_rows = |right: &str| ["insert", "update", "delete"].contains(&right);
        let whole: Vec<(&str, &str)> = TABLES
            .iter()
            .filter(|(name, _)| WHOLE_ROWS.contains(name))
            .flat_map(|(name, rights)| rights.iter().map(move |right| (*name, *right)))
            .filter(|(_, right)| of_rows(right))
            .collect();
        let query = bind!(
            EXCESS,
            table_name: whole.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            table_right: whole.iter().map(|(_, right)| *right).collect::<Vec<_>>(),
            fixed_column: FIXED_COLUMNS,
            function: FUNCTIONS,
        );
        let row = query.one(&self.db).await.doing("look at the rights of this role")?;
        Ok(Excess {
            role: row.get("role"),
            is_superuser: row.get("is_superuser"),
            is_owner: row.get("is_owner"),
            rights: row.get("excess"),
        })
    }
}

//! The store keeps refunds, their journal, the ledger of permits and the suspensions of channels in Postgres.
//! A method runs one statement and reads its rows. A statement that changes a state names the state that it leaves.
//!
//! The store does not decide when a method is called.
//! A statement with more than three parameters, and each statement in `sql/`, names its parameters (`named.rs`). The
//! others bind by position, because text and values stand side by side. Names that end in `_us` count microseconds.
//!
//! Statements read Postgres's own clock. A node passes a duration, which the statement adds to `now()`, and never a time of
//! its own clock. The windows of permits are times of Redis's clock; a claim checks them against Postgres's clock.

mod address;
mod cancel;
mod census;
mod chain;
mod changes;
mod channels;
mod checkup;
mod claim;
mod connections;
mod cooling;
mod copies;
mod copy;
mod deadlines;
mod desk;
mod differences;
mod due;
mod error;
mod events;
mod export;
mod find;
mod foresee;
mod generation;
mod inquire;
mod journal;
mod ledger;
mod look;
mod migrations;
mod moving;
mod named;
mod node_report;
mod nodes;
mod outlook;
mod own_suspensions;
mod ping;
mod proof;
mod proposals;
mod reach;
mod recover;
mod recovery_look;
mod refusal;
mod review;
mod rights;
mod roles;
mod rules;
mod save;
mod save_each;
mod seals;
mod second_person;
mod session;
mod settle;
mod shares;
mod suspensions;
mod upkeep;
mod waiting;
mod witness;
mod zone_days;

use std::str::FromStr;

use sqlx::Row;
use sqlx::postgres::{PgConnectOptions, PgRow};

use crate::limiter::timing::micros;
use crate::refund::State;
use connections::Connections;
use error::Doing;

pub use address::{
    ClientPem, client_certificate, client_key_file, is_verify_full, tls_parameter, trouble_of_address,
    unchecked_host,
};
pub use cancel::{Cancelled, Canceller};
pub use census::{ChannelCensus, NothingAccepted};
pub use chain::Sealing;
pub use changes::{Change, ChangeFilter, ChangePage, JournalReach};
pub use channels::{LeftBehind, Published, RunningChannel};
pub use checkup::Checkup;
pub use claim::{ClaimRequest, Claimed};
pub use cooling::Refusal;
pub use copies::{CollationVersion, IdSequence, Replication};
pub use deadlines::Forecast;
pub use desk::{AnswerSecond, BankOfNode, NodeRow, PermitSecond, ReviewFilter};
pub use differences::Differences;
pub use error::StoreError;
pub use events::{EVENT_KINDS, Event, EventCursor, EventFilter, EventPage};
pub use export::{EndedBy, SentAgain, SentLine};
pub use find::{Found, FoundRefunds, RefundProgress};
pub use inquire::{Inquired, InquiryEffect};
pub use journal::{Evidence, EvidenceKind, FirstByte, Rotation};
pub use ledger::Spent;
pub use look::Filter;
pub use migrations::{MigrationProgress, MigrationStep, SchemaStatus};
pub use moving::{Move, MoveTarget};
pub use node_report::{BankStatus, NodeReport, ReportedBank, ReportedWait};
pub use nodes::{Liveness, Peers};
pub use outlook::{ChannelOutlook, RuleInForce};
pub use own_suspensions::OwnSuspension;
pub use ping::Replayed;
pub use proof::{JournalCheck, JournalQuery, Offence, Provable};
pub use proposals::{
    Approved, Proposal, ProposalAnswer, ProposalEnd, ProposalFilter, WaitingProposal, Withdrawn,
};
pub use recover::{Recovered, RecoveryMove};
pub use recovery_look::{LookPlace, Looked, RecoveryLook};
pub use review::{Decided, Decision, NotedReference};
pub use rights::{Excess, Lacking, SchemaFault};
pub use roles::OtherRoles;
pub use save::{SaveResult, Saved};
pub use save_each::NotSaved;
pub use seals::{Head, Sealed};
pub use second_person::{NeededFor, OtherRule};
pub use settle::{LateAnswer, Settled, SettledBatch};
pub use shares::{Locked, OtherShares, ReservedShare};
pub use suspensions::{Pause, Paused, Resumed, Seen, Suspended, SuspendedBy, Suspension, SuspensionEnd};
pub use upkeep::{HolderKind, OtherSpans, SnapshotHolder};
pub use waiting::{BulkLook, Stays, Waiting, WaitingSum};
pub use witness::{ClockStep, ClockWitness, RedisTime};

/// The database, used through a bounded number of connections. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    db: Connections,
    /// Watches Postgres's clock for a node; `None` in commands of people.
    witness: Option<ClockWitness>,
}

impl Store {
    /// Prepares a store of at most `connections` connections. The first statement opens the first connection.
    /// `password` overrides the password of the url.
    pub fn open(url: &str, password: Option<&str>, connections: u32) -> Result<Self, StoreError> {
        Self::with_search_path(url, password, connections, session::SEARCH_PATH)
    }

    /// Prepares a store of one connection for the simulation, whose clock stands before Postgres's in `search_path`.
    #[doc(hidden)]
    pub fn simulated(url: &str, search_path: &'static str) -> Result<Self, StoreError> {
        Self::with_search_path(url, None, 1, search_path)
    }

    fn with_search_path(
        url: &str,
        password: Option<&str>,
        connections: u32,
        search_path: &'static str,
    ) -> Result<Self, StoreError> {
        let mut options =
            PgConnectOptions::from_str(url).map_err(StoreError::Url)?.application_name("refundd");
        if let Some(password) = password {
            options = options.password(password);
        }
        Ok(Store { db: Connections::new(options, connections, search_path), witness: None })
    }

    /// Logs in with this password from now on, if Postgres lets it in; else nothing changes.
    pub async fn take_password(&self, password: &str) -> Result<(), StoreError> {
        self.db.take_password(password).await.doing("log in to Postgres with the new password")
    }

    /// The same store, for requests of callers. All requests together use a part of the connections, so that the node can
    /// do its own work while every request is slow.
    #[must_use]
    pub fn for_callers(&self) -> Self {
        Store { db: self.db.for_callers(), ..self.clone() }
    }

    /// Closes idle connections now, and each connection in use when its statement ends.
    pub async fn close(&self) {
        self.db.close().await;
    }
}

/// Reads a column of microseconds since 1970; `None` for null.
fn timestamp(row: &PgRow, column: &'static str) -> Option<jiff::Timestamp> {
    row.get::<Option<i64>, _>(column).and_then(|us| jiff::Timestamp::from_microsecond(us).ok())
}

/// Reads the column `state` of the refund with this id.
fn read_state(row: &PgRow, id: i64) -> Result<State, StoreError> {
    let state: &str = row.get("state");
    state.parse().map_err(|_| StoreError::Row {
        table: "refundd.refunds",
        id,
        column: "state",
        found: state.to_owned(),
    })
}

/// Every statement with its name, for tests; one test prepares each of them on a migrated database.
#[must_use]
pub fn statements() -> Vec<(&'static str, &'static str)> {
    [
        save::STATEMENTS,
        copies::STATEMENTS,
        copy::STATEMENTS,
        foresee::STATEMENTS,
        look::STATEMENTS,
        cancel::STATEMENTS,
        moving::STATEMENTS,
        waiting::STATEMENTS,
        claim::STATEMENTS,
        settle::STATEMENTS,
        deadlines::STATEMENTS,
        due::STATEMENTS,
        find::STATEMENTS,
        outlook::STATEMENTS,
        recovery_look::STATEMENTS,
        inquire::STATEMENTS,
        journal::STATEMENTS,
        generation::STATEMENTS,
        ledger::STATEMENTS,
        recover::STATEMENTS,
        review::STATEMENTS,
        proposals::STATEMENTS,
        second_person::STATEMENTS,
        channels::STATEMENTS,
        suspensions::STATEMENTS,
        own_suspensions::STATEMENTS,
        cooling::STATEMENTS,
        events::STATEMENTS,
        nodes::STATEMENTS,
        census::STATEMENTS,
        shares::STATEMENTS,
        witness::STATEMENTS,
        rights::STATEMENTS,
        roles::STATEMENTS,
        checkup::STATEMENTS,
        upkeep::STATEMENTS,
        ping::STATEMENTS,
        rules::STATEMENTS,
        zone_days::STATEMENTS,
        proof::STATEMENTS,
        desk::STATEMENTS,
        seals::STATEMENTS,
        chain::STATEMENTS,
        changes::STATEMENTS,
        export::STATEMENTS,
    ]
    .concat()
}

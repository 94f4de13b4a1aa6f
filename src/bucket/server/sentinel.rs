//! Finds the server to connect to: the server in the address, or the primary that most sentinels name.
//!
//! It keeps no result. Every new connection asks the sentinels again, so a new connection follows a fail-over. A
//! minority of sentinels that is cut off may name a deposed primary. That costs pace, but the limit holds, because
//! the ledger in Postgres counts the permits of both servers.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use redis::{AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::kind;
use super::trust::ServerTrust;

/// The form of an address of sentinels.
const FORM: &str =
    "must be written as redis+sentinel://[user:password@]host[:26379],host[:26379],.../master[/db]";
const SCHEMES: [(&str, &str); 4] = [
    ("redis+sentinel://", "redis"),
    ("redis-sentinel://", "redis"),
    ("rediss+sentinel://", "rediss"),
    ("rediss-sentinel://", "rediss"),
];

/// The source of the server's address.
#[derive(Debug, Clone)]
pub(super) enum ServerOrigin {
    Here(ConnectionInfo),
    Sentinels(Sentinels),
}

/// Sentinels, and the primary they watch.
#[derive(Clone)]
pub(super) struct Sentinels {
    watchers: Vec<ConnectionInfo>,
    master: String,
    /// The text before and after the primary's `host:port` in its url.
    frame: (String, String),
}

/// The mistake in an address of sentinels, as the end of a sentence. `None` for a correct address, and for any other
/// kind of address. The text never quotes the address.
pub fn trouble_of(url: &str) -> Option<String> {
    parts(url.trim())?.err()
}

impl ServerOrigin {
    pub fn of(url: &str) -> Result<ServerOrigin, RedisError> {
        let wrong = |why: String| RedisError::from((ErrorKind::InvalidClientConfig, "the address", why));
        match parts(url) {
            None => Ok(ServerOrigin::Here(url.into_connection_info()?)),
            Some(Err(why)) => Err(wrong(why)),
            Some(Ok(parts)) => Sentinels::of(&parts).map(ServerOrigin::Sentinels),
        }
    }

    /// The server to connect to now.
    pub async fn find(
        &self,
        config: &AsyncConnectionConfig,
        trust: &ServerTrust,
    ) -> Result<ConnectionInfo, RedisError> {
        match self {
            ServerOrigin::Here(info) => Ok(info.clone()),
            ServerOrigin::Sentinels(sentinels) => sentinels.find(config, trust).await,
        }
    }

    /// The servers that the address names.
    pub fn named(self) -> Vec<ConnectionInfo> {
        match self {
            ServerOrigin::Here(info) => vec![info],
            ServerOrigin::Sentinels(sentinels) => sentinels.watchers,
        }
    }

    /// Whether sentinels name the server. Then the server itself must confirm that it is a primary.
    pub fn is_watched(&self) -> bool {
        matches!(self, ServerOrigin::Sentinels(_))
    }
}

/// Without the frame, which has the login.
impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sentinels").field("watchers", &self.watchers).finish_non_exhaustive()
    }
}

impl Sentinels {
    const ANSWER_WITHIN: Duration = Duration::from_millis(500);

    fn of(parts: &Parts<'_>) -> Result<Sentinels, RedisError> {
        let (scheme, login) = (parts.scheme, parts.sentinel_login.as_str());
        let info = |host: &str| format!("{scheme}://{login}{host}").into_connection_info();
        Ok(Sentinels {
            watchers: parts.hosts.iter().map(|host| info(host)).collect::<Result<_, _>>()?,
            master: parts.master.to_owned(),
            frame: (format!("{scheme}://{}", parts.login), format!("/{}", parts.db)),
        })
    }

    /// The address that more than half of all sentinels name. Without such a majority, the address that most of the
    /// sentinels name that answer in time.
    async fn find(
        &self,
        config: &AsyncConnectionConfig,
        trust: &ServerTrust,
    ) -> Result<ConnectionInfo, RedisError> {
        let mut answers = JoinSet::new();
        for sentinel in &self.watchers {
            let (sentinel, master, config) = (sentinel.clone(), self.master.clone(), config.clone());
            let trust = trust.clone();
            answers.spawn(async move {
                let answer =
                    timeout(Self::ANSWER_WITHIN, ask(trust.client(sentinel)?, &master, &config)).await;
                answer.unwrap_or_else(|_| Err(silent("a sentinel did not answer in time")))
            });
        }
        let mut named: HashMap<(String, u16), usize> = HashMap::new();
        let mut trouble = None;
        while let Some(answer) = answers.join_next().await {
            match answer {
                Ok(Ok(address)) => {
                    let votes = named.entry(address).or_default();
                    *votes += 1;
                    if *votes * 2 > self.watchers.len() {
                        break;
                    }
                }
                Ok(Err(error)) => trouble = Some(kind::that_may_pass(trouble, error)),
                Err(_) => {}
            }
        }
        let Some(((host, port), _)) = named.into_iter().max_by_key(|(_, votes)| *votes) else {
            return Err(trouble.unwrap_or_else(|| silent("no sentinel answers")));
        };
        self.primary(&host, port)
    }

    /// The connection to the primary that the sentinels name.
    pub(super) fn primary(&self, host: &str, port: u16) -> Result<ConnectionInfo, RedisError> {
        let (before, after) = &self.frame;
        let place =
            announced(host, port).ok_or((ErrorKind::UnexpectedReturnType, "sentinels name no server"))?;
        format!("{before}{place}{after}").into_connection_info()
    }
}

async fn ask(
    sentinel: Client,
    master: &str,
    config: &AsyncConnectionConfig,
) -> Result<(String, u16), RedisError> {
    let mut connection = sentinel.get_multiplexed_async_connection_with_config(config).await?;
    let mut question = redis::cmd("SENTINEL");
    let question = question.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
    let named: Option<(String, u16)> = question.query_async(&mut connection).await?;
    named.ok_or_else(|| {
        let why = format!("a sentinel knows no master `{master}`");
        RedisError::from((ErrorKind::InvalidClientConfig, "the address", why))
    })
}

fn silent(what: &'static str) -> RedisError {
    RedisError::from(std::io::Error::new(std::io::ErrorKind::TimedOut, what))
}

/// The parts of an address of sentinels.
#[derive(PartialEq, Eq)]
struct Parts<'a> {
    scheme: &'static str,
    /// The login at the primary, up to and with its `@`.
    login: &'a str,
    sentinel_login: String,
    /// Each with its port.
    hosts: Vec<String>,
    master: &'a str,
    db: u8,
}

/// Without the logins.
impl fmt::Debug for Parts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts")
            .field("hosts", &self.hosts)
            .field("master", &self.master)
            .finish_non_exhaustive()
    }
}

/// Reads an address of sentinels; `None` for any other kind of address.
fn parts(url: &str) -> Option<Result<Parts<'_>, String>> {
    let (scheme, rest) =
        SCHEMES.iter().find_map(|(written, scheme)| Some((*scheme, url.strip_prefix(written)?)))?;
    Some(parts_of(scheme, rest))
}

fn parts_of<'a>(scheme: &'static str, rest: &'a str) -> Result<Parts<'a>, String> {
    let form = |rule: &str| format!("{rule}; it {FORM}");
    let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
    let at = rest.rfind('@').map_or(0, |at| at + 1);
    let (login, rest) = rest.split_at(at);
    login_ends_at_its_at(login).map_err(form)?;
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (master, db) = path.split_once('/').unwrap_or((path, ""));
    if master.is_empty() {
        return Err(form("must name the master that the sentinels watch, after a `/`"));
    }
    if !is_name(master) {
        return Err(form("names a master with other characters than a-z, A-Z, 0-9, `-`, `_` and `.`"));
    }
    let db = match db {
        "" => 0,
        db => db.parse().map_err(|_| form("must give the database as a number after the master's name"))?,
    };
    let hosts =
        hosts.split(',').map(|host| with_port(host, 26379).map_err(form)).collect::<Result<_, _>>()?;
    Ok(Parts { scheme, login, sentinel_login: sentinel_login(options)?, hosts, master, db })
}

/// Refuses a login with a character that ends it in a url: the rest of it would be taken for a path, and a part of a
/// password for the host.
pub(super) fn login_ends_at_its_at(login: &str) -> Result<(), &'static str> {
    if login.contains(['/', '?', '#']) {
        return Err("has a `/`, `?` or `#` in its login; write them as %2F, %3F and %23");
    }
    Ok(())
}

/// Adds the default port to a host without a port.
pub(super) fn with_port(host: &str, default: u16) -> Result<String, &'static str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (name, port) = rest.split_once(']').ok_or("has a `[` without its `]`")?;
            if name.parse::<std::net::Ipv6Addr>().is_err() {
                return Err("has something else than an IPv6 address between `[` and `]`");
            }
            (&host[..name.len() + 2], port)
        }
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    if name.is_empty() {
        return Err("has an empty host");
    }
    if !name.starts_with('[') && !is_name(name) {
        return Err("has a host with other characters than a-z, A-Z, 0-9, `-`, `_` and `.`");
    }
    match port.strip_prefix(':') {
        None if port.is_empty() => Ok(format!("{name}:{default}")),
        Some(number) if number.parse::<u16>().is_ok_and(|number| number > 0) => Ok(host.to_owned()),
        _ => Err("has a port that is no number from 1 to 65535"),
    }
}

/// The place `host:port` that a server announces; `None` if the host is neither a name nor an address. In a url, other
/// characters could change the login or the options.
pub(super) fn announced(host: &str, port: u16) -> Option<String> {
    match host.parse::<std::net::Ipv6Addr>() {
        Ok(_) => Some(format!("[{host}]:{port}")),
        Err(_) if is_name(host) => Some(format!("{host}:{port}")),
        Err(_) => None,
    }
}

/// Whether a text may be the name of a host or of a master.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// The login at the sentinels, from the options of the address.
fn sentinel_login(options: &str) -> Result<String, String> {
    let (mut user, mut password) = ("", "");
    for option in options.split('&').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some(("sentinel_username", value)) => user = value,
            Some(("sentinel_password", value)) => password = value,
            _ => {
                return Err(
                    "may have only the options `sentinel_username` and `sentinel_password`".to_owned()
                );
            }
        }
    }
    Ok(if password.is_empty() { String::new() } else { format!("{user}:{password}@") })
}

#[cfg(test)]
mod tests;

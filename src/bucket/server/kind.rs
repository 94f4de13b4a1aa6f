//! Finds out that an address leads to another kind of server than its form says: one server, a sentinel, or a node of
//! a cluster.
//!
//! Each kind of server takes connections and refuses commands with its own error texts. Those texts do not say that
//! the address is wrong; [`WrongServer`] says it.

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::Server;
use crate::bucket::short;

/// The kind of server that answered, where the form of the address says another kind. Its text ends a sentence that
/// begins with the name of the setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WrongServer {
    ClusterNode,
    NoClusterNode,
    Sentinel,
    NoSentinel,
    /// Older than 6.2, with its version.
    TooOld(String),
}

impl std::fmt::Display for WrongServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            WrongServer::TooOld(version) => {
                return write!(
                    f,
                    "leads to a server of version {version}, and refundd needs Redis 6.2 or later, or Valkey: upgrade the server"
                );
            }
            WrongServer::ClusterNode => {
                "leads to a node of a cluster; write redis-cluster://host:port,host:port,... with some of its nodes"
            }
            WrongServer::NoClusterNode => {
                "leads to a server that is no node of a cluster; write redis://host:port if it is the only one, or \
                 redis+sentinel://host:port,.../master with its sentinels"
            }
            WrongServer::Sentinel => "leads to a sentinel; write redis+sentinel://host:port,host:port,.../master",
            WrongServer::NoSentinel => {
                "leads to a server that is no sentinel; name the sentinels, which have ports of their own, or write \
                 redis://host:port for one server, redis-cluster://host:port,... for a cluster"
            }
        })
    }
}

impl Server {
    /// Asks the server what kind of server it is. Returns the kind when the address is written for another kind.
    /// Returns `None` also when no server answers.
    pub async fn wrong_server(&self) -> Option<WrongServer> {
        let Server::Redis(link) = self else {
            return match self {
                Server::Cluster(cluster) => self.wrong_server_of(&cluster.learn().await.err()?),
                Server::Redis(_) | Server::Memory(_) | Server::Simulated(_) => None,
            };
        };
        let mut info = redis::cmd("CLUSTER");
        info.arg("INFO");
        match link.ask(async |to| info.query_async::<String>(to).await).await {
            Ok(info) if info.contains("cluster_state:") => return Some(WrongServer::ClusterNode),
            Ok(_) => {}
            Err(error) if let Some(wrong) = self.wrong_server_of(&error) => return Some(wrong),
            Err(_) if link.is_watched() => {}
            Err(_) => {
                let role = redis::cmd("ROLE");
                let role: Result<Vec<redis::Value>, _> =
                    link.ask(async |to| role.query_async(to).await).await;
                let role: Option<String> =
                    role.ok().and_then(|role| redis::from_redis_value_ref(role.first()?).ok());
                if role.as_deref() == Some("sentinel") {
                    return Some(WrongServer::Sentinel);
                }
            }
        }
        None
    }

    /// The wrong kind of server that an error shows; `None` when the error has another cause.
    pub fn wrong_server_of(&self, error: &RedisError) -> Option<WrongServer> {
        use ServerErrorKind::{Ask, ClusterDown, CrossSlot, Moved, TryAgain};
        if says(error, TOO_OLD) {
            return Some(WrongServer::TooOld(short(error.detail().unwrap_or("unknown"))));
        }
        match (self, error.kind()) {
            (Server::Redis(_), ErrorKind::Server(Moved | Ask | CrossSlot | TryAgain | ClusterDown)) => {
                Some(WrongServer::ClusterNode)
            }
            (Server::Redis(link), _) if link.is_watched() => {
                says(error, "unknown command 'SENTINEL'").then_some(WrongServer::NoSentinel)
            }
            (Server::Cluster(_), _)
                if says(error, "cluster support disabled") || says(error, "unknown command 'CLUSTER'") =>
            {
                Some(WrongServer::NoClusterNode)
            }
            _ => None,
        }
    }
}

/// The text of the error that ends a new connection to a server that is too old.
const TOO_OLD: &str = "the server is too old";

/// Asks a server at the other end of a new connection for its version. The scripts use `LPOP key count`, and an older
/// server would refuse it with a text that does not say why.
///
/// Each new connection asks: a server may have been away when the node started, or may be replaced later.
///
/// # Errors
/// When the server is too old or breaks the connection. A user without the right to ask is not kept out.
pub(super) async fn refuse_too_old(connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
    let mut info = redis::cmd("INFO");
    match info.arg("server").query_async::<String>(connection).await {
        Ok(info) => too_old(&info).map_or(Ok(()), |version| {
            Err((ErrorKind::InvalidClientConfig, TOO_OLD, version.to_owned()).into())
        }),
        Err(error) if matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The version that the answer to `INFO server` names, if that version has no `LPOP key count`.
fn too_old(info: &str) -> Option<&str> {
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"))?.trim();
    let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
    let (major, minor) = (parts.next()?, parts.next()?);
    ((major, minor) < (6, 2)).then_some(version)
}

/// Of the errors of two addresses, the error that may pass. While one address is only down, the url may be right.
pub(super) fn that_may_pass(before: Option<RedisError>, now: RedisError) -> RedisError {
    before.filter(RedisError::is_io_error).unwrap_or(now)
}

/// Whether the error text has this phrase. Versions of Redis write the names of commands in different quotes.
fn says(error: &RedisError, phrase: &str) -> bool {
    let plain = |text: &str| text.replace('`', "'").to_ascii_lowercase();
    plain(&error.to_string()).contains(&plain(phrase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_too_old_is_refused_with_its_version() {
        let info =
            |version: &str| format!("# Server\r\nredis_version:{version}\r\nredis_mode:standalone\r\n");
        for old in ["6.0.16", "5.0.14", "2.8.24"] {
            assert_eq!(too_old(&info(old)), Some(old));
            let refused = WrongServer::TooOld(old.to_owned()).to_string();
            assert!(refused.contains(old) && refused.contains("6.2 or later"), "{refused}");
        }
        for fit in ["6.2.0", "7.0.15", "8.0.1", "255.255.255", "unstable"] {
            assert_eq!(too_old(&info(fit)), None, "{fit}");
        }
        assert_eq!(too_old(""), None, "a user that may not read it is not kept out");
    }

    #[test]
    fn while_one_address_is_only_down_the_other_ones_mistake_is_not_the_urls() {
        let down = || RedisError::from(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
        let wrong = || RedisError::from((ErrorKind::Client, "unknown command 'SENTINEL'"));
        for (before, now) in [(None, down()), (Some(down()), wrong()), (Some(wrong()), down())] {
            assert!(that_may_pass(before, now).is_io_error());
        }
        assert!(!that_may_pass(Some(wrong()), wrong()).is_io_error());
    }
}

//! What answers behind an address where something else was to be expected: one server, the sentinels of one, or a cluster.
//!
//! Each takes connections and says no in words of its own, which tell whoever reads them nothing about the address.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::Server;

/// Another kind of server than the address says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistaken {
    ClusterNode,
    NoClusterNode,
    Sentinel,
    NoSentinel,
}

impl std::fmt::Display for Mistaken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Mistaken::ClusterNode => {
                "leads to a node of a cluster; write redis-cluster://host:port,host:port,... with some of its nodes"
            }
            Mistaken::NoClusterNode => {
                "leads to a server that is no node of a cluster; write redis://host:port if it is the only one, or \
                 redis+sentinel://host:port,.../master with its sentinels"
            }
            Mistaken::Sentinel => "leads to a sentinel; write redis+sentinel://host:port,host:port,.../master",
            Mistaken::NoSentinel => {
                "leads to a server that is no sentinel; name the sentinels, which have ports of their own, or write \
                 redis://host:port for one server, redis-cluster://host:port,... for a cluster"
            }
        })
    }
}

impl Server {
    /// Asks what answers, where that says more than any question would; `None` too where nothing answers.
    pub async fn mistake(&self) -> Option<Mistaken> {
        let Server::Redis(link) = self else {
            return match self {
                Server::Cluster(cluster) => self.mistaken(&cluster.learn().await.err()?),
                Server::Redis(_) | Server::Memory(_) | Server::StandIn(_) => None,
            };
        };
        let mut info = redis::cmd("CLUSTER");
        info.arg("INFO");
        match link.ask(async |to| info.query_async::<String>(to).await).await {
            Ok(info) => info.contains("cluster_state:").then_some(Mistaken::ClusterNode),
            Err(error) if link.is_watched() => self.mistaken(&error),
            Err(_) => {
                let role = redis::cmd("ROLE");
                let role: Vec<redis::Value> = link.ask(async |to| role.query_async(to).await).await.ok()?;
                let role: String = redis::from_redis_value_ref(role.first()?).ok()?;
                (role == "sentinel").then_some(Mistaken::Sentinel)
            }
        }
    }

    /// Whether an error comes from that.
    pub fn mistaken(&self, error: &RedisError) -> Option<Mistaken> {
        use ServerErrorKind::{Ask, ClusterDown, CrossSlot, Moved, TryAgain};
        match (self, error.kind()) {
            (Server::Redis(_), ErrorKind::Server(Moved | Ask | CrossSlot | TryAgain | ClusterDown)) => {
                Some(Mistaken::ClusterNode)
            }
            (Server::Redis(link), _) if link.is_watched() => {
                says(error, "unknown command 'SENTINEL'").then_some(Mistaken::NoSentinel)
            }
            (Server::Cluster(_), _)
                if says(error, "cluster support disabled") || says(error, "unknown command 'CLUSTER'") =>
            {
                Some(Mistaken::NoClusterNode)
            }
            _ => None,
        }
    }
}

/// Of two addresses' errors the one that may pass: while one is only down, nothing says that the url is wrong.
pub(super) fn that_may_pass(before: Option<RedisError>, now: RedisError) -> RedisError {
    before.filter(RedisError::is_io_error).unwrap_or(now)
}

/// Versions write the names of commands in quotes of their own.
fn says(error: &RedisError, words: &str) -> bool {
    let plain = |text: &str| text.replace('`', "'").to_ascii_lowercase();
    plain(&error.to_string()).contains(&plain(words))
}

#[cfg(test)]
mod tests {
    use super::*;

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

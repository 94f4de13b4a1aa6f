//! Reads the address of a cluster, and names the mistake in a malformed one.

use std::fmt;

use redis::{ConnectionInfo, IntoConnectionInfo, RedisError};

use crate::bucket::server::sentinel::{login_ends_at_its_at, with_port};

const FORM: &str = "must be written as redis-cluster://[user:password@]host[:6379],host[:6379],...";
const SCHEMES: [(&str, &str); 4] = [
    ("redis+cluster://", "redis"),
    ("redis-cluster://", "redis"),
    ("rediss+cluster://", "rediss"),
    ("rediss-cluster://", "rediss"),
];

/// Some nodes of a cluster, and how to log in to any of its nodes.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::bucket::server) struct ClusterAddress {
    /// The text before a node's `host:port` in its url.
    frame: String,
    /// Each with its port.
    pub seeds: Vec<String>,
}

/// Without the frame, which has the login.
impl fmt::Debug for ClusterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterAddress").field("seeds", &self.seeds).finish_non_exhaustive()
    }
}

impl ClusterAddress {
    /// The connection to one node, given as `host:port`.
    pub fn node(&self, node: &str) -> Result<ConnectionInfo, RedisError> {
        format!("{}{node}", self.frame).into_connection_info()
    }
}

/// Reads the address of a cluster; `None` for any other kind of address. The error text never quotes the address.
pub(in crate::bucket::server) fn of(url: &str) -> Option<Result<ClusterAddress, String>> {
    let (scheme, rest) =
        SCHEMES.iter().find_map(|(written, scheme)| Some((*scheme, url.strip_prefix(written)?)))?;
    Some(parts(scheme, rest))
}

fn parts(scheme: &str, rest: &str) -> Result<ClusterAddress, String> {
    let form = |rule: &str| format!("{rule}; it {FORM}");
    let at = rest.rfind('@').map_or(0, |at| at + 1);
    let (login, rest) = rest.split_at(at);
    login_ends_at_its_at(login).map_err(form)?;
    let hosts = match rest.split_once('/') {
        None | Some((_, "" | "0")) => rest.split('/').next().unwrap_or_default(),
        Some(_) => return Err(form("names a database, and a cluster has only database 0")),
    };
    let seeds = hosts.split(',').map(|host| with_port(host, 6379).map_err(form)).collect::<Result<_, _>>()?;
    Ok(ClusterAddress { frame: format!("{scheme}://{login}"), seeds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_cluster_is_taken_apart() {
        let address = of("rediss-cluster://app:p@ss@one,two:7000,[::1]:7001/0").unwrap().unwrap();
        assert_eq!(address.frame, "rediss://app:p@ss@");
        assert_eq!(address.seeds, ["one:6379", "two:7000", "[::1]:7001"]);
        let node = of("redis+cluster://one").unwrap().unwrap().node("[::1]:7001").unwrap();
        assert_eq!(node.addr().to_string(), "::1:7001");
        assert_eq!(of("redis://one"), None);
    }

    #[test]
    fn a_bad_address_is_refused_by_what_is_wrong_with_it() {
        for (url, why) in [
            ("redis+cluster://one,,two", "an empty host"),
            ("redis-cluster://", "an empty host"),
            ("redis+cluster://one:x", "a port that is no number"),
            ("redis+cluster://one:7000/3", "only database 0"),
        ] {
            let error = of(url).unwrap().unwrap_err();
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}

//! The rule that nothing beyond this host is reached in clear text.
//!
//! The configuration checks the hosts that it names. Sentinels and the nodes of a cluster name further servers later, so
//! every new connection to Redis is checked, too.

use std::net::IpAddr;

use redis::{ConnectionAddr, ConnectionInfo, ErrorKind, RedisError};

/// The hosts that may be reached without TLS, or without a check of their certificates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClearText {
    #[default]
    ThisHostOnly,
    /// The operator trusts every network on the way.
    Accepted,
}

impl ClearText {
    /// Refuses a server on another host that a connection would reach in clear text.
    pub(super) fn check(self, server: &ConnectionInfo) -> Result<(), RedisError> {
        match (self, unchecked_host(server)) {
            (ClearText::ThisHostOnly, Some(host)) if !is_this_host(host) => {
                let why = format!(
                    "they name the server `{host}` on another host, and anyone on the way could read and change what is \
                     sent; use `rediss+sentinel://` or `rediss-cluster://`, or, if you trust every network on the way, set \
                     `plain = \"accepted\"` in `[redis]`"
                );
                Err((ErrorKind::InvalidClientConfig, "sentinels or cluster in clear text", why).into())
            }
            _ => Ok(()),
        }
    }
}

/// The host that is reached without TLS, or without a check of its certificate.
pub(super) fn unchecked_host(server: &ConnectionInfo) -> Option<&str> {
    match server.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, insecure: true, .. } => Some(host),
        _ => None,
    }
}

/// Whether bytes to this host stay on this machine.
pub fn is_this_host(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = |ip: IpAddr| ip.to_canonical().is_loopback();
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::is_this_host;

    #[test]
    fn only_loopback_is_this_host() {
        for host in ["localhost", "LocalHost", "127.0.0.1", "127.8.9.1", "::1", "[::1]", "::ffff:127.0.0.1"] {
            assert!(is_this_host(host), "{host}");
        }
        for host in
            ["", "db", "localhost.example", "10.0.0.1", "0.0.0.0", "::", "[fe80::1]", "127.0.0.1.example"]
        {
            assert!(!is_this_host(host), "{host}");
        }
    }
}

//! The law that nothing beyond this host is reached in clear text.
//!
//! It sees the hosts that the file names. Sentinels and the nodes of a cluster name further servers later.

use std::net::IpAddr;

/// Whether bytes to this host stay on this machine.
pub(super) fn is_this_host(host: &str) -> bool {
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

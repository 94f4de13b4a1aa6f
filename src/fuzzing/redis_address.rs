//! The address of Redis in the file, and the servers that sentinels and the nodes of a cluster announce.

use std::net::Ipv6Addr;

use redis::Value;

use super::head_and_rest;
use crate::bucket::fuzzing::announced;
use crate::bucket::{trouble_of_address, unchecked_hosts};
use crate::refund::text;

/// An announcement that means nothing beyond a host and a port.
const PLAIN: (&str, u16) = ("h.example", 7);

/// The input is a url, a blank line, and an answer in Redis's protocol. An announced server is reached at the announced
/// host and port, with the login and the TLS of the url, or not at all.
pub fn target(input: &[u8]) {
    let (lines, rest) = head_and_rest(input);
    let [url] = lines[..] else { return };
    if let Some(trouble) = trouble_of_address(url) {
        assert!(!trouble.is_empty());
        return;
    }
    let _ = unchecked_hosts(url);
    let Ok(answer) = redis::parse_redis_value(rest) else { return };
    // The same url, and an announcement that cannot mean anything else.
    let (host, port) = PLAIN;
    let name = || Value::BulkString(host.as_bytes().to_vec());
    let sentinel = Value::Array(vec![name(), Value::BulkString(port.to_string().into_bytes())]);
    let redirection = Value::SimpleString(format!("{host}:{port}"));
    let plain = [sentinel, redirection].iter().find_map(|answer| announced(url, answer)?.pop()?.connection);
    for one in announced(url, &answer).unwrap_or_default() {
        let Some(found) = one.connection else { continue };
        let Some(plain) = &plain else { panic!("{url} reaches {found:?}, and not {host}") };
        let (host, port) = one.place.rsplit_once(':').unwrap_or_default();
        assert!(
            is_same(host, &found.host) && port == found.port.to_string(),
            "{url} reaches {found:?}, and not {host}"
        );
        assert_eq!(
            (&found.user, &found.password, found.has_tls),
            (&plain.user, &plain.password, plain.has_tls)
        );
        assert!(!found.host.contains(text::is_hidden), "{found:?}");
    }
}

/// Whether two hosts are one. An IPv6 address has many forms.
fn is_same(one: &str, other: &str) -> bool {
    let bare = |host: &str| host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let address = |host: &str| bare(host).parse::<Ipv6Addr>().ok();
    bare(one) == bare(other) || address(one).is_some_and(|one| address(other) == Some(one))
}

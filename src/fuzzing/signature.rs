//! Signed requests (RFC 9421): what refundd signs, the pretend bank checks with code of its own.

use std::sync::Arc;

use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Uri};
use playground::bank::signature::{Key, Received, check};

use super::head_and_rest;
use crate::bank::fuzzing::signed;
use crate::channel::{Signing, SigningKey};

const CREATED: u64 = 1_700_000_000;
/// A key that the request does not have.
const ANOTHER: &str = "another";
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The input is a method, an address, the name of a signing key, an `Idempotency-Key`, a blank line and a body. The bank
/// takes the request as it was signed. It refuses another method, path or body, another key and another `Idempotency-Key`.
pub fn target(input: &[u8]) {
    let (lines, body) = head_and_rest(input);
    let [method, address, id, refund_key] = lines[..] else { return };
    let (Ok(method), Ok(address)) = (Method::from_bytes(method.as_bytes()), address.parse::<Uri>()) else {
        return;
    };
    // The configuration takes no `"` and no `\`; the pretend bank reads no name with the others.
    let is_plain = |c: char| c.is_ascii_graphic() && !"\"\\;,()=:".contains(c);
    let path = address.path_and_query().and_then(|path| path.as_str().parse::<Uri>().ok());
    let (Some(path), Some(_)) = (path, address.host()) else { return };
    if address.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return; // the configuration refuses it
    }
    let Ok(refund_key) = HeaderValue::from_str(refund_key.trim()) else { return };
    if id.is_empty()
        || !id.chars().all(is_plain)
        || refund_key.to_str().is_err()
        || refund_key.is_empty()
        || refund_key == ANOTHER
    {
        return;
    }
    let secret: Vec<u8> = id.bytes().rev().collect();
    let keys = Signing([SigningKey { id: id.to_owned(), secret: Arc::new(secret.clone().into()) }].into());
    let mut headers = HeaderMap::new();
    headers.insert(IDEMPOTENCY_KEY, refund_key);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let signed = signed(&keys, &address, (&method, &path), headers, body, CREATED);
    let mut headers = signed.unwrap_or_else(|| panic!("`{id}` does not fit into a header"));
    let (host, port) = (address.host().unwrap_or_default(), address.port_u16());
    let usual = if address.scheme_str() == Some("https") { 443 } else { 80 };
    let host =
        port.filter(|port| *port != usual).map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    let Ok(host) = HeaderValue::try_from(host) else { return };
    headers.insert("host", host);

    let known = vec![(id.to_owned(), secret)];
    let now = i64::try_from(CREATED).unwrap_or_default();
    let query = address.query();
    let takes = |method: &str, path: &str, headers: &HeaderMap, body: &[u8], keys: &[Key]| {
        check(&Received { method, path, query, headers, body }, keys, now)
    };
    let (method, path) = (method.as_str(), path.path());
    assert_eq!(takes(method, path, &headers, body, &known), Ok(()));
    let longer = [body, b"x"].concat();
    assert!(takes(method, path, &headers, &longer, &known).is_err());
    assert!(takes("PATCH", path, &headers, body, &known).is_err() || method == "PATCH");
    assert!(takes(method, "/another", &headers, body, &known).is_err() || path == "/another");
    assert!(takes(method, path, &headers, body, &[(id.to_owned(), Vec::new())]).is_err());
    headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_static(ANOTHER));
    assert!(takes(method, path, &headers, body, &known).is_err());
}

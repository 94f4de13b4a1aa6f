//! Checks the signatures of requests by RFC 9421, as a bank does that demands them.
//!
//! It reads the standard for itself and shares no code with refundd. It computes HMAC from its definition in RFC 2104.

use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;
use hyper::http::request::Parts;
use sha2::{Digest, Sha256};

/// A key that the bank knows, and its name.
pub type Key = (String, Vec<u8>);

/// What a signature must cover.
const DEMANDED: [&str; 4] = ["@method", "@authority", "@path", "@query"];
/// How far a signature's time may be from the bank's own.
const TOLERANCE_S: i64 = 300;

/// The request as the bank received it.
#[derive(Debug)]
pub struct Received<'a> {
    /// Its method.
    pub method: &'a str,
    /// The path of its target, without the query.
    pub path: &'a str,
    /// The query of its target.
    pub query: Option<&'a str>,
    /// All of its headers.
    pub headers: &'a HeaderMap,
    /// Its whole body.
    pub body: &'a [u8],
}

impl<'a> Received<'a> {
    pub(super) fn of(head: &'a Parts, body: &'a [u8]) -> Self {
        let (method, headers) = (head.method.as_str(), &head.headers);
        Received { method, path: head.uri.path(), query: head.uri.query(), headers, body }
    }
}

/// Checks a request under the bank's keys at a time in seconds since 1970.
///
/// # Errors
/// With the reason, unless one of the request's signatures is good under one of the keys.
pub fn check(request: &Received<'_>, keys: &[Key], now_s: i64) -> Result<(), String> {
    let text = |name: &str| request.headers.get(name).and_then(|value| value.to_str().ok());
    let inputs = text("signature-input").ok_or("no signature-input")?;
    let signatures = text("signature").ok_or("no signature")?;
    if !request.body.is_empty() {
        let digest = format!("sha-256=:{}:", STANDARD.encode(Sha256::digest(request.body)));
        if text("content-digest") != Some(&digest) {
            return Err("the content-digest is not that of the body".to_owned());
        }
    }
    let mut why = "no signature of a known key".to_owned();
    for input in inputs.split(", ") {
        let (label, input) = input.split_once('=').ok_or("a malformed signature-input")?;
        let signature =
            signatures.split(", ").find_map(|one| one.strip_prefix(&format!("{label}=:"))?.strip_suffix(':'));
        let id = parameter(input, "keyid").unwrap_or_default().trim_matches('"');
        let Some(((_, key), signature)) = keys.iter().find(|(known, _)| known == id).zip(signature) else {
            continue;
        };
        match signed(request, input, now_s) {
            Err(error) => why = error,
            Ok(base) if STANDARD.encode(hmac(key, base.as_bytes())) == signature => return Ok(()),
            Ok(_) => why = format!("the signature by `{id}` is another"),
        }
    }
    Err(why)
}

/// The bytes that were signed: the signature base.
fn signed(request: &Received<'_>, input: &str, now_s: i64) -> Result<String, String> {
    let created: i64 = parameter(input, "created").and_then(|at| at.parse().ok()).ok_or("no time")?;
    if (created - now_s).abs() > TOLERANCE_S {
        return Err(format!("the signature is of {created}, and now is {now_s}"));
    }
    if parameter(input, "alg") != Some("\"hmac-sha256\"") {
        return Err("another algorithm".to_owned());
    }
    let (list, _) = input.strip_prefix('(').and_then(|rest| rest.split_once(')')).ok_or("no list")?;
    let names: Vec<&str> = list.split(' ').map(|name| name.trim_matches('"')).collect();
    let body = (!request.body.is_empty()).then_some("content-digest");
    let key = request.headers.contains_key("idempotency-key").then_some("idempotency-key");
    if let Some(bare) = DEMANDED.into_iter().chain(body).chain(key).find(|name| !names.contains(name)) {
        return Err(format!("the signature does not cover {bare}"));
    }
    let mut base = String::new();
    for name in names {
        let value = match name {
            "@method" => request.method.to_owned(),
            "@path" => request.path.to_owned(),
            "@query" => format!("?{}", request.query.unwrap_or_default()),
            "@authority" => header(request, "host")?.to_ascii_lowercase(),
            other => header(request, other)?,
        };
        let _ = writeln!(base, "\"{name}\": {value}");
    }
    Ok(base + "\"@signature-params\": " + input)
}

fn header(request: &Received<'_>, name: &str) -> Result<String, String> {
    let value = request.headers.get(name).and_then(|value| value.to_str().ok());
    value.map(str::to_owned).ok_or_else(|| format!("no header {name}"))
}

fn parameter<'a>(input: &'a str, name: &str) -> Option<&'a str> {
    input.split(';').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

/// HMAC as RFC 2104 defines it: H(key ^ opad, H(key ^ ipad, text)).
fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    const BLOCK: usize = 64;
    let mut padded = if key.len() > BLOCK { Sha256::digest(key).to_vec() } else { key.to_vec() };
    padded.resize(BLOCK, 0);
    let with = |pad: u8| padded.iter().map(|byte| byte ^ pad).collect::<Vec<u8>>();
    let inner = Sha256::digest([with(0x36), text.to_vec()].concat());
    Sha256::digest([with(0x5c), inner.to_vec()].concat()).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed_request(body: &[u8], created: i64) -> HeaderMap {
        let digest = format!("sha-256=:{}:", STANDARD.encode(Sha256::digest(body)));
        let mut headers = HeaderMap::new();
        headers.insert("host", "bank".parse().unwrap());
        headers.insert("content-digest", digest.parse().unwrap());
        let input = format!(
            "(\"@method\" \"@authority\" \"@path\" \"@query\" \"content-digest\");created={created};keyid=\"k\";alg=\"hmac-sha256\""
        );
        let base = format!(
            "\"@method\": POST\n\"@authority\": bank\n\"@path\": /r\n\"@query\": ?\n\"content-digest\": {digest}\n\"@signature-params\": {input}"
        );
        let signature = STANDARD.encode(hmac(b"secret", base.as_bytes()));
        headers.insert("signature-input", format!("a={input}").parse().unwrap());
        headers.insert("signature", format!("a=:{signature}:").parse().unwrap());
        headers
    }

    #[test]
    fn another_body_path_time_or_key_is_refused() {
        let headers = signed_request(b"{}", 1_000);
        let keys = |id: &str, key: &[u8]| vec![(id.to_owned(), key.to_vec())];
        let request = |path, body| Received { method: "POST", path, query: None, headers: &headers, body };
        let good = keys("k", b"secret");
        assert_eq!(check(&request("/r", b"{}"), &good, 1_299), Ok(()));
        assert!(check(&request("/r", b"{ }"), &good, 1_000).unwrap_err().contains("content-digest"));
        assert!(check(&request("/s", b"{}"), &good, 1_000).unwrap_err().contains("is another"));
        assert!(check(&request("/r", b"{}"), &good, 1_301).unwrap_err().contains("now is 1301"));
        assert!(
            check(&request("/r", b"{}"), &keys("k", b"guess"), 1_000).unwrap_err().contains("is another")
        );
        assert!(
            check(&request("/r", b"{}"), &keys("other", b"secret"), 1_000).unwrap_err().contains("known key")
        );
    }
}

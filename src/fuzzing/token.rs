//! The lines of a `tokens_file`, and the `Authorization` headers of requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use crate::caller::scope::CallerScope;
use crate::caller::token::{StoredToken, Token};
use crate::caller::{Caller, Callers, Names};
use crate::http::fuzzing::caller;
use crate::refund::{AmountBounds, CallerName};

/// A caller with a token that was made for this run, and one that shows a certificate.
static KNOWN: LazyLock<(Token, Callers)> = LazyLock::new(|| {
    let token = Token::mint().unwrap_or_else(|error| panic!("{error}"));
    let caller = |name: &str, tokens, certificate: Option<&str>| {
        let name = CallerName::new(name).unwrap_or_else(|error| panic!("{error}"));
        let caller = Caller {
            name: name.clone(),
            tokens,
            certificate: certificate.map(str::to_owned),
            may: BTreeSet::from([CallerScope::Look]),
            channels: Names::All,
            limits: Names::All,
            rate: None,
            most: AmountBounds::default(),
        };
        (name, Arc::new(caller))
    };
    let stored = token.stored(jiff::Timestamp::MAX);
    let all = [caller("shop", vec![stored], None), caller("desk", Vec::new(), Some("desk.internal"))];
    (token, Callers(BTreeMap::from(all)))
});

/// Each line of the input is read as a stored token, and all lines together are the `Authorization` headers of one request.
/// A token that is read is written as the same line. No header but the right one lets anybody in: `TOKEN` in the input
/// stands for the right token.
pub fn target(input: &[u8]) {
    let (token, callers) = &*KNOWN;
    let right = token.expose().as_bytes();
    let mut headers: Vec<Vec<u8>> = Vec::new();
    for line in input.split(|byte| *byte == b'\n').take(8) {
        if let Ok(text) = std::str::from_utf8(line)
            && let Ok(stored) = StoredToken::read(text)
        {
            assert_eq!(StoredToken::read(&stored.to_string()).as_ref(), Ok(&stored));
            assert!(!stored.is(text) && !stored.is(token.expose()), "{stored:?}");
        }
        let placed = line.windows(5).position(|part| part == b"TOKEN");
        headers
            .push(placed.map_or_else(|| line.to_vec(), |at| [&line[..at], right, &line[at + 5..]].concat()));
    }
    let shown: Vec<&[u8]> = headers.iter().map(Vec::as_slice).collect();
    let may_enter = |header: &[u8]| {
        let (scheme, rest) = header.split_at_checked(7).unwrap_or_default();
        scheme.eq_ignore_ascii_case(b"bearer ") && rest.trim_ascii() == right
    };
    // An HTTP server takes no header with a control character, so such a header is none.
    let is_header =
        |header: &&&[u8]| header.iter().all(|byte| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f));
    let sent: Vec<&&[u8]> = shown.iter().filter(is_header).collect();
    let is_right = matches!(sent[..], [header] if may_enter(header));
    assert_eq!(caller(callers, &shown, &[]).is_some(), is_right, "{sent:?}");
    // A certificate does not let a request in whose header is wrong.
    let by_certificate = caller(callers, &shown, &["desk.internal".to_owned()]);
    assert_eq!(by_certificate.is_some(), sent.is_empty() || is_right, "{sent:?}");
}

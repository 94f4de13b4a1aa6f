//! The bank's gate: which requests it lets in.

use super::script::Script;
use super::signature::{self, Received};
use super::tokens::TokenServer;

/// Why a request is not let in; `None` if it is.
pub(super) fn refusal(
    script: &Script,
    request: &Received<'_>,
    tokens: &TokenServer,
    now_us: i64,
) -> Option<String> {
    if script.demands_tokens && !tokens.lets_in(request, now_us) {
        return Some("no good token".to_owned());
    }
    script.signed_by.as_ref().and_then(|keys| signature::check(request, keys, now_us / 1_000_000).err())
}

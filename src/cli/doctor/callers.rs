//! Checks the tokens of callers: which have expired, and which expire soon.

use std::time::Duration;

use jiff::Timestamp;

use super::finding::Finding;
use crate::caller::token::StoredToken;
use crate::caller::{Caller, Callers};

const TOKENS: &str = "callers.tokens";

pub(super) fn findings(callers: &Callers, soon: Duration, now: Timestamp) -> Vec<Finding> {
    callers
        .tokens()
        .map(|(caller, token)| of_token(caller, token, soon, now).about(format!("caller `{}`", caller.name)))
        .collect()
}

fn of_token(
    caller: &Caller,
    StoredToken { id, expires, .. }: &StoredToken,
    soon: Duration,
    now: Timestamp,
) -> Finding {
    let left = expires.duration_since(now);
    let days = left.as_hours() / 24;
    if *expires <= now {
        let found = format!("token {id} expired at {expires:.0}");
        if caller.tokens.iter().all(|token| token.expires <= now) {
            let why = "every request of the caller is refused: 401, `expired_token`";
            let way_out = "make a token with `refundd token`, and put its line in place of this one; without such a caller, remove its table";
            return Finding::broken(TOKENS, found, why, way_out);
        }
        let why = "a program that still uses the token is refused: 401, `expired_token`";
        let way_out = "give the caller's other token to its programs, and remove the line of this one";
        Finding::warning(TOKENS, found, why, way_out)
    } else if left.unsigned_abs() <= soon {
        let why = "from then on a program that uses the token is refused: 401, `expired_token`";
        let way_out = "make the next one with `refundd token`, give it to the caller's programs, and remove the line of this one";
        Finding::warning(TOKENS, format!("token {id} expires in {days} days, at {expires:.0}"), why, way_out)
    } else {
        Finding::ok(TOKENS, format!("token {id} expires in {days} days, at {expires:.0}"))
    }
}

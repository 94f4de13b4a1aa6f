//! Logs inquiries whose outcome Postgres has.

use crate::bank::outcome::for_the_log;
use crate::logs::millis;
use crate::refund::State;
use crate::store::Inquired;

/// Logs a settled inquiry. `moved` is the state that the refund has now; `None` if it stays as others left it.
/// After a try whose commit was not seen (`again`), such an outcome need not be late: that try may have moved the refund.
pub(super) fn report(inquired: &Inquired, moved: Option<State>, again: bool) {
    let Inquired { inquiry: leased, channel, answer, settlement, .. } = inquired;
    let (id, number, outcome) = (leased.id, leased.number, answer.outcome.as_str());
    let Some(state) = moved else {
        if again {
            return;
        }
        tracing::warn!(
            refund.id = %id, channel.name = %channel, attempt.number = number, inquiry.number = number, outcome,
            "The inquiry outcome of refund {id} came too late; it is kept as evidence and moves nothing",
        );
        return;
    };
    if state == State::Review {
        tracing::warn!(
            refund.id = %id, channel.name = %channel, attempt.number = number, inquiry.number = number, outcome, code = answer.code.as_str(),
            "Refund {id} waits for a person after inquiry {number} on channel `{channel}`: {}", for_the_log(answer.code, &answer.message),
        );
    } else if state == leased.state {
        tracing::info!(
            refund.id = %id, channel.name = %channel, attempt.number = number, inquiry.number = number, outcome, code = answer.code.as_str(),
            next_ms = millis(settlement.inquire_in.unwrap_or_default()),
            "Refund {id} is still {} after inquiry {number} on channel `{channel}`: {}", leased.state, for_the_log(answer.code, &answer.message),
        );
    } else {
        tracing::info!(
            refund.id = %id, channel.name = %channel, attempt.number = number, inquiry.number = number, outcome, code = answer.code.as_str(),
            "Refund {id} is {state} after inquiry {number} on channel `{channel}`",
        );
    }
}

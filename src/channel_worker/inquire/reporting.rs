//! Logs inquiries whose outcome Postgres has, and those whose outcome it does not take.

use crate::bank::outcome::for_the_log;
use crate::bucket::Purpose;
use crate::logs::{chain, millis};
use crate::node::Node;
use crate::refund::State;
use crate::store::{Inquired, InquiryEffect, LateAnswer, StoreError};

/// Logs a settled inquiry. After a try whose commit was not seen (`again`), an outcome that moved nothing need not be late: that try may
/// have moved the refund.
pub(super) fn report(node: &Node, inquired: &Inquired, effect: InquiryEffect, again: bool) {
    let Inquired { inquiry: leased, channel, answer, settlement, .. } = inquired;
    let (id, number, outcome) = (leased.id, leased.number, answer.outcome.as_str());
    let state = match effect {
        InquiryEffect::Moved(state) => state,
        InquiryEffect::Late => {
            if !again {
                tracing::warn!(
                    refund.id = %id, channel.name = %channel, attempt.number = number, inquiry.number = number, outcome,
                    "The inquiry outcome of refund {id} came too late; it is kept as evidence and moves nothing",
                );
            }
            node.report_contradictions(vec![LateAnswer { id, purpose: Purpose::Inquire, number }]);
            return;
        }
        InquiryEffect::Lost => {
            let refund_ref = &leased.expected.refund_ref;
            node.report_lost(id, refund_ref, channel, outcome, answer.bank_ref.as_deref());
            return;
        }
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

/// Logs an outcome that is thrown away: another inquiry asks for it.
pub(super) fn report_dropped(inquired: &Inquired, error: &StoreError) {
    let Inquired { inquiry: leased, channel, answer, .. } = inquired;
    tracing::warn!(
        refund.id = %leased.id, channel.name = %channel, inquiry.number = leased.number, error = %chain(error),
        outcome = answer.outcome.as_str(), bank_ref = answer.bank_ref.as_deref(),
        "Failed to write the inquiry outcome of refund {}; the bank is asked again", leased.id,
    );
}

/// Logs an answer that the bank has the refund, which could not be written and is kept.
pub(super) fn report_kept(inquired: &Inquired, error: &StoreError) {
    let Inquired { inquiry: leased, channel, answer, .. } = inquired;
    tracing::warn!(
        refund.id = %leased.id, channel.name = %channel, inquiry.number = leased.number, error = %chain(error),
        outcome = answer.outcome.as_str(), bank_ref = answer.bank_ref.as_deref(),
        "Failed to write that the bank has refund {}, will try again until it works", leased.id,
    );
}

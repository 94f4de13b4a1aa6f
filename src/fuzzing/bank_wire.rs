//! The bytes that a bank sends back: head, body and end of an answer, through the client's own connection.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use uuid::Uuid;

use super::CONFIG;
use super::bank_answer::is_fit_for_the_journal;
use crate::bank::fuzzing::{inquired, sent};
use crate::refund::inquiry::{InquiryOutcome, LeasedInquiry};
use crate::refund::{ExpectedEcho, Leased, Outcome, RefundId, RequestId, State};

/// The input is all that a bank writes before it hangs up. The bank has the whole request then, so no input makes refundd
/// believe that nothing was sent. Only an answer of HTTP/1 with a fitting status settles a refund.
pub fn target(input: &[u8]) {
    let runtime =
        Builder::new_current_thread().enable_time().build().unwrap_or_else(|error| panic!("{error}"));
    runtime.block_on(async {
        for channel in CONFIG.channels.values() {
            let answer = sent(channel, &leased(), input).await.expect("the client of a plain address");
            assert!(answer.started.is_some() && answer.answer.outcome != Outcome::HandedBack, "{answer:?}");
            let answer = answer.answer;
            is_fit_for_the_journal(&answer.message, answer.bank_ref.as_deref());
            // Empty lines before an answer count for nothing: RFC 9112, section 2.2.
            let is_http = input.trim_ascii_start().starts_with(b"HTTP/1.");
            assert!(is_http || answer.outcome == Outcome::Unknown, "{answer:?}");
            if matches!(answer.outcome, Outcome::Succeeded | Outcome::Accepted) {
                assert!(answer.status.is_some_and(|status| (200..300).contains(&status)), "{answer:?}");
            }
            let answer =
                inquired(channel, &inquiry(), input).await.expect("the client of a plain address").answer;
            is_fit_for_the_journal(&answer.message, answer.bank_ref.as_deref());
            assert!(is_http || answer.outcome == InquiryOutcome::Nothing, "{answer:?}");
        }
    });
}

fn leased() -> Leased {
    Leased {
        id: RefundId(7),
        epoch: 1,
        holder: Arc::from("a/0"),
        attempt: 1,
        request_id: RequestId(Uuid::nil()),
        is_resend: false,
        is_first: true,
        expected: ExpectedEcho::sample(),
        body: Arc::from(&b"{}"[..]),
        traceparent: None,
    }
}

fn inquiry() -> LeasedInquiry {
    LeasedInquiry {
        id: RefundId(7),
        state: State::Unknown,
        epoch: 1,
        number: 1,
        uncertain_at_us: None,
        attempts: 1,
        request_id: RequestId(Uuid::nil()),
        expected: ExpectedEcho::sample(),
        age: Duration::ZERO,
        uncertain_for: None,
    }
}

//! Whether an answer is about another refund, or says something else of this one than was sent. Pure.

use super::texts::redact;
use crate::bank::Asked;
use crate::channel::ReferenceAt;
use crate::refund::{Code, EchoMismatch, card, text};

/// Why an answer cannot be about this refund.
#[derive(Debug)]
pub struct Contradiction {
    pub code: Code,
    /// For people.
    pub message: String,
    /// It names another refund, so the connection may be one answer off. Two references for one refund are a reason to think so, too.
    pub names_another: bool,
}

/// Why an answer cannot be about this refund; `None` if nothing speaks against it. `status_at` are the JSON pointers by which the
/// channel reads what the answer means.
pub fn contradiction<'p>(
    Asked { expected, secrets }: Asked<'_>,
    json: Option<&serde_json::Value>,
    status_at: impl IntoIterator<Item = &'p str>,
    reference_at: Option<ReferenceAt<'_>>,
    bank_ref: Option<&str>,
) -> Option<Contradiction> {
    let bank_ref_at = reference_at.map(|at| at.pointer);
    let short = |text: &str| text::first(redact(&secrets.hide(text)), 120);
    let mismatch = json.and_then(|json| expected.mismatch(json, status_at, bank_ref_at));
    if let Some(mismatch) = mismatch {
        let names_another = mismatch.names_another();
        let EchoMismatch { field, sent, answered } = mismatch;
        let (sent, answered) = (short(&sent), short(&answered));
        let message = format!("the answer repeats another {field}: \"{answered}\", and \"{sent}\" was sent");
        return Some(Contradiction { code: Code::EchoDiffers, message, names_another });
    }
    let (before, now) = expected.bank_ref.as_deref().zip(bank_ref)?;
    // One of the two may be masked: the channel's `card_numbers` may have changed in between.
    (before != now && card::masked(before) != now && card::masked(now) != before).then(|| {
        let (before, now) = (short(before), short(now));
        let message = format!(
            "the bank's reference is \"{now}\" now and was \"{before}\" before: were there two refunds?"
        );
        Contradiction { code: Code::BankRefDiffers, message, names_another: true }
    })
}

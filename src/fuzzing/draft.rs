//! One refund as JSON: the body of `POST /v1/refunds`.

use serde_json::{Value, json};

use super::{CONFIG, is_sound, quotes_no_card_number, shows_no_card_number};
use crate::refund::NewRefund;
use crate::refund::draft::{Draft, FIELDS};
use crate::unambiguous::Unambiguous;

/// An accepted refund is sound, and its fields as JSON are the same refund. A refusal lists few problems, and shows no card
/// number.
pub fn target(input: &[u8]) {
    let Ok(Unambiguous(json)) = serde_json::from_slice(input) else { return };
    let check = |json: &Value| Draft::check(json, &|channel| CONFIG.draft_rules(channel));
    match check(&json) {
        Ok(refund) => {
            is_sound(&refund);
            let again = check(&written(&refund, &json)).unwrap_or_else(|wrong| panic!("{wrong:?}"));
            assert_eq!(again, refund);
        }
        Err(wrong) => {
            // Each field once, and at most two problems of amounts, card numbers and orders of times; then 21 unknown ones.
            assert!(!wrong.is_empty() && wrong.len() <= 3 * FIELDS.len() + 21, "{} problems", wrong.len());
            for error in wrong {
                assert!(error.field.chars().count() <= 61, "{error:?}");
                assert!(error.message.chars().count() <= 400, "{error:?}");
                shows_no_card_number(&error.field);
                quotes_no_card_number(&error.message);
                let value = error.value.unwrap_or_default();
                // Every character may need six to be written as an escape.
                assert!(value.chars().count() <= 6 * 64, "{value}");
                quotes_no_card_number(&value);
            }
        }
    }
}

/// A refund as a caller would write it, with the payload of this JSON: its text has numbers that may be read another way.
fn written(refund: &NewRefund, given: &Value) -> Value {
    json!({
        "refund_ref": refund.refund_ref,
        "channel": refund.channel,
        "payment_ref": refund.payment_ref,
        "amount_minor": refund.money.amount_minor,
        "currency": refund.money.currency,
        "payload": given["payload"],
        "due_at": refund.due_at,
        "deadline_at": refund.deadline_at,
    })
}

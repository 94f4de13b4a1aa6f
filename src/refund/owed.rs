//! What is owed, as the bank was told, and whether an answer speaks of that.
//!
//! Banks that repeat what they were sent give us the chance to notice that they, or we, mixed two
//! refunds up. Such an answer proves nothing about this one; a person has to look.

use serde_json::Value;

use super::RefundId;

/// What an answer may repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owed {
    pub refund_id: RefundId,
    pub refund_ref: String,
    pub amount_minor: i64,
    pub currency: String,
    /// The bank's own reference, if an earlier answer held one.
    pub bank_ref: Option<String>,
}

/// A field of an answer that is not what was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    pub field: &'static str,
    pub sent: String,
    pub answered: String,
}

impl Owed {
    /// The first field that the answer repeats otherwise than it was sent.
    #[must_use]
    pub fn mismatch(&self, answer: &Value) -> Option<Mismatch> {
        let differs = |field: &'static str, sent: String, same: &dyn Fn(&str) -> bool| {
            let answered = match answer.get(field)? {
                Value::Null => return None,
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            (!same(&answered)).then_some(Mismatch { field, sent, answered })
        };
        let is = |number: i64| {
            move |text: &str| {
                text.parse() == Ok(number)
                    // 1250.0 is 1250; beyond 2^53 a fraction can no longer be told.
                    || text.parse::<f64>().is_ok_and(|f| f.fract() == 0.0 && f.abs() < 9e15 && format!("{f:.0}") == number.to_string())
            }
        };
        differs("refund_id", self.refund_id.to_string(), &is(self.refund_id.0))
            .or_else(|| differs("refund_ref", self.refund_ref.clone(), &|text| text == self.refund_ref))
            .or_else(|| differs("amount_minor", self.amount_minor.to_string(), &is(self.amount_minor)))
            .or_else(|| {
                differs("currency", self.currency.clone(), &|text| text.eq_ignore_ascii_case(&self.currency))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn differs(answer: &Value) -> Option<&'static str> {
        let owed = Owed {
            refund_id: RefundId(7),
            refund_ref: "R-7".to_owned(),
            amount_minor: 1250,
            currency: "EUR".to_owned(),
            bank_ref: None,
        };
        owed.mismatch(answer).map(|mismatch| mismatch.field)
    }

    #[test]
    fn an_answer_that_repeats_what_was_sent_or_nothing_is_believed() {
        for answer in [
            json!({}),
            json!([1]),
            json!("succeeded"),
            json!({"refund_id": 7, "refund_ref": "R-7", "amount_minor": 1250, "currency": "EUR"}),
            json!({"refund_id": "7", "amount_minor": "1250", "currency": "eur"}),
            json!({"amount_minor": 1250.0, "refund_ref": null}),
        ] {
            assert_eq!(differs(&answer), None, "{answer}");
        }
    }

    #[test]
    fn an_answer_about_another_refund_names_the_field() {
        for (answer, field) in [
            (json!({"refund_id": 8}), "refund_id"),
            (json!({"refund_id": [7]}), "refund_id"),
            (json!({"refund_ref": "R-8", "amount_minor": 1}), "refund_ref"),
            (json!({"refund_ref": "r-7"}), "refund_ref"),
            (json!({"amount_minor": 12.5}), "amount_minor"),
            (json!({"amount_minor": "12.50"}), "amount_minor"),
            (json!({"amount_minor": 1250.5}), "amount_minor"),
            (json!({"currency": "USD"}), "currency"),
        ] {
            assert_eq!(differs(&answer), Some(field), "{answer}");
        }
    }
}

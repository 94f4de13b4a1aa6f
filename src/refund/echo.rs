//! Compares an answer of the bank with the refund that was sent.
//!
//! Some banks repeat in the answer what they were sent. A different value shows that the bank or refundd mixed two
//! refunds up. Such an answer proves nothing about this refund, and a person must look.
//!
//! Looks at the top of the answer, and at each object that holds a status which the channel's configuration names. Other
//! objects may be about something else, such as the payment.
//!
//! The module does not decide what becomes of the refund.

use std::iter;

use serde_json::Value;

use super::{Money, RefundId};

/// The values that an answer may repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedEcho {
    pub refund_id: RefundId,
    pub refund_ref: String,
    pub money: Money,
    /// The bank's reference, if an earlier answer had one.
    pub bank_ref: Option<String>,
}

/// A field of an answer that differs from the sent value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EchoMismatch {
    pub field: &'static str,
    pub sent: String,
    pub answered: String,
}

impl EchoMismatch {
    /// Whether the field is the name of a refund. An amount may differ for other reasons, such as a fee.
    #[must_use]
    pub fn names_another(&self) -> bool {
        matches!(self.field, "refund_id" | "refund_ref")
    }
}

impl ExpectedEcho {
    /// The values of the refund that tests send.
    #[cfg(any(test, feature = "fuzzing"))]
    #[must_use]
    pub fn sample() -> ExpectedEcho {
        ExpectedEcho {
            refund_id: RefundId(7),
            refund_ref: "R-7".to_owned(),
            money: Money { amount_minor: 1250, currency: "EUR".to_owned() },
            bank_ref: None,
        }
    }

    /// A field of the answer that differs from the sent value, first the names of the refund. `status_at` are JSON pointers to
    /// statuses: the objects that hold them are compared, too. A missing field, null, an empty text and a `refund_id` of 0, which no
    /// refund has, name nothing.
    ///
    /// The value at `bank_ref_at` is the bank's own, also where it stands once more under the same name. Answers to sends and to
    /// inquiries may have different shapes, so an answer without a value there may have one under that name elsewhere.
    #[must_use]
    pub fn mismatch<'p>(
        &self,
        answer: &Value,
        status_at: impl IntoIterator<Item = &'p str>,
        bank_ref_at: Option<&str>,
    ) -> Option<EchoMismatch> {
        let own = bank_ref_at.and_then(|pointer| answer.pointer(pointer));
        let own_name = bank_ref_at.and_then(|pointer| Some(pointer.rsplit_once('/')?.1));
        let is_of_bank = |field: &str, value: &Value| {
            own_name == Some(field) && own.is_none_or(|own| own.is_null() || own == value)
        };
        let around = status_at.into_iter().filter_map(|pointer| Some(pointer.rsplit_once('/')?.0));
        let objects: Vec<&Value> =
            iter::once("").chain(around).filter_map(|place| answer.pointer(place)).collect();
        let differs_in = |object: &Value, field: &'static str, sent: &str, same: &dyn Fn(&str) -> bool| {
            let answered = match object.get(field).filter(|value| !is_of_bank(field, value))? {
                Value::Null => return None,
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let is_blank = answered.trim().is_empty() || field == "refund_id" && answered == "0";
            (!is_blank && !same(&answered)).then(|| EchoMismatch { field, sent: sent.to_owned(), answered })
        };
        let differs = |field: &'static str, sent: String, same: &dyn Fn(&str) -> bool| {
            objects.iter().find_map(|object| differs_in(object, field, &sent, same))
        };
        let is = |number: i64| {
            move |text: &str| {
                text.parse() == Ok(number)
                    // 1250.0 is 1250. A float beyond 2^53 cannot show a fraction, so it does not count.
                    || text.parse::<f64>().is_ok_and(|f| f.fract() == 0.0 && f.abs() < 9e15 && format!("{f:.0}") == number.to_string())
            }
        };
        differs("refund_id", self.refund_id.to_string(), &is(self.refund_id.0))
            .or_else(|| differs("refund_ref", self.refund_ref.clone(), &|text| text == self.refund_ref))
            .or_else(|| {
                differs("amount_minor", self.money.amount_minor.to_string(), &is(self.money.amount_minor))
            })
            .or_else(|| {
                differs("currency", self.money.currency.clone(), &|text| {
                    text.eq_ignore_ascii_case(&self.money.currency)
                })
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn differs(answer: &Value) -> Option<&'static str> {
        differs_at(answer, &[], None)
    }

    fn differs_at(answer: &Value, status_at: &[&str], bank_ref_at: Option<&str>) -> Option<&'static str> {
        let mismatch = ExpectedEcho::sample().mismatch(answer, status_at.iter().copied(), bank_ref_at);
        mismatch.map(|mismatch| mismatch.field)
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
            json!({"refund_id": "", "refund_ref": " ", "currency": ""}),
            json!({"refund_id": 0}),
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

    #[test]
    fn the_object_that_holds_a_status_is_compared_and_no_other_one() {
        let answer =
            json!({"data": [{"state": "BOOKED", "amount_minor": 9}], "payment": {"amount_minor": 9}});
        assert_eq!(differs_at(&answer, &["/data/0/state"], None), Some("amount_minor"));
        assert_eq!(differs_at(&answer, &["/code", "/data/0/state"], None), Some("amount_minor"));
        let both = json!({"amount_minor": 9, "data": [{"state": "BOOKED", "refund_id": 8}]});
        assert_eq!(
            differs_at(&both, &["/data/0/state"], None),
            Some("refund_id"),
            "a name says more than an amount"
        );
        for others in [&["/status"] as &[&str], &["/data/1/state"], &["/data/state"], &[""], &[]] {
            assert_eq!(differs_at(&answer, others, None), None, "{others:?}");
        }
        let top = json!({"data": {"state": "BOOKED"}, "currency": "USD"});
        assert_eq!(differs_at(&top, &["/data/state"], None), Some("currency"), "the top is always compared");
    }

    #[test]
    fn the_banks_own_reference_may_have_the_name_of_a_field_that_was_sent() {
        let answer = json!({"refund_id": "B-1", "data": {"state": "BOOKED", "refund_ref": "B-1"}});
        let at = |bank_ref: &str| differs_at(&answer, &["/data/state"], Some(bank_ref));
        assert_eq!(at("/refund_id"), Some("refund_ref"));
        assert_eq!(at("/data/refund_ref"), Some("refund_id"));
        assert_eq!(at("/data/refund_id"), Some("refund_ref"), "an answer of another shape");
        let both = |data: Value| {
            let answer = json!({"refund_id": 8, "data": {"state": "BOOKED", "refund_id": data}});
            differs_at(&answer, &["/data/state"], Some("/data/refund_id"))
        };
        assert_eq!(
            both(json!("B-1")),
            Some("refund_id"),
            "the bank repeats another id beside its own reference"
        );
        assert_eq!(
            (both(json!(8)), both(json!(null))),
            (None, None),
            "its own reference twice, or in one place"
        );
        let other = json!({"refund_id": "B-1", "amount_minor": 9});
        assert_eq!(differs_at(&other, &[], Some("/refund_id")), Some("amount_minor"));
    }
}

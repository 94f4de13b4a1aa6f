//! The payload of a refund that is saved.

use serde_json::Value;

use super::card;

/// Any JSON, as compact text. Values in memory may take a hundred times as much as their text: each object in `[{"":0},{"":0}]`
/// takes hundreds of bytes. A batch keeps thousands of payloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    text: Box<str>,
    holds_card: bool,
}

impl Payload {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it holds what may be the number of a payment card.
    #[must_use]
    pub fn holds_card(&self) -> bool {
        self.holds_card
    }
}

impl From<&Value> for Payload {
    fn from(value: &Value) -> Self {
        Payload { text: value.to_string().into(), holds_card: card::is_in_json(value) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_payload_of_many_small_objects_takes_no_more_than_its_text() {
        let payload = Payload::from(&Value::from(vec![json!({ "": 0 }); 1820]));
        assert_eq!(payload.as_str().len(), 1 + 1820 * r#"{"":0},"#.len());
        assert!(!payload.holds_card());
    }

    #[test]
    fn a_card_number_is_found_before_the_values_are_dropped() {
        let payload = Payload::from(&json!([{ "pan": 4_111_111_111_111_111_u64 }]));
        assert_eq!((payload.as_str(), payload.holds_card()), (r#"[{"pan":4111111111111111}]"#, true));
    }
}

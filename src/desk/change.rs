//! What an event changed, as people read it.

use serde_json::Value;

use crate::store::Event;

/// What the event changed: `state=review -> state=succeeded`; `None` if the event says nothing about it.
#[must_use]
pub fn change(event: &Event) -> Option<String> {
    match (&event.before, &event.after) {
        (Some(before), Some(after)) => Some(format!("{} -> {}", brief(before), brief(after))),
        (None, Some(after)) => Some(brief(after)),
        (Some(before), None) => Some(format!("was {}", brief(before))),
        (None, None) => None,
    }
}

/// A JSON object as people read it: `state=ready version=3`.
fn brief(value: &Value) -> String {
    let Value::Object(object) = value else { return value.to_string() };
    let parts = object.iter().map(|(key, value)| match value {
        // A text of several words stands in quotes, so that its end can be seen.
        Value::String(text)
            if text.is_empty() || text.contains(|c: char| c.is_whitespace() || "=\"".contains(c)) =>
        {
            format!("{key}={value}")
        }
        Value::String(text) => format!("{key}={text}"),
        other => format!("{key}={other}"),
    });
    parts.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_whose_end_could_not_be_seen_stands_in_quotes() {
        let settings = json!({ "version": 3, "state": "ready", "reason": "the bank = away", "until": "" });
        assert_eq!(brief(&settings), r#"reason="the bank = away" state=ready until="" version=3"#);
    }
}

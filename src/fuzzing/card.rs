//! The search for card numbers in any text.

use serde_json::Value;

use crate::refund::card::{is_in, is_in_json, masked};

const NUMBER: &str = "4111 1111 1111 1111";

/// A text has a card number exactly if masking changes it, also as JSON. No text before a card number hides the number.
pub fn target(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let shown = masked(&text);
    assert_eq!(shown != text, is_in(&text), "{text:?}");
    assert!(shown.len() <= text.len(), "{text:?} grows to {shown:?}");
    assert!(!is_in(&shown), "{text:?} is {shown:?} then, which has a card number");
    assert_eq!(is_in_json(&Value::from(text.as_ref())), is_in(&text), "{text:?}");
    if let Ok(json) = serde_json::from_slice::<Value>(input) {
        let _ = is_in_json(&json);
    }
    // Four line breaks end whatever the text was.
    let after = format!("{text}\n\n\n\n{NUMBER}");
    assert!(is_in(&after), "{text:?} hides the number after it");
    assert!(masked(&after).ends_with("\n\n\n\n411111******1111"), "{text:?} hides the number after it");
    let before = format!("{NUMBER}\n\n\n\n{text}");
    assert!(masked(&before).starts_with("411111******1111\n\n\n\n"), "{text:?} hides the number before it");
}

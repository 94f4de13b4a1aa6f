//! A batch of refunds: the body of `POST /v1/refunds/batch`, as a JSON array or as NDJSON.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{is_sound, quotes_no_card_number, shows_no_card_number};
use crate::http::fuzzing;
use crate::refund::text;

/// A batch that begins with `[` is read as an array, every other one as NDJSON. Each item has one result or is a sound
/// refund. The results are JSON, command no terminal, show no card number and are not much larger than the batch.
pub fn target(input: &[u8]) {
    let is_ndjson = input.trim_ascii_start().first() != Some(&b'[');
    let Some(batch) = fuzzing::batch(input, is_ndjson) else { return };
    let mut places = BTreeSet::new();
    for (place, refund) in &batch.refunds {
        is_sound(refund);
        assert!(places.insert(*place as u64), "{place} stands twice");
    }
    assert!(!batch.results.contains(text::is_hidden), "{}", batch.results);
    let results: Vec<Value> = serde_json::from_str(&batch.results).unwrap_or_else(|error| panic!("{error}"));
    for result in &results {
        let place = result["index"].as_u64().unwrap_or_else(|| panic!("{result} has no place"));
        assert!(places.insert(place), "{place} stands twice");
        assert!(result["status"] == 422 || result["status"] == 404, "{result}");
        let errors = result["errors"].as_array().map_or(&[][..], Vec::as_slice);
        assert!((1..=8).contains(&errors.len()), "{result}");
        for error in errors {
            shows_no_card_number(error["field"].as_str().unwrap_or_default());
            for part in ["value", "message"] {
                quotes_no_card_number(error[part].as_str().unwrap_or_default());
            }
        }
        let reference = result["refund_ref"].as_str().unwrap_or_default();
        assert!(reference.chars().count() <= 200, "{result}");
        if reference.chars().count() < 200 {
            shows_no_card_number(reference);
        }
    }
    let count = batch.refunds.len() + results.len();
    assert!(places.last().is_none_or(|last| *last + 1 == count as u64), "an item has neither");
    assert!(batch.results.len() <= 16 + count * 8 * 3000, "{} bytes for {count} items", batch.results.len());
}

//! Lines of one file with the same ref, for a dry run.
//!
//! The module knows only the lines that it was given. The caller gives those that Postgres would save.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::value::RawValue;

use crate::refund::NewRefund;
use crate::store::Differences;

/// The first line of each ref. Both are hashes, because a file may have millions of lines.
#[derive(Debug, Default)]
pub(super) struct Repeats(HashMap<u64, ContentHashes>);

/// A hash of each field in [`CONTENT`].
type ContentHashes = [u32; CONTENT.len()];

/// The fields in which lines with one ref may not differ.
const CONTENT: [&str; 5] = ["channel", "payment_ref", "amount_minor", "currency", "payload"];

impl Repeats {
    /// Whether an earlier line that would be saved has this ref.
    pub(super) fn has(&self, refund: &NewRefund) -> bool {
        self.0.contains_key(&hash(&refund.refund_ref))
    }

    /// In what a line differs from the first one with this ref. `None` if this line is the first; then later lines are
    /// compared with it.
    pub(super) fn compare(&mut self, refund: &NewRefund) -> Option<Differences> {
        let NewRefund { refund_ref, channel, payment_ref, money, payload, .. } = refund;
        let content = [
            hash(&channel.as_str()),
            hash(payment_ref),
            hash(&money.amount_minor),
            hash(&money.currency),
            hash(&payload.as_ref().map(|payload| AsJsonb(payload.as_str()))),
        ];
        // A part of each hash is enough to see a difference.
        let content = content.map(|hash| (hash >> 32) as u32);
        let mut is_first = false;
        let first = *self.0.entry(hash(refund_ref)).or_insert_with(|| {
            is_first = true;
            content
        });
        let differs = (0..CONTENT.len()).filter(|nth| first[*nth] != content[*nth]);
        (!is_first).then(|| Differences::of_fields(differs.map(|nth| CONTENT[nth])))
    }
}

/// Compact JSON that is equal where Postgres's `jsonb` is equal: it compares numbers by their value.
struct AsJsonb<'a>(&'a str);

impl Hash for AsJsonb<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.0.as_bytes().first() {
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(self.0).unwrap_or_default();
                ("array", items.len()).hash(state);
                for item in items {
                    AsJsonb(item.get()).hash(state);
                }
            }
            Some(b'{') => {
                let fields: BTreeMap<String, &RawValue> = serde_json::from_str(self.0).unwrap_or_default();
                ("object", fields.len()).hash(state);
                for (key, value) in fields {
                    (key, AsJsonb(value.get())).hash(state);
                }
            }
            Some(b'-' | b'0'..=b'9') => ("number", decimal(self.0)).hash(state),
            // A text has one spelling.
            _ => self.0.hash(state),
        }
    }
}

/// All digits of a number: Rust prints a float without an exponent, and without zeros at its end.
fn decimal(number: &str) -> String {
    match number.parse::<f64>().ok().filter(|_| number.contains(['.', 'e'])) {
        // The sum makes 0 of -0.
        Some(float) => (float + 0.0).to_string(),
        None => number.to_owned(),
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

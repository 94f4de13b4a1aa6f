//! What a meter shows, as the status report has it.

use serde_json::{Map, Value, json};

use crate::node::meter::{Binds, MeterReading};

/// The members of the report. A channel that nothing binds has no member `binds`.
pub(super) fn measured(reading: &MeterReading) -> Map<String, Value> {
    let MeterReading { binds, share, watched, limit, bank_p50, bank_p95, request } = reading;
    let mut measured = Map::new();
    if *binds != Binds::Nothing {
        measured.insert("binds".to_owned(), json!(binds.as_str()));
        measured.insert("binds_share".to_owned(), json!((share * 100.0).round() / 100.0));
        measured.insert("binds_over_seconds".to_owned(), json!(MeterReading::over(watched.as_secs())));
        if let Some(limit) = limit {
            measured.insert("binds_limit".to_owned(), json!(limit.as_str()));
        }
    }
    let spans = [("bank_p50_ms", bank_p50), ("bank_p95_ms", bank_p95), ("request_ms", request)];
    for (name, span) in spans {
        if let Some(span) = span {
            measured.insert(name.to_owned(), json!(span.as_micros() as f64 / 1000.0));
        }
    }
    measured
}

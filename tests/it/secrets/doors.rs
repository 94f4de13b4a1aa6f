//! The doors through which a text comes in: requests and commands that put a card number in.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::json;

use super::CARD;
use crate::cli::{refundd, text};
use crate::harness::http;
use crate::harness::node::refund;

/// The ways to write the card number. In one of them JSON writes an escape between the digits.
pub fn numbers() -> Vec<String> {
    let groups: Vec<_> = CARD.as_bytes().chunks(4).map(String::from_utf8_lossy).collect();
    ["", " ", "-", "\n", " - ", ", "].map(|separator| groups.join(separator)).into()
}

/// Requests that put the number in, each with its path and body.
pub fn requests(number: &str) -> Vec<(&'static str, String, String)> {
    let in_field = |field: &str, value: serde_json::Value| {
        let mut one = refund("R-card", "acme");
        one[field] = value;
        one
    };
    let refunds = [
        in_field("refund_ref", json!(number)),
        in_field("payment_ref", json!(number)),
        in_field("channel", json!(number)),
        in_field("currency", json!(number)),
        in_field("amount_minor", json!(number)),
        in_field("due_at", json!(number)),
        in_field("payment_ref", json!([number])),
        in_field("refund_ref", json!({ number: number })),
        in_field("payload", json!({ "pan": number })),
        in_field(number, json!(number)),
    ];
    let in_path: String = number.chars().filter(char::is_ascii_digit).collect();
    let lines = refunds.iter().fold(String::new(), |mut lines, refund| {
        let _ = writeln!(lines, "{refund}");
        lines
    });
    let mut all: Vec<(&str, String, String)> =
        refunds.iter().map(|refund| ("POST", "/v1/refunds".to_owned(), refund.to_string())).collect();
    let one = json!({ "id": 1, "version": 1 });
    let to = |method, path: &str, body: serde_json::Value| (method, path.to_owned(), body.to_string());
    all.extend([
        to("POST", "/v1/refunds/batch", json!(refunds)),
        ("NDJSON", "/v1/refunds/batch".to_owned(), lines),
        to("POST", "/v1/review", json!({ "refunds": [one], "state": "succeeded", "reason": number })),
        to(
            "POST",
            "/v1/review",
            json!({ "refunds": [one], "state": "succeeded", "reason": "a test", "by": number }),
        ),
        to("POST", "/v1/review", json!({ "refunds": [number], "state": number, "reason": "a test" })),
        to("POST", "/v1/limits/acme/acquire", json!({ "caller": number })),
        to("POST", "/v1/limits/acme/acquire", json!({ "permits": number })),
        to("POST", &format!("/v1/limits/{in_path}/acquire"), json!({})),
        to("GET", &format!("/v1/refunds/{in_path}"), json!({})),
        to("GET", &format!("/v1/refunds/x{in_path}"), json!({})),
        to("GET", &format!("/v1/refunds/{in_path}/attempts"), json!({})),
        to("POST", &format!("/v1/refunds/{in_path}/cancel"), json!({})),
        to("GET", &format!("/v1/refunds?refund_ref={in_path}"), json!({})),
        to("GET", &format!("/v1/refunds?state={in_path}"), json!({})),
        to("GET", &format!("/v1/refunds?{in_path}=1"), json!({})),
        to("GET", &format!("/v1/refunds?limit={in_path}"), json!({})),
        to("GET", &format!("/v2/{in_path}"), json!({})),
        to("DELETE", &format!("/v1/refunds/{in_path}"), json!({})),
    ]);
    all
}

/// The whole text of an answer, its status line and headers included.
pub async fn ask(address: &str, bearer: &str, (method, path, body): &(&str, String, String)) -> String {
    let (method, kind) = match *method {
        "NDJSON" => ("POST", "application/x-ndjson"),
        method => (method, "application/json"),
    };
    let headers = [("authorization", bearer), ("content-type", kind)];
    http::ask(address, &format!("{method} {path}"), &headers, body).await.unwrap()
}

/// Commands of people that put the number in. Their own arguments stand in `/proc` while they run; no test looks there.
pub fn commands(config: &Path, number: &str) -> Vec<(String, String)> {
    let one = ["--channel", "acme", "--amount-minor", "1", "--currency", "EUR"];
    let by_ref = [&["enqueue", "--refund-ref", number, "--payment-ref", "P"][..], &one].concat();
    let by_payment = [&["enqueue", "--refund-ref", "R", "--payment-ref", number][..], &one].concat();
    let lists: [&[&str]; 5] = [
        &by_ref,
        &by_payment,
        &["pause", "acme", "--reason", number],
        &["review", "settle", "1@1", "--as", "succeeded", "--reason", number],
        &["review", "settle", "1@1", "--as", "succeeded", "--reason", "a test", "--by", number],
    ];
    let mut said: Vec<(String, String)> =
        lists.iter().map(|list| (format!("{} {}", list[0], list[1]), text(&refundd(config, list)))).collect();
    let quoted = number.replace('"', "\"\"");
    let csv = format!(
        "refund_ref,channel,payment_ref,amount_minor,currency\n\"{quoted}\",acme,\"{quoted}\",1,EUR\n"
    );
    let lines = requests(number).into_iter().find(|(method, ..)| *method == "NDJSON").unwrap().2;
    for (ending, content) in [(".csv", csv), (".ndjson", lines)] {
        let import = tempfile::Builder::new().suffix(ending).tempfile().unwrap();
        fs::write(import.path(), content).unwrap();
        let output = refundd(config, &["import", import.path().to_str().unwrap()]);
        assert!(!output.status.success(), "{}", text(&output));
        said.push((format!("import {ending}"), text(&output)));
    }
    said
}

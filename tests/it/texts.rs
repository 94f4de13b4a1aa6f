//! Texts from outside: what no door takes, and what no page, log or terminal shows as it came.

use std::io::Write;
use std::process::Command;

use hyper::Method;
use serde_json::{Value, json};

use crate::cli::{file, text};
use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, TestNode, node::refund};

fn run(scratch: &Scratch, user: &str, arguments: &[&str]) -> String {
    let config = file(&scratch.file("a", UNLIMITED));
    let output = Command::new(env!("CARGO_BIN_EXE_refundd"))
        .arg("--config")
        .arg(config.path())
        .args(arguments)
        .env("USER", user)
        .env_remove("SUDO_USER")
        .output()
        .unwrap();
    text(&output)
}

/// Saves a refund with this value in one field through every door for refunds. The answers, each with its door's name.
async fn through_every_door(
    scratch: &Scratch,
    node: &TestNode,
    field: &str,
    value: &Value,
) -> Vec<(&'static str, String)> {
    let mut one = refund("R-1", "acme");
    one[field] = value.clone();
    let import = |ending: &str, content: String| {
        let mut import = tempfile::Builder::new().suffix(ending).tempfile().unwrap();
        import.write_all(content.as_bytes()).unwrap();
        run(scratch, "ann", &["import", import.path().to_str().unwrap()])
    };
    let quoted = |value: &Value| match value {
        Value::String(text) => format!("\"{}\"", text.replace('"', "\"\"")),
        other => format!("\"{}\"", other.to_string().replace('"', "\"\"")),
    };
    let names: Vec<&String> = one.as_object().unwrap().keys().collect();
    let cells: Vec<String> = one.as_object().unwrap().values().map(quoted).collect();
    let columns = names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(",");
    let mut flags = vec!["enqueue".to_owned()];
    for (name, value) in one.as_object().unwrap() {
        flags.push(format!("--{}", name.replace('_', "-")));
        flags.push(
            value.as_str().filter(|_| name != "payload").map_or_else(|| value.to_string(), str::to_owned),
        );
    }
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let batch = json!([one]).to_string();
    vec![
        ("POST /v1/refunds", node.post("/v1/refunds", &one).await.text),
        ("a batch", node.request(Method::POST, "/v1/refunds/batch", "application/json", &batch).await.text),
        (
            "a batch of lines",
            node.request(Method::POST, "/v1/refunds/batch", "application/x-ndjson", &one.to_string())
                .await
                .text,
        ),
        ("refundd import of CSV", import(".csv", format!("{columns}\n{}\n", cells.join(",")))),
        ("refundd import of NDJSON", import(".ndjson", one.to_string())),
        ("refundd enqueue", run(scratch, "ann", &flags)),
    ]
}

#[tokio::test]
async fn a_hidden_character_is_refused_at_every_door_by_its_field_and_its_code_point() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    for (hidden, named) in
        [("R\u{202e}1", "U+202E"), ("R\u{1b}[2J", "U+001B"), ("R\u{200b}1", "U+200B"), ("\u{9b}1", "U+009B")]
    {
        for field in ["refund_ref", "payment_ref"] {
            for (door, answer) in through_every_door(&scratch, &node, field, &json!(hidden)).await {
                assert!(answer.contains(named), "{door}, {field}: {answer}");
                assert!(
                    answer.contains(field) || answer.contains(&field.replace('_', "-")),
                    "{door}: {answer}"
                );
            }
        }
        for field in ["reason", "by"] {
            let mut decision = json!({ "ids": [1], "state": "succeeded", "reason": "r", "by": "ann" });
            decision[field] = json!(hidden);
            let answer = node.post("/v1/review", &decision).await;
            assert!(
                answer.status == 422 && answer.text.contains(named) && answer.text.contains(field),
                "{}",
                answer.text
            );
            let flag = format!("--{field}");
            let with = |command: &[&'static str]| -> Vec<String> {
                let mut all: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
                if field == "by" {
                    all.extend(["--reason".to_owned(), "r".to_owned()]);
                }
                all.extend([flag.clone(), hidden.to_owned()]);
                all
            };
            for command in [with(&["pause", "acme"]), with(&["review", "settle", "1@1", "--as", "succeeded"])]
            {
                let command: Vec<&str> = command.iter().map(String::as_str).collect();
                let said = run(&scratch, "ann", &command);
                assert!(said.contains(named) && said.contains(&flag), "{command:?}: {said}");
            }
        }
        let said = run(&scratch, hidden, &["pause", "acme", "--reason", "r"]);
        assert!(said.contains(named) && said.contains("--by"), "{said}");
    }
    assert_eq!(scratch.refs().await, Vec::<String>::new());
    assert_eq!(scratch.number("select count(*) from refundd.channels where paused_at is not null").await, 0);
    node.stop().await;
}

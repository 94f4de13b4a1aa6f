//! Texts from outside: what no door takes, and what no page, log or terminal shows as it came.

use std::io::Write;
use std::process::Command;

use hyper::Method;
use playground::bank::Step;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cli::{file, text};
use crate::dispatch::UNLIMITED;
use crate::harness::{NodeProcess, Scratch, TestNode, node::refund};

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
    let columns = names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(",");
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
            let decision = json!({ "refunds": [{ "id": 1, "version": 1 }], "state": "succeeded", "reason": "r", "by": "ann" });
            let withdrawal = json!({ "proposals": [1], "reason": "r", "by": "ann" });
            for (path, mut body) in [("/v1/review", decision), ("/v1/proposals/withdraw", withdrawal)] {
                body[field] = json!(hidden);
                let answer = node.post(path, &body).await;
                assert!(
                    answer.status == 422 && answer.text.contains(named) && answer.text.contains(field),
                    "{path}: {}",
                    answer.text
                );
            }
            let flag = format!("--{field}");
            let with = |command: &[&'static str]| -> Vec<String> {
                let mut all: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
                if field == "by" {
                    all.extend(["--reason".to_owned(), "r".to_owned()]);
                }
                all.extend([flag.clone(), hidden.to_owned()]);
                all
            };
            for command in [
                with(&["pause", "acme"]),
                with(&["review", "settle", "1@1", "--as", "succeeded"]),
                with(&["review", "approve", "1@1"]),
            ] {
                let command: Vec<&str> = command.iter().map(String::as_str).collect();
                let said = run(&scratch, "ann", &command);
                assert!(said.contains(named) && said.contains(&flag), "{command:?}: {said}");
            }
        }
        let said = run(&scratch, hidden, &["pause", "acme", "--reason", "r"]);
        assert!(said.contains(named) && said.contains("--by"), "{said}");
    }
    assert_eq!(scratch.refs().await, Vec::<String>::new());
    assert_eq!(scratch.suspensions().await, 0);
    node.stop().await;
}

/// An old row may have all of these; so may a bank's message.
const COMMANDS: &str = "\u{1b}]0;title\u{7}\u{1b}[2J\u{9b}31m\u{202e}txet\r\nforged";

/// The log of a node whose bank gives such a reference. Programs read it as the bank wrote it.
async fn log_of_a_reference_that_commands_a_terminal() -> Vec<String> {
    const ANSWER: &str = "{\"status\":\"succeeded\",\"id\":\"Größe中\u{7f}\u{9b}31m\u{200b}\u{202e}forged\"}";
    let scratch = Scratch::new().await;
    scratch.bank.then("acme", Step::answers(200, ANSWER).and_pays());
    let mut node = NodeProcess::start(&scratch, "a", &format!("{UNLIMITED}bank_ref = \"/id\"\n"));
    scratch.insert("acme", "R-", 1).await;
    node.wait_for_line("came to succeeded");
    node.signal(Signal::TERM);
    assert!(node.wait().success());
    let lines: Vec<Value> = node.log().iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert!(
        lines.iter().any(|line| line["bank_ref"] == "Größe中\u{7f}\u{9b}31m\u{200b}\u{202e}forged"),
        "{lines:#?}"
    );
    let readable = "Größe中\\u007f\\u009b31m\\u200b\\u202eforged";
    assert!(node.log().iter().any(|line| line.contains(readable)), "letters stay: {:#?}", node.log());
    node.log()
}

#[tokio::test]
async fn nothing_that_refundd_shows_commands_a_terminal() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let mut connection = scratch.connect().await;
    // As rows that are older than the rules.
    let old = [
        "set session_replication_role = 'replica'",
        "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, state, reason, bank_ref)
         values ($1, 'acme', $1, 1, 'EUR', 'review', $1, $1)",
        "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, outcome, moved_to, message)
         select id, 'acme', 'manual', 0, 0, $1, 'decided', 'review', $1 from refundd.refunds where refund_ref = $1",
        "insert into refundd.attempts (refund_id, channel, kind, number, lease_epoch, node, started_at, outcome, code)
         select id, 'acme', 'send', 1, 0, $1, now(), 'unknown', $1 from refundd.refunds where refund_ref = $1",
        "update refundd.channels set paused_at = now(), paused_by = $1, pause_reason = $1,
                cool_until = now() + interval '1 hour', cool_reason = $1 where $1 <> ''",
        "update refundd.nodes set standing = jsonb_build_object('banks', jsonb_build_object('acme', jsonb_build_object('unreachable', $1)))
          where $1 <> ''",
    ];
    for (nth, statement) in old.into_iter().enumerate() {
        let query = sqlx::query(statement);
        let query = if nth == 0 { query } else { query.bind(COMMANDS) };
        query.execute(&mut connection).await.unwrap();
    }
    let mut shown = Vec::new();
    for command in [
        &["review"] as &[&str],
        &["review", "--json"],
        &["review", "show", "1"],
        &["review", "settle", "1@99", "--as", "failed", "--reason", "r"],
        &["review", "settle", "1@1", "--as", "ready", "--reason", "r"],
        &["review", "settle", "1@1", "--as", "succeeded", "--reason", "r"],
        &["status"],
        &["status", "--json"],
        &["status", "acme"],
        &["show", "1"],
        &["show", "1", "--json"],
        &["export", "--channel", "acme", "--from", "1h"],
    ] {
        shown.push((command.join(" "), run(&scratch, "ann", command)));
    }
    let answers = [
        "/v1/refunds",
        "/v1/refunds/1",
        "/v1/refunds/1/attempts",
        "/v1/refunds/find?q=1",
        "/v1/channels",
        "/v1/channels/acme",
        "/metrics",
    ];
    let pages = ["/", "/channels/acme", "/refunds/1", "/review", "/nodes"];
    for path in answers.into_iter().chain(pages) {
        shown.push((path.to_owned(), node.get(path).await.text));
    }
    for (field, value) in
        [("refund_ref", COMMANDS), ("channel", COMMANDS), ("currency", COMMANDS), (COMMANDS, "x")]
    {
        // The flags of a command line come from the person who reads the answer.
        for (door, answer) in through_every_door(&scratch, &node, field, &json!(value)).await {
            if door != "refundd enqueue" || field != COMMANDS {
                shown.push((format!("{door}, {field:?}"), answer));
            }
        }
    }
    let log = log_of_a_reference_that_commands_a_terminal().await;
    shown.push(("the log".to_owned(), log.join("\n")));
    for (place, text) in &shown {
        let commands =
            text.chars().find(|c| *c != '\n' && (c.is_control() || "\u{200b}\u{202e}".contains(*c)));
        assert_eq!(commands, None, "{place}: {text:?}");
        assert!(!text.lines().any(|line| line.starts_with("forged")), "{place}: {text}");
    }
    let of = |place: &str| {
        shown.iter().filter(|(at, _)| at == place).map(|(_, text)| text.as_str()).collect::<String>()
    };
    for place in [
        "review",
        "review --json",
        "review show 1",
        "show 1",
        "status",
        "status --json",
        "export --channel acme --from 1h",
        "/v1/refunds/1/attempts",
        "/channels/acme",
        "/refunds/1",
    ] {
        assert!(of(place).contains("forged"), "{place} shows the row: {}", of(place));
    }
    let read: Value = serde_json::from_str(&of("/v1/refunds/1")).unwrap();
    assert_eq!(read["refund_ref"], COMMANDS, "a program reads the text as it is");
    node.stop().await;
}

#[tokio::test]
async fn a_card_number_is_refused_at_every_door_by_its_field_and_never_shown() {
    let scratch = Scratch::new().await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    let cards = [
        ("refund_ref", json!("R-4111111111111111")),
        ("payment_ref", json!("4111-1111.1111/1111")),
        ("payload", json!({ "customer": { "notes": ["card", "4111_1111_1111_1111"] } })),
        ("payload", json!({ "card": 4_111_111_111_111_111_u64 })),
    ];
    let never = |place: &str, text: &str| {
        let digits: String = text.chars().filter(|c| c.is_alphanumeric()).collect();
        assert!(!digits.contains("4111111111111111"), "{place}: {text}");
    };
    for (field, value) in &cards {
        for (door, answer) in through_every_door(&scratch, &node, field, value).await {
            assert!(answer.contains("card number"), "{door}, {field}: {answer}");
            assert!(answer.contains(field) || answer.contains(&field.replace('_', "-")), "{door}: {answer}");
            never(door, &answer);
        }
    }
    let card = "the card is 4111 1111 1111 1111";
    for field in ["reason", "by"] {
        let mut decision = json!({ "refunds": [{ "id": 1, "version": 1 }], "state": "succeeded", "reason": "r", "by": "ann" });
        decision[field] = json!(card);
        let answer = node.post("/v1/review", &decision).await;
        assert!(answer.status == 422 && answer.text.contains("card number"), "{}", answer.text);
        never("a decision", &answer.text);
    }
    for command in [
        &["pause", "acme", "--reason", card] as &[&str],
        &["pause", "acme", "--reason", "r", "--by", card],
        &["review", "settle", "1@1", "--as", "failed", "--reason", card],
    ] {
        let said = run(&scratch, "ann", command);
        assert!(said.contains("card number"), "{command:?}: {said}");
        never("a command", &said);
    }
    assert_eq!(scratch.refs().await, Vec::<String>::new());
    node.stop().await;
    // A channel may accept such numbers. The channel of the commands' own file does not.
    let node = TestNode::start(&scratch, "a", &format!("{UNLIMITED}card_numbers = \"accepted\"\n")).await;
    for (nth, (field, value)) in cards.iter().enumerate() {
        let mut one = refund(&format!("R-{nth}"), "acme");
        one[*field] = value.clone();
        let answer = node.post("/v1/refunds", &one).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
    }
    node.stop().await;
}

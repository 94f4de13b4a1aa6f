//! Decisions on a terminal: the command shows what it decides on, and asks.

use serde_json::{Value, json};

use super::{again, one_in_review, result, version};
use crate::cli::file;
use crate::dispatch::UNLIMITED;

#[tokio::test]
async fn on_a_terminal_the_command_shows_what_it_decides_on_and_asks() {
    let (scratch, node) = one_in_review().await;
    let config = file(&scratch.file("a", UNLIMITED));
    let seen = version(&node, 1).await;
    let (program, config) = (env!("CARGO_BIN_EXE_refundd"), config.path().display().to_string());
    // util-linux's script gives it a terminal; `meanwhile` is done between the question and the answer.
    let on_a_terminal = async |answer: &'static str, meanwhile: Option<Value>| {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let command = format!(
            "{program} --config {config} review settle 1 --as ready --reason late --confirm not-executed"
        );
        let mut script = tokio::process::Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (mut keys, mut screen) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
        let mut output = String::new();
        while !output.contains("[y/N]") {
            let mut bytes = [0; 1024];
            let n = screen.read(&mut bytes).await.unwrap();
            assert!(n > 0, "{output}");
            output.push_str(&String::from_utf8_lossy(&bytes[..n]));
        }
        if let Some(decision) = meanwhile {
            assert_eq!(result(&node, &decision).await, "decided");
        }
        keys.write_all(answer.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        screen.read_to_end(&mut rest).await.unwrap();
        output.push_str(&String::from_utf8_lossy(&rest));
        (script.wait().await.unwrap().code(), output)
    };
    let (code, output) = on_a_terminal("n\n", None).await;
    assert!(code == Some(1) && output.contains("Nothing was changed"), "{output}");
    for part in [&format!("1@{seen}"), "R-1", "1.01 EUR", "review", "may have been executed", "500"] {
        assert!(output.contains(part), "{part}: {output}");
    }
    // Somebody else decides while the question stands.
    let mut other = again(1, seen);
    other["state"] = json!("failed");
    other.as_object_mut().unwrap().remove("confirm");
    let (code, output) = on_a_terminal("y\n", Some(other)).await;
    assert!(code == Some(1) && output.contains("has changed"), "{output}");
    assert_eq!(scratch.bank.ledger().all().len(), 1);
    let (code, output) = on_a_terminal("y\n", None).await;
    assert!(code == Some(0) && output.contains("another person must approve"), "{output}");
    node.stop().await;
}

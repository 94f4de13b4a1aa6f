//! The files that a node may open.

use crate::dispatch::UNLIMITED;
use crate::harness::{Scratch, until};

/// Otherwise 1,024 callers could take the files that the node needs for Postgres, Redis and the banks.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_node_may_open_as_many_files_as_the_system_lets_it() {
    let scratch = Scratch::new().await;
    let config = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(config.path(), scratch.file("a", UNLIMITED)).unwrap();
    let mut node = std::process::Command::new("sh")
        .args(["-c", "ulimit -Sn 256 && exec \"$0\" run --with-parent --config \"$1\""])
        .arg(env!("CARGO_BIN_EXE_refundd"))
        .arg(config.path())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    until("the node has raised its limit", async || {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", node.id())).unwrap();
        let limits = read("limits");
        let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let numbers: Vec<&str> = line.split_whitespace().skip(3).take(2).collect();
        // Before, the process is still the shell.
        read("comm").trim() == "refundd" && numbers[0] == numbers[1]
    })
    .await;
    node.kill().unwrap();
    node.wait().unwrap();
}

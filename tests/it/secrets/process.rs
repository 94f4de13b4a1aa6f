//! Another process of the same user reads nothing of a node or a command in `/proc`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpListener;

use super::CANARY;

/// The user that a test of rights runs as: `nobody` where this process is root.
fn somebody() -> u32 {
    let own = rustix::process::geteuid();
    if own.is_root() { 65_534 } else { own.as_raw() }
}

/// A command of that user, whose password for Postgres on this port of this machine stands in its environment.
fn started(folder: &Path, arguments: &[&str], port: u16) -> Child {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    let config = folder.join("refundd.toml");
    fs::write(
        &config,
        "[http]\nlisten = \"127.0.0.1:0\"\n[bucket]\nkind = \"memory\"\n[log]\nformat = \"json\"\n",
    )
    .unwrap();
    fs::set_permissions(&config, fs::Permissions::from_mode(0o644)).unwrap();
    chown(&config, Some(somebody()), None).unwrap();
    Command::new(env!("CARGO_BIN_EXE_refundd"))
        .args(arguments)
        .arg("--config")
        .arg(&config)
        .env("REFUNDD_POSTGRES_URL", format!("postgres://refundd:{CANARY}@127.0.0.1:{port}/payments"))
        .current_dir("/")
        .uid(somebody())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Ends the command after another process of its user has tried to read it.
fn is_not_readable(mut command: Child) {
    for name in ["environ", "mem", "maps"] {
        let path = format!("/proc/{}/{name}", command.id());
        let read =
            Command::new("head").args(["-c", "1", &path]).uid(somebody()).current_dir("/").output().unwrap();
        let said = String::from_utf8_lossy(&read.stderr);
        assert!(said.contains("Permission denied"), "{name}: {said}");
        assert!(Path::new(&path).exists());
    }
    command.kill().unwrap();
    command.wait().unwrap();
}

#[test]
fn no_process_of_the_same_user_reads_a_nodes_environment() {
    let folder = tempfile::tempdir().unwrap();
    let mut node = started(folder.path(), &["run", "--with-parent"], 1);
    // It waits for Postgres, so it has started.
    let mut lines = BufReader::new(node.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("Postgres")));
    is_not_readable(node);
}

#[tokio::test]
async fn no_process_of_the_same_user_reads_the_environment_of_a_command() {
    let folder = tempfile::tempdir().unwrap();
    // Takes the connection and never answers, so the command waits.
    let postgres = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let command = started(folder.path(), &["migrate"], postgres.local_addr().unwrap().port());
    let connection = tokio::time::timeout(Duration::from_mins(1), postgres.accept());
    let connection = connection.await.expect("the command connects").unwrap();
    // It must not give up meanwhile.
    kill_process(Pid::from_child(&command), Signal::STOP).unwrap();
    is_not_readable(command);
    drop(connection);
}

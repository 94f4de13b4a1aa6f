//! Another process of the same user reads nothing of a node in `/proc`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::CANARY;

/// The user that a test of rights runs as: `nobody` where this process is root.
fn somebody() -> u32 {
    let own = rustix::process::geteuid();
    if own.is_root() { 65_534 } else { own.as_raw() }
}

#[test]
fn no_process_of_the_same_user_reads_a_nodes_environment() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let config = folder.path().join("refundd.toml");
    fs::write(
        &config,
        "[http]\nlisten = \"127.0.0.1:0\"\n[bucket]\nkind = \"memory\"\n[log]\nformat = \"json\"\n",
    )
    .unwrap();
    fs::set_permissions(&config, fs::Permissions::from_mode(0o644)).unwrap();
    chown(&config, Some(somebody()), None).unwrap();
    let mut node = Command::new(env!("CARGO_BIN_EXE_refundd"))
        .args(["run", "--with-parent", "--config"])
        .arg(&config)
        .env("REFUNDD_POSTGRES_URL", format!("postgres://refundd:{CANARY}@127.0.0.1:1/payments"))
        .current_dir("/")
        .uid(somebody())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // It waits for Postgres, so it has started.
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(node.stdout.take().unwrap()));
    assert!(lines.any(|line| line.unwrap().contains("Postgres")));
    for name in ["environ", "mem", "maps"] {
        let path = format!("/proc/{}/{name}", node.id());
        let read =
            Command::new("head").args(["-c", "1", &path]).uid(somebody()).current_dir("/").output().unwrap();
        let said = String::from_utf8_lossy(&read.stderr);
        assert!(said.contains("Permission denied"), "{name}: {said}");
        assert!(Path::new(&path).exists());
    }
    node.kill().unwrap();
    node.wait().unwrap();
}

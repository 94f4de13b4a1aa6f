//! `tools/install-servers` on a system whose packages or servers are too old. It must install nothing, touch no server that
//! was there before, and believe only fresh lists.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

const OLD_REDIS: &str = "echo 'Redis server v=6.0.16 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64'";

/// A machine of programs that say what a test wants. Its Redis is too old.
struct Machine {
    folder: TempDir,
}

impl Machine {
    /// `dpkg_query` says which packages are installed. No service starts at boot.
    fn new(user: u32, dpkg_query: &str) -> Machine {
        let machine = Machine { folder: tempfile::tempdir().unwrap() };
        let called = machine.called();
        let note = format!("for word; do :; done; echo \"$word\" >>{called}");
        // The lists say 5.0.3 until they are fetched.
        let candidate = format!(
            "version=5.0.3; [ ! -e {called} ] || version=6.0.16; \
             [ \"$2\" = redis-server ] && echo \"  Candidate: 5:$version-1ubuntu1.1\""
        );
        machine.add("redis-server", OLD_REDIS);
        machine.add("id", &format!("echo {user}"));
        machine.add("dpkg-query", dpkg_query);
        machine.add("systemctl", "exit 1");
        machine.add("apt-cache", &candidate);
        machine.add("apt-get", &note);
        machine.add("sudo", &note);
        machine
    }

    fn add(&self, program: &str, script: &str) {
        let path = self.folder.path().join(program);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The file that has the last word of each call of `apt-get` and `sudo`.
    fn called(&self) -> String {
        self.folder.path().join("called").display().to_string()
    }

    fn calls(&self) -> String {
        std::fs::read_to_string(self.called()).unwrap_or_default()
    }

    fn install(&self) -> Output {
        let path = format!("{}:{}", self.folder.path().display(), std::env::var("PATH").unwrap());
        let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/install-servers");
        Command::new("/bin/sh").arg(tool).env("PATH", path).output().unwrap()
    }
}

/// Whether it gave up, and said all of these.
fn assert_gave_up(output: &Output, parts: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in parts {
        assert!(said.contains(part), "`{part}`: {said}");
    }
}

#[test]
fn packages_that_nodes_would_refuse_are_not_installed_and_the_way_out_is_said() {
    let machine = Machine::new(0, "exit 1");
    let output = machine.install();
    assert_gave_up(&output, &["redis-server", "6.0.16", "Redis 6.2 or newer", "Debian 12", "Ubuntu 24.04"]);
    assert_eq!(machine.calls(), "update\n", "{output:?}");
}

#[test]
fn an_old_server_whose_package_is_installed_is_not_upgraded() {
    let installed = "for word; do :; done; [ \"$word\" = redis-server ] && echo 'install ok installed'";
    for user in [0, 1000] {
        let machine = Machine::new(user, installed);
        let output = machine.install();
        assert_gave_up(&output, &["left alone", "6.0.16", "Redis 6.2 or newer", "first in PATH"]);
        assert_eq!(machine.calls(), "", "{output:?}");
    }
}

#[test]
fn an_old_server_that_starts_at_boot_is_not_upgraded() {
    let machine = Machine::new(0, "exit 1");
    machine.add("systemctl", "[ \"$1 $2\" = 'is-enabled redis' ]");
    let output = machine.install();
    assert_gave_up(&output, &["left alone", "6.0.16", "Redis 6.2 or newer", "first in PATH"]);
    assert_eq!(machine.calls(), "", "{output:?}");
}

#[test]
fn what_sudo_installed_must_be_found_on_the_path_of_the_user_too() {
    let machine = Machine::new(1000, "exit 1");
    let output = machine.install();
    assert_gave_up(&output, &["not where they are looked for, or are too old", "Redis 6.2"]);
    assert!(machine.calls().contains("install-servers"), "sudo was called: {output:?}");
}

//! `tools/install-servers` on a system whose packages are too old. It must install nothing, and believe only fresh lists.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

#[test]
fn packages_that_nodes_would_refuse_are_not_installed_and_the_way_out_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let called = folder.path().join("called");
    // The lists say 5.0.3 until they are fetched.
    let fetch = format!("for word; do :; done; echo \"$word\" >>{}", called.display());
    let candidate = format!(
        "version=5.0.3; [ ! -e {} ] || version=6.0.16; \
         [ \"$2\" = redis-server ] && echo \"  Candidate: 5:$version-1ubuntu1.1\"",
        called.display()
    );
    for (program, script) in [
        ("redis-server", "echo 'Redis server v=6.0.16 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64'"),
        ("id", "echo 0"),
        ("apt-cache", candidate.as_str()),
        ("apt-get", fetch.as_str()),
        ("sudo", fetch.as_str()),
    ] {
        let path = folder.path().join(program);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/install-servers");
    let output = Command::new("/bin/sh").arg(tool).env("PATH", path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in ["redis-server", "6.0.16", "Redis 6.2 or newer", "Debian 12", "Ubuntu 24.04"] {
        assert!(said.contains(part), "`{part}`: {said}");
    }
    assert_eq!(std::fs::read_to_string(&called).unwrap(), "update\n", "{said}");
}

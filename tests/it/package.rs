//! The Debian package, made of the program that these tests run. `make package-test` tries the package that is shipped.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

fn tool(name: &str) -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tools").join(name))
}

/// Packs the program into `folder`, in this time zone. Nothing where a tool of Debian's is missing.
fn pack(folder: &Path, zone: &str) -> Option<PathBuf> {
    for needed in ["dpkg-deb", "dpkg-shlibdeps", "strip"] {
        if Command::new(needed).arg("--version").output().is_err() {
            eprintln!("not tried: {needed} is missing");
            return None;
        }
    }
    let output = tool("package")
        .env("PROGRAM", env!("CARGO_BIN_EXE_refundd"))
        .env("TO", folder)
        .env("TZ", zone)
        .env("DEB_OPTIONS", "-Zgzip -z1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let printed = text(&output);
    let mut made = printed.lines().map(Path::new);
    made.find(|path| path.extension().is_some_and(|kind| kind == "deb")).map(Path::to_owned)
}

#[test]
fn the_package_is_installed_run_upgraded_removed_and_purged_in_a_clean_root() {
    let folder = tempfile::tempdir().unwrap();
    let Some(package) = pack(folder.path(), "UTC") else { return };
    let output = tool("package-test").arg(package).output().unwrap();
    // 77: this system cannot try it.
    if output.status.code() == Some(77) {
        eprintln!("not tried: {}", text(&output));
        return;
    }
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn packing_one_program_twice_gives_the_same_bytes() {
    let [first, second] = ["UTC", "Asia/Tokyo"].map(|zone| {
        let folder = tempfile::tempdir().unwrap();
        pack(folder.path(), zone).map(|package| std::fs::read(package).unwrap())
    });
    assert!(first == second, "the packages differ");
}

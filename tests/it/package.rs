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
        let package = pack(folder.path(), zone)?;
        Some([package, folder.path().join("SHA256SUMS")].map(|path| std::fs::read(path).unwrap()))
    });
    assert!(first == second, "the packages, or the archives that the sums name, differ");
}

/// `.ci/run` makes a package whose lists are whole.
#[test]
fn a_package_whose_lists_of_parts_are_missing_or_wrong_is_refused() {
    for needed in ["python3", "objcopy"] {
        if Command::new(needed).arg("--version").output().is_err() {
            eprintln!("not tried: {needed} is missing");
            return;
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let [bin, doc] = ["usr/bin", "usr/share/doc/refundd"].map(|path| folder.path().join(path));
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::create_dir_all(&doc).unwrap();
    // A program without the list of `cargo auditable`.
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_refundd"), bin.join("refundd")).unwrap();
    let refusal = || {
        let output = tool("package-parts").arg(folder.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        text(&output)
    };
    assert!(refusal().contains("refundd.cdx.json is missing"));
    let lock = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.lock")).unwrap();
    let all: Vec<(&str, &str)> = lock
        .split("[[package]]")
        .filter_map(|part| {
            let value = |key: &str| part.lines().find_map(|line| line.strip_prefix(key)?.strip_suffix('"'));
            Some((value("name = \"")?, value("version = \"")?))
        })
        .collect();
    let refusal_of = |parts: &[(&str, &str)]| {
        let parts: Vec<_> = parts
            .iter()
            .map(|(name, version)| serde_json::json!({"name": name, "version": version}))
            .collect();
        let bom = serde_json::json!({
            "bomFormat": "CycloneDX", "metadata": {"component": parts[0]}, "components": parts[1..],
        });
        std::fs::write(doc.join("refundd.cdx.json"), bom.to_string()).unwrap();
        refusal()
    };
    let without: Vec<_> = all.iter().copied().filter(|(name, _)| *name != "tokio").collect();
    assert!(refusal_of(&without).contains("refundd.cdx.json lacks tokio 1."));
    let beyond = [&all[..], &[("left-pad", "1.0.0")]].concat();
    assert!(refusal_of(&beyond).contains("refundd.cdx.json names what Cargo.lock has not: left-pad 1.0.0"));
    let said = refusal_of(&all);
    assert!(said.contains("has no list of its parts; build it by `cargo auditable`"), "{said}");
}

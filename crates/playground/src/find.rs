//! Finds the programs of the private servers, and the library that steps a clock.
//!
//! Debian and Ubuntu keep Postgres off the `PATH`, and Homebrew links only its default version. So this module also
//! searches their folders, the newest version first. It installs nothing: `tools/install-servers` does that.

use std::path::{Path, PathBuf};

use super::PlaygroundError;

/// The newest folder that holds both `initdb` and `postgres`. Fails with `NoPostgres`.
pub fn postgres() -> Result<PathBuf, PlaygroundError> {
    let mut folders = on_path();
    folders.extend(versions("/usr/lib/postgresql", "", "bin"));
    folders.extend(versions("/usr", "pgsql-", "bin"));
    for brew in BREW {
        folders.extend(versions(&format!("{brew}/opt"), "postgresql", "bin"));
    }
    first_with(&folders, &["initdb", "postgres"]).ok_or(PlaygroundError::NoPostgres)
}

/// The path of `redis-server`, or of `valkey-server`. Fails with `NoRedis`.
pub fn redis() -> Result<PathBuf, PlaygroundError> {
    let mut folders = on_path();
    folders.extend(["/usr/bin", "/usr/local/bin", "/usr/sbin"].map(PathBuf::from));
    for brew in BREW {
        folders.push(format!("{brew}/bin").into());
        folders.extend(versions(&format!("{brew}/opt"), "redis", "bin"));
        folders.extend(versions(&format!("{brew}/opt"), "valkey", "bin"));
    }
    ["redis-server", "valkey-server"]
        .iter()
        .find_map(|program| first_with(&folders, &[program]).map(|folder| folder.join(program)))
        .ok_or(PlaygroundError::NoRedis)
}

/// The path of `pgbouncer`, which only tests need. Fails with `NoPgBouncer`.
pub fn pgbouncer() -> Result<PathBuf, PlaygroundError> {
    let mut folders = on_path();
    folders.extend(["/usr/sbin", "/usr/bin", "/usr/local/bin"].map(PathBuf::from));
    for brew in BREW {
        folders.push(format!("{brew}/bin").into());
    }
    first_with(&folders, &["pgbouncer"])
        .map(|folder| folder.join("pgbouncer"))
        .ok_or(PlaygroundError::NoPgBouncer)
}

/// The path of a server that only measurements use, such as `nginx`.
pub fn server(name: &str) -> Option<PathBuf> {
    let folders = ["/usr/sbin", "/usr/local/sbin", "/usr/bin", "/usr/local/bin"].map(PathBuf::from);
    first_with(&folders, &[name]).map(|folder| folder.join(name))
}

/// The path of libfaketime, the variant for programs with threads. Fails with `NoFaketime`.
///
/// Linux only: other systems do not load a library into a program in this way.
pub fn faketime() -> Result<PathBuf, PlaygroundError> {
    let mut folders = versions("/usr/lib", "", "faketime");
    folders
        .extend(["/usr/lib/faketime", "/usr/lib64/faketime", "/usr/local/lib/faketime"].map(PathBuf::from));
    folders
        .iter()
        .map(|folder| folder.join("libfaketimeMT.so.1"))
        .find(|library| library.is_file())
        .ok_or(PlaygroundError::NoFaketime)
}

const BREW: [&str; 3] = ["/opt/homebrew", "/usr/local", "/home/linuxbrew/.linuxbrew"];

fn on_path() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).filter(|folder| folder.is_absolute()).collect()
}

/// The folders `parent/PREFIX*/inner`, the highest version number first. A folder without a number is the default
/// version and comes before all.
fn versions(parent: &str, prefix: &str, inner: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(parent) else { return Vec::new() };
    let mut folders: Vec<(u32, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let rest = name.to_str()?.strip_prefix(prefix)?;
            let digits: String =
                rest.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
            Some((digits.parse().unwrap_or(u32::MAX), entry.path().join(inner)))
        })
        .collect();
    folders.sort_by(|a, b| b.cmp(a));
    folders.into_iter().map(|(_, folder)| folder).collect()
}

fn first_with(folders: &[PathBuf], programs: &[&str]) -> Option<PathBuf> {
    folders.iter().find(|folder| programs.iter().all(|program| is_program(&folder.join(program)))).cloned()
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_that_has_all_programs_is_taken() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        for (version, programs) in
            [("9.6", &["initdb", "postgres"][..]), ("15", &["initdb", "postgres"]), ("17", &["psql"])]
        {
            let bin = home.path().join(version).join("bin");
            std::fs::create_dir_all(&bin).unwrap();
            for program in programs {
                std::fs::write(bin.join(program), "").unwrap();
                let runs = std::fs::Permissions::from_mode(0o755);
                std::fs::set_permissions(bin.join(program), runs).unwrap();
            }
        }
        let folders = versions(home.path().to_str().unwrap(), "", "bin");
        assert_eq!(first_with(&folders, &["initdb", "postgres"]), Some(home.path().join("15/bin")));
        assert_eq!(first_with(&folders, &["redis-server"]), None);
    }
}

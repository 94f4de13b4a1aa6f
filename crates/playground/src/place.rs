//! Chooses the folder, the user and the port of a private server.
//!
//! Postgres refuses to run as root. So root runs it as another user, and that user must be able to reach the folder.
//! The path of a Unix socket may have only about a hundred bytes, so `/tmp` replaces a long temporary folder.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::PlaygroundError;

/// A user to run a server as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

/// The user that runs Postgres when this process is root; `None` when it is not. Fails with `OnlyRoot`.
pub fn server_owner() -> Result<Option<Owner>, PlaygroundError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    match ["postgres", "nobody"].into_iter().find_map(|name| look_up(&users, name)) {
        Some(owner) => Ok(Some(owner)),
        None => Err(PlaygroundError::OnlyRoot),
    }
}

fn look_up(users: &str, name: &str) -> Option<Owner> {
    let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut numbers = line.split(':').skip(2).map(number);
    Some(Owner { uid: numbers.next()??, gid: numbers.next()?? })
}

/// macOS writes its highest ids as negative numbers.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().or_else(|| text.parse::<i32>().ok().map(i32::cast_unsigned))
}

/// A new folder name. The owner, or else the user of this process, can make the folder and put a socket in it.
pub fn fresh_folder(owner: Option<Owner>) -> PathBuf {
    let preferred = std::env::temp_dir();
    let base = if suits(&preferred, owner) { preferred } else { PathBuf::from("/tmp") };
    let letters: String = std::iter::repeat_with(fastrand::alphanumeric).take(8).collect();
    base.join(format!("refundd-{letters}"))
}

/// Whether a path is short, needs no quoting in a URL or in Postgres's settings, and is open to the owner.
fn suits(base: &Path, owner: Option<Owner>) -> bool {
    let Some(text) = base.to_str() else { return false };
    let plain = text.starts_with('/')
        && text.len() <= 60
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b));
    plain && (owner.is_none() || open_to_all(base))
}

fn open_to_all(base: &Path) -> bool {
    let mode = |path: &Path| std::fs::metadata(path).map_or(0, |meta| meta.mode());
    mode(base) & 0o003 == 0o003 && base.ancestors().all(|path| mode(path) & 0o001 == 0o001)
}

/// Writes a file with a secret, such as a node's configuration with the password of Redis. A new file is its owner's alone,
/// since refundd refuses such a file if others may read it.
pub fn write_private(file: &Path, text: &str) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).open(file)?.write_all(text.as_bytes())
}

/// A free TCP port between 10000 and 32000. Fails with `NoPort` after 100 tries.
///
/// The kernel gives higher ports to outgoing connections. A client that connects while the server is down could get
/// the server's own port from the kernel, and so talk to itself.
pub fn free_port() -> Result<u16, PlaygroundError> {
    let tried = std::iter::repeat_with(|| fastrand::u16(10_000..32_000)).take(100);
    tried
        .map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map(|_| port))
        .find_map(Result::ok)
        .ok_or(PlaygroundError::NoPort)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_quoted_or_closed_temporary_folder_is_passed_over() {
        assert!(suits(Path::new("/tmp"), Some(Owner { uid: 1, gid: 1 })));
        assert!(!suits(Path::new("relative"), None));
        assert!(!suits(Path::new("/tmp/with space"), None));
        assert!(!suits(Path::new(&format!("/{}", "long/".repeat(20))), None));
        assert!(!suits(Path::new("/usr"), Some(Owner { uid: 1, gid: 1 })), "nobody may write there");
    }

    #[test]
    fn a_user_is_found_by_name_even_with_a_negative_id() {
        let users = "root:*:0:0:x:/:/bin/sh\nnobody:*:-2:-2:x:/:/bin/false\n";
        assert_eq!(look_up(users, "nobody"), Some(Owner { uid: u32::MAX - 1, gid: u32::MAX - 1 }));
        assert_eq!(look_up(users, "postgres"), None);
    }
}

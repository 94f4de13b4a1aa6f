//! A running node takes over neither a file that is being written nor one that was cut off before its channels or callers.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{SERVERS, with};
use crate::caller::token::Token;
use crate::config::{Config, ConfigError};

const CHANNEL: &str = "[channel.acme]\nendpoint = \"http://localhost/\"\nlimits = []\n";

#[test]
fn a_file_that_changes_between_two_readings_is_refused_and_one_that_stays_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let (path, beside) = (folder.path().join("r.toml"), folder.path().join("r.toml.new"));
    let write = |nth: u32| {
        fs::write(&beside, format!("# {nth}\n{SERVERS}{CHANNEL}")).unwrap();
        fs::rename(&beside, &path).unwrap();
    };
    write(0);
    let is_over = AtomicBool::new(false);
    let refused = std::thread::scope(|scope| {
        scope.spawn(|| {
            for nth in 1.. {
                write(nth);
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        // The writer may stand still while the file is read twice.
        let refused = (0..20).find_map(|_| Config::load_settled(&path).err());
        is_over.store(true, Ordering::Relaxed);
        refused
    });
    let refused = refused.expect("a file that changes was read");
    assert!(matches!(refused, ConfigError::Changing { .. }), "{refused}");
    assert!(refused.to_string().contains("rename"), "{refused}");
    assert_eq!(Config::load_settled(&path).unwrap().channels.len(), 1);
}

#[test]
fn a_reload_may_remove_neither_the_last_caller_nor_every_channel() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shop.tokens");
    let expires = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
    fs::write(&file, format!("{}\n", Token::mint().unwrap().stored(expires))).unwrap();
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let caller = format!(
        "[caller.shop]\nmay = [\"look\"]\nchannels = [\"*\"]\ntokens_file = \"{}\"\n",
        file.display()
    );
    let whole = with(&format!("{CHANNEL}{caller}"));
    let refused = |new: &str| whole.refuses(&with(new)).unwrap_or_default();
    assert_eq!(refused(&format!("{CHANNEL}{caller}")), "");
    assert!(refused(CHANNEL).contains("[caller.NAME]"));
    assert!(refused(&caller).contains("[channel.NAME]"));
    assert!(refused("").contains("restart the node"));
    // What was never there is not removed.
    assert_eq!(with("").refuses(&with("")), None);
    assert_eq!(with(CHANNEL).refuses(&with(CHANNEL)), None);
}

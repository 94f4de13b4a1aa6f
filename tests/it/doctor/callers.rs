//! Findings about tokens of callers, and the daily timer that asks for them.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use refundd::caller::token::{StoredToken, Token};

use super::{NO_POSTGRES, NO_REDIS, config, examine_file, findings, is_found, is_well};
use crate::cli::file;

fn stored(days: i64) -> StoredToken {
    Token::mint().unwrap().stored(Timestamp::now() + SignedDuration::from_hours(24 * days))
}

#[test]
fn a_token_that_expired_or_expires_soon_is_found_as_early_as_the_command_asks() {
    let folder = tempfile::tempdir().unwrap();
    let (soon, over, next, last) = (stored(10), stored(-1), stored(100), stored(-1));
    let mut callers = String::new();
    for (name, tokens) in [("shop", &[&soon][..]), ("desk", &[&over, &next][..]), ("gone", &[&last][..])] {
        let path = folder.path().join(name);
        let lines: Vec<String> = tokens.iter().map(ToString::to_string).collect();
        std::fs::write(&path, lines.join("\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        writeln!(callers, "[caller.{name}]\ntokens_file = {path:?}\nmay = [\"metrics\"]").unwrap();
    }
    let file = file(&config(NO_POSTGRES, NO_REDIS, &callers));
    let ends = |caller: &str, token: &StoredToken, how: &str| {
        format!("caller `{caller}`\" token {} {how}", token.id)
    };
    let (report, _) = examine_file(file.path(), &[]);
    is_found(&report, "warning", "callers.tokens", &ends("shop", &soon, "expires in"));
    is_found(&report, "warning", "callers.tokens", &ends("desk", &over, "expired at"));
    is_well(&report, "callers.tokens", &ends("desk", &next, "expires in"));
    is_found(&report, "broken", "callers.tokens", &ends("gone", &last, "expired at"));
    // The check `configuration` is not one of the daily timer's.
    let of_file = findings(&report).iter().filter(|finding| finding["check"] == "configuration");
    let of_file: Vec<String> = of_file.map(|finding| finding["found"].to_string()).collect();
    assert!(!of_file.is_empty() && of_file.iter().all(|found| !found.contains("token")), "{of_file:?}");
    let (report, _) = examine_file(file.path(), &["--ends-within", "1d"]);
    is_well(&report, "callers.tokens", &ends("shop", &soon, "expires in"));
    let (report, _) = examine_file(file.path(), &["--ends-within", "101d"]);
    is_found(&report, "warning", "callers.tokens", &ends("desk", &next, "expires in"));
}

#[test]
fn the_daily_timer_of_the_runbook_hears_of_every_certificate_and_token_that_ends() {
    let runbook = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/runbook.md");
    let runbook = std::fs::read_to_string(runbook).unwrap();
    let (_, pattern) = runbook.split_once("(.check | test(\"").unwrap();
    let (pattern, _) = pattern.split_once('"').unwrap();
    let hears = |check: &str| {
        pattern.split('|').any(|part| {
            let end = part.strip_suffix('$').unwrap();
            end.strip_prefix('^').map_or_else(|| check.ends_with(end), |whole| check == whole)
        })
    };
    for check in ["postgres.tls", "redis.tls", "notify.tls", "host.http_tls", "bank", "callers.tokens"] {
        assert!(hears(check), "{pattern} leaves out {check}");
    }
    assert!(!hears("configuration") && !hears("postgres.settings"), "{pattern}");
}

//! Checks `[notify]`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{SERVERS, no_env, only_complaints, with};
use crate::config::{Config, ConfigError};

/// A folder with secrets: good ones, and some with a fault.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let one = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    for (name, text, mode) in [
        ("one", one.to_owned(), 0o600),
        ("two", format!("{one}\n{one}\n"), 0o600),
        ("three", format!("{one}\n{one}\n{one}\n"), 0o600),
        ("open", one.to_owned(), 0o644),
        ("short", "whsec_AAAAAAAAAAAAAAAA".to_owned(), 0o600),
        ("plain", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned(), 0o600),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    folder
}

fn parsed(folder: &Path, url: &str, more: &str) -> Result<Config, ConfigError> {
    let file = folder.join("r.toml");
    let text = format!("{SERVERS}[notify]\nurl = \"{url}\"\n{more}");
    Config::parse(&text, &file.display().to_string(), &no_env)
}

#[test]
fn the_receiver_of_webhooks_is_off_without_keys_and_a_change_of_it_needs_a_restart() {
    assert!(with("").notify.is_none() && with("[notify]\n").notify.is_none());
    let folder = folder();
    let at = |url: &str, secret: &str| {
        parsed(folder.path(), url, &format!("secret_file = \"{secret}\"\n")).unwrap()
    };
    let config = at("https://shop.example/refunds", "two");
    assert_eq!(config.notify.as_ref().unwrap().keys.len(), 2);
    assert_eq!(config.needs_restart(&at("https://shop.example/refunds", "one")), ["notify"]);
    assert_eq!(config.needs_restart(&config), Vec::<String>::new());
    assert_eq!(config.digest(), with("").digest());
}

#[test]
fn the_receiver_of_webhooks_meets_the_requirements_of_a_banks_address_and_its_secret_those_of_secrets() {
    let folder = folder();
    let (here, secret) = ("http://127.0.0.1:9000/hook", "secret_file = \"one\"\n");
    for good in [here, "http://localhost/", "https://shop.example/refunds?key=hunter2"] {
        assert!(parsed(folder.path(), good, secret).is_ok(), "{good}");
    }
    for (url, more, words) in [
        ("http://shop.example/?key=hunter2", secret, "would send what becomes of refunds to another host"),
        ("ftp://shop.example/", secret, "must start with `https://` or `http://`"),
        ("https://ann:hunter2@shop.example/", secret, "by the signature of each message"),
        ("https://shop.example/#a", secret, "must not have a `#` part"),
        (
            "https://10.0.0.7/",
            secret_with_range(),
            "must contain the addresses that a url names, and lacks `10.0.0.7`",
        ),
        (here, "", "`notify.secret_file`"),
        (here, "secret = \"hunter2\"\n", "name its file with `secret_file`"),
        (here, "secret_file = \"open\"\n", "chmod 600"),
        (here, "secret_file = \"short\"\n", "24 to 64 bytes"),
        (here, "secret_file = \"plain\"\n", "24 to 64 bytes"),
        (here, "secret_file = \"three\"\n", "one secret, or two"),
        (here, "secret_file = \"one\"\nca_file = \"one\"\n", "is only for TLS"),
    ] {
        let shown = only_complaints(parsed(folder.path(), url, more));
        assert!(shown.contains(words), "{words}: {shown}");
        assert!(!shown.contains("hunter2") && !shown.contains("MfKQ"), "{shown}");
    }
    let without_url = "[notify]\nsecret_file = \"one\"\n";
    let shown = super::complaints(without_url);
    assert!(shown.contains("`notify.url`"), "{shown}");
}

fn secret_with_range() -> &'static str {
    "secret_file = \"one\"\naddresses = [\"203.0.113.0/24\"]\n"
}

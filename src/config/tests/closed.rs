//! Others read no secret: neither one that stands in the configuration file itself, nor a key that an address names.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{SERVERS, only_complaints};
use crate::config::Config;

const NO_SECRET: &str = "postgres://refundd@localhost/p";

fn servers(postgres: &str, redis: &str) -> String {
    format!("[postgres]\nurl = \"{postgres}\"\n[redis]\nurl = \"{redis}\"\n")
}

/// What is refused of this text in a file with this mode; empty if nothing is.
fn refused(file: &Path, text: &str, mode: u32) -> String {
    fs::write(file, text).unwrap();
    fs::set_permissions(file, Permissions::from_mode(mode)).unwrap();
    Config::load(Some(file)).err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn a_configuration_file_that_others_may_read_is_refused_if_it_has_a_secret() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("refundd.toml");
    let texts = [
        (servers("postgres://refundd:hunter2@localhost/p", "redis://localhost"), "postgres.url"),
        (
            servers("postgres://localhost/p?user=refundd&password=hunter2", "redis://localhost"),
            "postgres.url",
        ),
        (servers("postgres://refundd:%3Ahunter2@localhost/p", "redis://localhost"), "postgres.url"),
        (servers(NO_SECRET, "redis://:hunter2@localhost"), "redis.url"),
        (servers(NO_SECRET, "redis+unix:///run/redis?user=app&pass=hunter2"), "redis.url"),
        (servers(NO_SECRET, "redis+sentinel://localhost/main?sentinel_password=hunter2"), "redis.url"),
    ];
    for (text, field) in &texts {
        for mode in [0o600, 0o640, 0o660] {
            assert_eq!(refused(&file, text, mode), "", "{mode:o}: {field}");
        }
        for mode in [0o644, 0o602, 0o641] {
            let said = refused(&file, text, mode);
            let named = file.display();
            let way_out = format!("its mode is {mode:04o}; run `chgrp GROUP {named} && chmod 640 {named}`");
            assert!(said.contains(&format!("field `{field}`")) && said.contains(&way_out), "{said}");
            // A file that `url_file` names is refused with the mode of most mounts, so the variable is named for them.
            let variable = format!("`REFUNDD_{}`", field.replace('.', "_").to_uppercase());
            assert!(said.contains("mode 600 that `url_file`") && said.contains(&variable), "{said}");
            assert!(said.starts_with("1 fault ") && !said.contains("hunter"), "{said}");
        }
    }
    let (text, _) = &texts[0];
    let said = refused(&file, text, 0o644);
    assert_eq!(Config::load_settled(&file).unwrap_err().to_string(), said, "a reload says the same");
    let only_postgres = Config::load_postgres(Some(&file)).unwrap_err().to_string();
    assert!(
        only_postgres.contains("chmod 640") && only_postgres.contains("`postgres-url`"),
        "{only_postgres}"
    );
}

#[test]
fn a_configuration_file_without_a_secret_may_be_open() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("refundd.toml");
    let with_query = format!(
        "{SERVERS}[channel.a]\nendpoint = \"https://b.example/?api-version=2\"\nlimits = []\n\
         inquiry = {{ url = \"https://b.example/{{request_id}}?api-version=2\" }}\n"
    );
    for text in [
        SERVERS,
        &with_query,
        &servers("postgres://localhost:5432/p?application_name=refundd@web1", "redis://:@localhost"),
        &servers("postgres://refundd:@localhost/p?password=", "redis+sentinel://localhost:26379/main"),
        &servers("postgres://localhost/p?application_name=password=x", "redis://localhost"),
    ] {
        assert_eq!(refused(&file, text, 0o644), "", "{text}");
    }
}

#[test]
fn what_may_be_a_password_in_an_address_that_cannot_be_read_counts_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("refundd.toml");
    for text in [
        servers("postgres://refundd:hunter/2@localhost/p", "redis://localhost"),
        servers(NO_SECRET, "redis://:hunter/2@localhost"),
    ] {
        let said = refused(&file, &text, 0o644);
        assert!(said.contains("has a password") && !said.contains("hunter"), "{said}");
        let said = refused(&file, &text, 0o640);
        assert!(!said.is_empty() && !said.contains("has a password"), "{said}");
    }
}

#[test]
fn the_key_that_an_address_or_the_environment_names_for_postgres_is_its_owners_alone() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("node.key");
    let named = key.display().to_string();
    fs::write(&key, "a key").unwrap();
    let bare = "postgres://db.example/p?sslmode=verify-full";
    let parse = |address: &str, variable: &str| {
        let text = servers(address, "redis://localhost");
        let env = |name: &str| (name == "PGSSLKEY").then(|| variable.to_owned());
        Config::parse(&text, "r.toml", &env)
    };
    let in_address = format!("{bare}&sslcert=node.pem&sslkey={named}");
    for (address, variable, said) in [
        (in_address.as_str(), "", "section `[postgres]`: `sslkey` in the address: "),
        (bare, named.as_str(), "environment variable `PGSSLKEY`: "),
    ] {
        fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
        assert!(parse(address, variable).is_ok());
        fs::set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
        let shown = only_complaints(parse(address, variable));
        let rest = format!("its mode is 0640; run `chmod 600 {named}`");
        assert!(shown.contains(said) && shown.ends_with(&rest), "{shown}");
    }
    let shown = only_complaints(parse(bare, "/nowhere/node.key"));
    assert!(shown.contains("the file it names does not exist"), "{shown}");
    // The address alone counts, as for the client; and without TLS the client shows nothing.
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    assert!(parse(&in_address, "/nowhere/node.key").is_ok());
    let clear = "postgres://localhost/p?sslmode=disable";
    let socket = "postgres://refundd@localhost/p?host=/run/postgresql";
    for address in [clear, socket] {
        assert!(parse(address, "/nowhere/node.key").is_ok(), "{address}");
    }
}

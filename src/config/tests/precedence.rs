//! Checks the order of the sources of secrets.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use secrecy::ExposeSecret;

use super::only_complaints;
use crate::config::{Config, ConfigError, Origin};

/// Parses a file in `folder` with these variables set.
fn parse_in(folder: &Path, text: &str, env: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let env: HashMap<String, String> = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let file = folder.join("refundd.toml");
    Config::parse(text, file.to_str().unwrap(), &|name| env.get(name).cloned())
}

/// Writes a secret that only its owner may read.
fn write_secret(folder: &Path, name: &str, secret: &str) {
    fs::write(folder.join(name), secret).unwrap();
    fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o600)).unwrap();
}

const BOTH: &str =
    "[postgres]\nurl = \"postgres://from-file@localhost\"\n[redis]\nurl = \"redis://from-file@localhost\"\n";

#[test]
fn the_environment_comes_before_a_credential_and_a_credential_before_the_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("postgres-url"), "postgres://from-credential@localhost\n").unwrap();
    fs::write(folder.path().join("redis-url"), "redis://from-credential@localhost\n").unwrap();
    let credentials = ("CREDENTIALS_DIRECTORY", folder.path().to_str().unwrap());
    let variables = [
        ("REFUNDD_POSTGRES_URL", "postgres://from-env@localhost"),
        ("REFUNDD_REDIS_URL", "redis://from-env@localhost"),
    ];

    let all = parse_in(folder.path(), BOTH, &[credentials, variables[0], variables[1]]).unwrap();
    assert_eq!(all.postgres.url.expose_secret(), "postgres://from-env@localhost");
    assert_eq!(all.redis.url.expose_secret(), "redis://from-env@localhost");
    assert_eq!(all.redis.url_origin, Origin::Environment("REFUNDD_REDIS_URL"));

    let two = parse_in(folder.path(), BOTH, &[credentials, ("REFUNDD_REDIS_URL", " ")]).unwrap();
    assert_eq!(two.postgres.url.expose_secret(), "postgres://from-credential@localhost");
    assert_eq!(two.redis.url.expose_secret(), "redis://from-credential@localhost");
    assert_eq!(two.redis.url_origin, Origin::Credential(folder.path().join("redis-url")));

    let one = parse_in(folder.path(), BOTH, &[]).unwrap();
    assert_eq!(one.postgres.url.expose_secret(), "postgres://from-file@localhost");
    assert_eq!(one.postgres.url_origin, Origin::ConfigFile);

    assert!(parse_in(folder.path(), "", &variables).is_ok(), "the file need not name them");
}

#[test]
fn secrets_in_files_are_trimmed_and_read_from_beside_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    write_secret(folder.path(), "pg", "postgres://localhost\n");
    write_secret(folder.path(), "password", "hunter2\n");
    write_secret(folder.path(), "bearer", " Bearer hunter3\n");
    write_secret(folder.path(), "basic", "Basic hunter4");
    let text = "[postgres]\nurl_file = \"pg\"\npassword_file = \"./password\"\n[redis]\nurl = \"redis://localhost\"\n\
                [channel.a]\nendpoint = \"http://localhost/\"\nlimits = []\nauthorization_file = \"bearer\"\n\
                [channel.b]\nendpoint = \"http://localhost/\"\nlimits = []\nauthorization_credential = \"basic\"\n";
    let credentials = ("CREDENTIALS_DIRECTORY", folder.path().to_str().unwrap());
    let config = parse_in(folder.path(), text, &[credentials]).unwrap();
    assert_eq!(config.postgres.url.expose_secret(), "postgres://localhost");
    assert_eq!(config.postgres.password.as_ref().unwrap().expose_secret(), "hunter2");
    let headers: Vec<&str> = config
        .channels
        .values()
        .map(|channel| channel.authorization.as_ref().unwrap().0.expose_secret())
        .collect();
    assert_eq!(headers, ["Bearer hunter3", "Basic hunter4"]);
    let shown = format!("{config:?}");
    assert!(!shown.contains("hunter"), "{shown}");
}

/// A reload leaves the workers of an equal channel alone, so a new secret must make a channel differ.
#[test]
fn a_channel_with_another_secret_is_another_channel_and_no_message_shows_either() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[postgres]\nurl = \"postgres://localhost\"\n[redis]\nurl = \"redis://localhost\"\n\
                [channel.a]\nendpoint = \"http://localhost/\"\nlimits = []\nauthorization_file = \"bearer\"\n";
    let channel = |secret: &str| {
        write_secret(folder.path(), "bearer", secret);
        let config = parse_in(folder.path(), text, &[]).unwrap();
        config.channels.values().next().unwrap().clone()
    };
    let (before, again, rotated) = (channel("Bearer one"), channel("Bearer one"), channel("Bearer two"));
    assert!(before == again && before != rotated);
    assert_eq!(format!("{before:?}"), format!("{rotated:?}"));
}

#[test]
fn no_address_at_all_names_every_way_to_give_one() {
    let folder = tempfile::tempdir().unwrap();
    let shown = only_complaints(Config::parse("", "r.toml", &super::no_env));
    insta::assert_snapshot!(shown, @"
    r.toml: section `[postgres]`: no address; set `url` or `url_file` in `[postgres]`, the environment variable `REFUNDD_POSTGRES_URL` or the systemd credential `postgres-url`
    r.toml: section `[redis]`: no address; set `url` or `url_file` in `[redis]`, the environment variable `REFUNDD_REDIS_URL` or the systemd credential `redis-url`
    ");
    let both = "[postgres]\nurl = \"postgres://localhost\"\nurl_file = \"/x\"\n[redis]\nurl = \"redis://localhost\"\n";
    let shown = only_complaints(parse_in(folder.path(), both, &[]));
    assert!(shown.contains("has both `url` and `url_file`"), "{shown}");
}

#[test]
fn a_faulty_secret_is_named_by_its_source_and_never_quoted() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("redis-url"), "hunter3").unwrap();
    write_secret(folder.path(), "empty", "\n");
    write_secret(folder.path(), "two-lines", "Bearer\nhunter4");
    let env = [
        ("CREDENTIALS_DIRECTORY", folder.path().to_str().unwrap()),
        ("REFUNDD_POSTGRES_URL", "mysql://u:hunter2@db"),
    ];
    let text = "[postgres]\npassword_file = \"./empty\"\n\
                [channel.a]\nendpoint = \"http://localhost/\"\nlimits = []\nauthorization_file = \"./two-lines\"\n\
                [channel.b]\nendpoint = \"http://localhost/\"\nlimits = []\nauthorization_credential = \"nowhere\"\n\
                [channel.c]\nendpoint = \"http://localhost/\"\nlimits = []\nauthorization_file = \"./gone\"\n";
    let shown = only_complaints(parse_in(folder.path(), text, &env));
    assert!(!shown.contains("hunter"), "{shown}");
    insta::assert_snapshot!(shown.replace(folder.path().to_str().unwrap(), "."), @r#"
    ./refundd.toml:2:17: field `postgres.password_file` = "./empty": this file is empty
    ./refundd.toml:6:22: field `channel.a.authorization_file` = "./two-lines": its content is not a header: it must be one line of plain characters
    ./refundd.toml:10:28: field `channel.b.authorization_credential` = "nowhere": the service was not given this systemd credential; add `LoadCredential=` to its unit
    ./refundd.toml:14:22: field `channel.c.authorization_file` = "./gone": this file does not exist
    environment variable `REFUNDD_POSTGRES_URL`: must start with one of `postgres://`, `postgresql://`
    systemd credential `redis-url`: must start with one of `redis://`, `rediss://`, `redis+unix://`, `unix://`, `valkey://`, `valkeys://`, `valkey+unix://`, `redis+sentinel://`, `rediss+sentinel://`, `redis-sentinel://`, `rediss-sentinel://`, `redis+cluster://`, `rediss+cluster://`, `redis-cluster://`, `rediss-cluster://`
    "#);
}

#[test]
fn a_secret_file_that_others_may_read_is_refused_with_its_mode_and_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[postgres]\nurl_file = \"pg\"\npassword_file = \"password\"\n[redis]\nurl_file = \"cache\"\n\
                [channel.a]\nendpoint = \"https://b/\"\nlimits = []\nauthorization_file = \"bearer\"\n";
    let secrets = [
        ("pg", "postgres://localhost"),
        ("password", "hunter2"),
        ("cache", "redis://localhost"),
        ("bearer", "Bearer hunter3"),
    ];
    for (name, secret) in secrets {
        write_secret(folder.path(), name, secret);
    }
    assert!(parse_in(folder.path(), text, &[]).is_ok());
    for (mode, refused) in [(0o400, 0), (0o700, 0), (0o640, 4), (0o604, 4), (0o620, 4), (0o601, 4)] {
        for (name, _) in secrets {
            fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let complaints = parse_in(folder.path(), text, &[]).err().map(|error| error.to_string());
        let shown = complaints.unwrap_or_default();
        let named = secrets.iter().filter(|(name, _)| {
            shown.contains(&format!("chmod 600 {}`", folder.path().join(name).display()))
        });
        assert_eq!(named.count(), refused, "{mode:o}: {shown}");
        assert!(refused == 0 || shown.contains(&format!("its mode is {mode:04o}")), "{shown}");
        assert!(!shown.contains("hunter"), "{shown}");
    }
    // systemd alone decides who may read a credential.
    fs::write(folder.path().join("acme"), "Bearer hunter4").unwrap();
    let text = format!(
        "{BOTH}[channel.a]\nendpoint = \"https://b/\"\nlimits = []\nauthorization_credential = \"acme\"\n"
    );
    let credentials = ("CREDENTIALS_DIRECTORY", folder.path().to_str().unwrap());
    assert!(parse_in(folder.path(), &text, &[credentials]).is_ok());
}

#[test]
fn an_inquiry_on_another_host_does_not_get_the_channels_authorization() {
    let folder = tempfile::tempdir().unwrap();
    write_secret(folder.path(), "bearer", "Bearer hunter2");
    write_secret(folder.path(), "other", "Bearer hunter3");
    let parse = |url: &str, more: &str| {
        let text = format!(
            "{BOTH}[channel.a]\nendpoint = \"https://Bank.example/refunds\"\nlimits = []\nauthorization_file = \"bearer\"\n\
             inquiry = {{ url = \"{url}\"{more} }}\n"
        );
        parse_in(folder.path(), &text, &[])
    };
    let sent = |config: Config| {
        let channel = config.channels.values().next().unwrap();
        channel.inquiry_authorization().map(|header| header.0.expose_secret().to_owned())
    };
    for own in ["https://bank.example/{request_id}", "https://bank.EXAMPLE:443/{request_id}"] {
        assert_eq!(sent(parse(own, "").unwrap()).as_deref(), Some("Bearer hunter2"), "{own}");
    }
    for other in ["https://status.bank.example/{request_id}", "https://bank.example:8443/{request_id}"] {
        let shown = only_complaints(parse(other, ""));
        assert!(shown.contains("is at another host or port than `endpoint`"), "{shown}");
        assert!(shown.contains("`authorization_file`") && !shown.contains("hunter"), "{shown}");
        let with_its_own = parse(other, ", authorization_file = \"other\"").unwrap();
        assert_eq!(sent(with_its_own).as_deref(), Some("Bearer hunter3"));
    }
}

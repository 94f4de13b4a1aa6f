//! Checks the requirements of `[http]` by the messages that an operator reads.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::super::section::Section;
use super::super::source::Source;
use super::super::{Config, ConfigError, Http};
use super::{SECOND, complaints, no_env, with};

/// Reads `[http]` alone, in a file that has a `[caller.NAME]` or has none.
fn read(text: &str, has_callers: bool) -> Result<Http, String> {
    let text = format!("[http]\n{text}\n");
    let source = Source::new("r.toml", &text, &no_env);
    let table = source.table().unwrap();
    let http = Http::read(&Section::root(&source, &table).section("http"), has_callers);
    match source.refusal() {
        ConfigError::Refused { complaints, .. } if complaints.is_empty() => Ok(http.unwrap()),
        ConfigError::Refused { complaints, .. } => {
            let lines = complaints
                .iter()
                .map(|complaint| format!("{}: {}", complaint.subject, complaint.requirement));
            Err(lines.collect::<Vec<_>>().join("\n"))
        }
        ConfigError::Read { .. } | ConfigError::Changing { .. } => unreachable!(),
    }
}

#[test]
fn only_loopback_may_be_listened_on_without_tls_and_callers() {
    insta::assert_snapshot!(complaints("[http]\nlisten = \"0.0.0.0:8080\"\n"), @r#"r.toml:6:10: field `http.listen` = "0.0.0.0:8080": is reached from other hosts, which needs `tls` and at least one `[caller.NAME]`: without them anyone who reaches the port could read and order refunds; add both, or use "127.0.0.1:8080""#);
    insta::assert_snapshot!(complaints("[http]\nlisten = \"localhost:8080\"\nmax_connections = 0\n"), @r#"
    r.toml:6:10: field `http.listen` = "localhost:8080": must be an IP address and a port, such as "127.0.0.1:8080" or "[::1]:8080"
    r.toml:7:19: field `http.max_connections` = 0: must lie between 1 and 65536
    "#);
    let http = with("[http]\nlisten = \"[::1]:0\"\nmax_connections = 3\n").http;
    assert_eq!((http.max_connections, http.max_connections_per_address), (Some(3), None));
}

#[test]
fn beyond_loopback_needs_tls_and_a_caller_and_an_address_for_health() {
    let folder = certificates();
    let here = folder.path().display();
    let tls = format!("tls = {{ certificate_file = \"{here}/own.pem\", key_file = \"{here}/own.key\" }}\n");
    let beyond = "listen = \"10.0.0.7:8443\"\n";
    let admin = "admin_listen = \"127.0.0.1:9090\"\n";
    for (text, has_callers) in [
        (beyond.to_owned(), false),
        (format!("{beyond}{admin}"), true),
        (format!("{beyond}{admin}{tls}"), false),
    ] {
        let refused = read(&text, has_callers).unwrap_err();
        assert!(refused.contains("needs `tls` and at least one `[caller.NAME]`"), "{text}: {refused}");
    }
    let refused = read(&format!("{beyond}{tls}"), true).unwrap_err();
    insta::assert_snapshot!(refused, @r#"section `[http]`: has no `admin_listen`, and `listen` leads beyond this host: set `admin_listen = "127.0.0.1:9090"`, so that callers cannot keep health checks and scrapers out"#);
    let http = read(&format!("{beyond}{admin}{tls}"), true).unwrap();
    assert_eq!((http.max_connections_per_address, http.tls.is_some()), (Some(64), true));
    let loopback = read("listen = \"[::ffff:127.0.0.1]:0\"", false).unwrap();
    assert_eq!(loopback.max_connections_per_address, None);
}

#[test]
fn the_bounds_of_callers_have_bounds() {
    insta::assert_snapshot!(complaints("[http]\nadmin_listen = \"10.0.0.7:9090\"\nheader_timeout = \"10ms\"\nbody_timeout = \"2m\"\nmax_connections_per_address = 0\n"), @r#"
    r.toml:6:16: field `http.admin_listen` = "10.0.0.7:9090": must be a loopback address: nobody is authenticated there; programs on other hosts use `listen`
    r.toml:7:18: field `http.header_timeout` = "10ms": must lie between "100ms" and "1m"
    r.toml:8:16: field `http.body_timeout` = "2m": must lie between "100ms" and "1m"
    r.toml:9:31: field `http.max_connections_per_address` = 0: must lie between 1 and 65536
    "#);
    let http = with("").http;
    assert_eq!(
        (http.header_timeout, http.body_timeout, http.answer_timeout),
        (5 * SECOND, 15 * SECOND, 30 * SECOND)
    );
    assert_eq!(
        (http.handshake_timeout, http.admin_listen, http.max_connections_per_address),
        (5 * SECOND, None, None)
    );
    let http = with("[http]\nadmin_listen = \"127.0.0.1:8080\"\nmax_connections_per_address = 64\n").http;
    assert_eq!(
        (http.admin_listen, http.max_connections_per_address),
        (None, Some(64)),
        "`listen` serves both"
    );
}

/// A folder with a certificate for `localhost`, its key and another key.
fn certificates() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let write = |name: &str, text: String, mode: u32| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    };
    write("own.pem", params.self_signed(&key).unwrap().pem(), 0o644);
    write("own.key", key.serialize_pem(), 0o600);
    write("open.key", key.serialize_pem(), 0o644);
    write("other.key", rcgen::KeyPair::generate().unwrap().serialize_pem(), 0o600);
    write("no.pem", "nothing".to_owned(), 0o600);
    folder
}

#[test]
fn tls_needs_a_certificate_its_own_key_and_usable_roots() {
    let folder = certificates();
    let here = format!("{}/", folder.path().display());
    let parsed = |keys: &str| {
        let http = read(&format!("tls = {{ {} }}", keys.replace('@', &here)), false);
        http.map(|http| http.tls.unwrap()).map_err(|said| said.replace(&here, "@"))
    };
    let refused = |keys: &str| parsed(keys).expect_err(keys);
    let good = parsed(r#"certificate_file = "@own.pem", key_file = "@own.key", client_ca_file = "@own.pem""#)
        .unwrap();
    assert_eq!(
        format!("{good:?}"),
        "HttpTls(1 certificates of its own, and 1 roots for the certificates of callers)"
    );
    let same = parsed(r#"key_file = "@own.key", certificate_file = "@own.pem", client_ca_file = "@own.pem""#)
        .unwrap();
    let open = parsed(r#"certificate_file = "@own.pem", key_file = "@own.key""#).unwrap();
    assert!(good == same && good != open);
    insta::assert_snapshot!(refused(r#"certificate_file = "@own.pem""#), @"section `[http.tls]`: needs the private key: give either `key_file` or `key_credential`");
    insta::assert_snapshot!(refused(r#"certificate_file = "@own.pem", key_file = "@own.key", key_credential = "k""#), @"section `[http.tls]`: needs the private key: give either `key_file` or `key_credential`");
    insta::assert_snapshot!(refused(r#"certificate_file = "@own.pem", key_credential = "k""#), @r#"field `http.tls.key_credential` = "k": the service was not given this systemd credential; add `LoadCredential=` to its unit"#);
    insta::assert_snapshot!(refused(r#"certificate_file = "@own.pem", key_file = "@open.key""#), @r#"field `http.tls.key_file` = "@open.key": the file @open.key has a secret, and others than its owner have rights to it: its mode is 0644; run `chmod 600 @open.key`"#);
    insta::assert_snapshot!(refused(r#"certificate_file = "@own.pem", key_file = "@other.key""#), @r#"field `http.tls.key_file` = "@other.key": is not the key of the first certificate in `certificate_file`"#);
    insta::assert_snapshot!(refused(r#"certificate_file = "@no.pem", key_file = "@no.pem", client_ca_file = "@gone.pem", ca_file = "x""#), @r#"
    field `http.tls.certificate_file` = "@no.pem": this file is no list of certificates in PEM: it must hold `-----BEGIN CERTIFICATE-----` at least once, and each must be whole
    field `http.tls.key_file` = "@no.pem": has no private key in PEM: it must hold `-----BEGIN PRIVATE KEY-----`, and no password may protect it
    field `http.tls.client_ca_file` = "@gone.pem": this file cannot be read: No such file or directory (os error 2)
    field `http.tls.ca_file`: unknown key; known here: `certificate_file`, `key_file`, `key_credential`, `client_ca_file`
    "#);
}

#[test]
fn the_listeners_key_may_be_a_systemd_credential() {
    let folder = certificates();
    let here = folder.path().display().to_string();
    let read = |credential: &str| {
        let text = format!(
            "[http]\ntls = {{ certificate_file = \"{here}/own.pem\", key_credential = \"{credential}\" }}\n\
             [postgres]\nurl = \"postgres://localhost\"\n[redis]\nurl = \"redis://localhost\"\n"
        );
        let env = |name: &str| (name == "CREDENTIALS_DIRECTORY").then(|| here.clone());
        Config::parse(&text, "r.toml", &env).map_err(|error| error.to_string())
    };
    assert!(read("own.key").unwrap().http.tls.is_some());
    let refused = read("other.key").unwrap_err();
    assert!(refused.contains("is not the key of the first certificate"), "{refused}");
}

#[test]
fn names_of_hosts_have_no_ports_and_no_addresses() {
    assert_eq!(with("[http]\nhosts = [\"refundd.internal\", \"node-a\"]\n").http.hosts.len(), 2);
    for bad in ["refundd.internal:8080", "10.0.0.7", "https://refundd.internal", "a b", "*", ""] {
        let said = complaints(&format!("[http]\nhosts = [\"node-a\", \"{bad}\"]\n"));
        assert!(said.contains(&format!("`{bad}` is no host name")), "{said}");
    }
}

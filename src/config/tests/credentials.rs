//! Checks the requirements of what a channel shows to its bank: client certificates, signing keys and tokens; and of what bounds
//! it: addresses and amounts.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::with;
use crate::bank::has_short_secret;
use crate::channel::Channel;
use crate::config::Config;

fn write(folder: &Path, name: &str, text: &str, mode: u32) {
    std::fs::write(folder.join(name), text).unwrap();
    std::fs::set_permissions(folder.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A folder with a certificate and its key, another key, a key that others can read, signing keys and a secret.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let issued = rcgen::generate_simple_self_signed(["refundd".to_owned()]).unwrap();
    let (certificate, key) = (issued.cert.pem(), issued.signing_key.serialize_pem());
    for (name, text, mode) in [
        ("a.pem", certificate.as_str(), 0o644),
        ("a.key", key.as_str(), 0o600),
        ("open.key", key.as_str(), 0o640),
        ("other.key", &rcgen::KeyPair::generate().unwrap().serialize_pem(), 0o600),
        ("sign-2", "0123456789abcdef", 0o600),
        ("sign-1", "base64:MDEyMzQ1Njc4OWFiY2RlZg==", 0o600),
        ("open-sign", "0123456789abcdef", 0o604),
        ("short", "base64:MDEy", 0o600),
        ("a key", "0123456789abcdef", 0o600),
        ("secret", "s3cret\n", 0o600),
        ("open-secret", "s3cret\n", 0o666),
    ] {
        write(folder.path(), name, text, mode);
    }
    folder
}

/// The channel with these lines in its file, or the complaints.
fn acme(folder: &tempfile::TempDir, endpoint: &str, lines: &str) -> Result<Channel, String> {
    let file = folder.path().join("r.toml");
    let text = format!(
        "[postgres]\nurl = \"postgres://localhost\"\n[redis]\nurl = \"redis://localhost\"\n\
         [channel.acme]\nendpoint = \"{endpoint}\"\nlimits = []\n{lines}\n"
    );
    let config =
        Config::parse(&text, file.to_str().unwrap(), &|_| None).map_err(|error| error.to_string())?;
    Ok(config.channels.values().next().unwrap().as_ref().clone())
}

#[test]
fn a_client_certificate_needs_its_own_key_in_a_file_that_nobody_else_can_read() {
    let folder = folder();
    let of = |certificate: &str, key: &str| {
        let lines = format!("client_certificate_file = \"{certificate}\"\nclient_key_file = \"{key}\"");
        acme(&folder, "https://b/", &lines)
    };
    let channel = of("a.pem", "a.key").unwrap();
    let shown = Config::public_settings(&channel)["client_certificate_file"].to_string();
    assert!(shown.starts_with("\"1 certificates, ") && channel.client_identity.is_some(), "{shown}");
    for (certificate, key, requirement) in [
        ("a.pem", "other.key", "is not the key of the first certificate"),
        ("a.pem", "open.key", "others than its owner have rights to it: its mode is 0640"),
        ("a.pem", "secret", "no private key in PEM"),
        ("a.pem", "gone", "the file it names does not exist"),
        ("secret", "a.key", "no list of certificates"),
    ] {
        let complaint = of(certificate, key).unwrap_err();
        assert!(complaint.contains(requirement) && complaint.starts_with("1 fault"), "{complaint}");
    }
    let only = acme(&folder, "https://b/", "client_certificate_file = \"a.pem\"").unwrap_err();
    assert!(only.contains("`client_certificate_file` and `client_key_file` go together"), "{only}");
    let lines = "client_certificate_file = \"a.pem\"\nclient_key_file = \"a.key\"";
    assert!(acme(&folder, "http://localhost/", lines).unwrap_err().contains("only for TLS"));
}

#[test]
fn signing_names_one_key_or_two_in_files_that_nobody_else_can_read() {
    let folder = folder();
    let of = |scheme: &str, files: &str| {
        acme(&folder, "https://b/", &format!("signing = {{ scheme = \"{scheme}\", key_files = [{files}] }}"))
    };
    let channel = of("hmac-sha256", "\"sign-2\", \"sign-1\"").unwrap();
    let keys = channel.signing.clone().unwrap().0;
    assert_eq!(keys.iter().map(|key| key.id.as_str()).collect::<Vec<_>>(), ["sign-2", "sign-1"]);
    assert!(
        crate::channel::Signing([keys[0].clone()].into())
            != crate::channel::Signing([keys[1].clone()].into())
    );
    assert_eq!(
        Config::public_settings(&channel)["signing"].to_string(),
        r#"{"keys":["sign-2","sign-1"],"scheme":"hmac-sha256"}"#
    );
    assert!(!format!("{channel:?} {keys:?}").contains("0123456789abcdef"));
    for (scheme, files, requirement) in [
        ("hmac-sha1", "\"sign-1\"", "no such scheme; use \"hmac-sha256\""),
        ("hmac-sha256", "", "must name one file, or two"),
        ("hmac-sha256", "\"sign-1\", \"sign-2\", \"secret\"", "must name one file, or two"),
        ("hmac-sha256", "\"sign-1\", \"./sign-1\"", "names two files of one name"),
        ("hmac-sha256", "\"open-sign\"", "its mode is 0604"),
        ("hmac-sha256", "\"short\"", "must have at least 16 bytes"),
        ("hmac-sha256", "\"a key\"", "is the key's name for the bank"),
        ("hmac-sha256", "\"gone\"", "does not exist"),
        ("hmac-sha256", "\"0123456789abcdef\"", "it must be the name of a file that holds the secret"),
        ("hmac-sha256", "\"0123456789abcdef\", \"a\", \"b\"", "must name one file, or two"),
        ("hmac-sha256", "[\"0123456789abcdef\"]", "must be a list of names"),
    ] {
        let complaint = of(scheme, files).unwrap_err();
        assert!(complaint.contains(requirement) && !complaint.contains("0123456789"), "{complaint}");
    }
}

#[test]
fn a_token_needs_an_address_a_client_and_a_secret_that_nobody_else_can_read() {
    let folder = folder();
    let of = |token: &str| acme(&folder, "https://b/", &format!("token = {{ {token} }}"));
    let good =
        "url = \"https://login/token?key=hunter2\", client_id = \"refundd\", client_secret_file = \"secret\"";
    let channel = of(&format!("{good}, scope = \"a b\"")).unwrap();
    assert_eq!(
        Config::public_settings(&channel)["token"].to_string(),
        r#"{"client_id":"refundd","scope":"a b","url":"https://login/token?****"}"#
    );
    let shown = format!("{channel:?} {:?}", channel.token);
    assert!(!shown.contains("s3cret") && !shown.contains("hunter2"), "{shown}");
    for (old, new, requirement) in [
        ("https://login", "http://login", "in clear text"),
        ("https://login", "http://localhost", "must start with `https://` like the `endpoint`"),
        ("\"refundd\"", "\"\"", "must not be empty"),
        ("\"secret\"", "\"open-secret\"", "its mode is 0666"),
        (
            "client_secret_file = \"secret\"",
            "client_secret = \"s3cret\"",
            "a secret does not belong in this file",
        ),
    ] {
        let complaint = of(&good.replace(old, new)).unwrap_err();
        assert!(complaint.contains(requirement) && !complaint.contains("hunter2"), "{complaint}");
        assert!(!complaint.contains("s3cret"), "{complaint}");
    }
    let both = format!("authorization_file = \"secret\"\ntoken = {{ {good} }}");
    let complaint = acme(&folder, "https://b/", &both).unwrap_err();
    assert!(complaint.contains("has both `token` and a fixed `Authorization` header"), "{complaint}");
    let elsewhere = format!("inquiry = {{ url = \"https://c/{{request_id}}\" }}\ntoken = {{ {good} }}");
    let complaint = acme(&folder, "https://b/", &elsewhere).unwrap_err();
    assert!(complaint.contains("does not get the channel's `Authorization` header"), "{complaint}");
}

#[test]
fn a_secret_that_is_too_short_to_be_hidden_is_told_from_one_that_is_not() {
    let folder = folder();
    let inquiry = "inquiry = { url = \"https://c/{request_id}\", authorization_file = \"own\" }";
    let token = "token = { url = \"https://login/\", client_id = \"refundd\", client_secret_file = \"own\" }";
    for (lines, secret, is_short) in [
        ("authorization_file = \"own\"", "Bearer abcde", true),
        ("authorization_file = \"own\"", "Bearer abcdef", false),
        // The logins `refundd:abc` and `refundd:opensesame`.
        ("authorization_file = \"own\"", "Basic cmVmdW5kZDphYmM=", true),
        ("authorization_file = \"own\"", "Basic cmVmdW5kZDpvcGVuc2VzYW1l", false),
        (inquiry, "abcde", true),
        (inquiry, "abcdef", false),
        (token, "abcde", true),
        (token, "abcdef", false),
        ("", "abcde", false),
    ] {
        write(folder.path(), "own", secret, 0o600);
        let channel = acme(&folder, "https://b/", lines).unwrap();
        assert_eq!(has_short_secret(&channel), is_short, "{lines}: {secret}");
    }
}

#[test]
fn a_systemd_credential_is_read_whatever_the_mode_of_its_file() {
    let folder = folder();
    let path = folder.path().display();
    let text = format!(
        "[postgres]\nurl = \"postgres://localhost\"\n[redis]\nurl = \"redis://localhost\"\n\
         [channel.acme]\nendpoint = \"https://b/\"\nlimits = []\nauthorization_file = \"{path}/open-secret\"\n"
    );
    let parse = |env: &dyn Fn(&str) -> Option<String>| Config::parse(&text, "r.toml", env);
    assert!(parse(&|_| None).unwrap_err().to_string().contains("its mode is 0666"));
    let inside = |name: &str| (name == "CREDENTIALS_DIRECTORY").then(|| path.to_string());
    assert!(parse(&inside).is_ok());
    let elsewhere = |name: &str| (name == "CREDENTIALS_DIRECTORY").then(|| "/run/credentials/x".to_owned());
    assert!(parse(&elsewhere).is_err());
}

#[test]
fn addresses_are_ranges_that_contain_the_channels_own_addresses() {
    let folder = folder();
    let of = |endpoint: &str, ranges: &str| acme(&folder, endpoint, &format!("addresses = [{ranges}]"));
    let channel = of("https://10.0.0.7/", "\"10.0.0.0/8\", \"2001:db8::/32\"").unwrap();
    assert_eq!(
        Config::public_settings(&channel)["addresses"].to_string(),
        r#"["10.0.0.0/8","2001:db8::/32"]"#
    );
    for (endpoint, ranges, requirement) in [
        ("https://b/", "", "must name a range; leave it out"),
        ("https://b/", "\"10.0.0.0/40\"", "must be a range of addresses, such as"),
        ("https://b/", "\"b\"", "must be a range of addresses, such as"),
        (
            "https://10.0.0.7/",
            "\"11.0.0.0/8\"",
            "must contain the addresses that a url names, and lacks `10.0.0.7`",
        ),
        ("https://[fd00::1]/", "\"11.0.0.0/8\"", "lacks `fd00::1`"),
    ] {
        let complaint = of(endpoint, ranges).unwrap_err();
        assert!(complaint.contains(requirement), "{complaint}");
    }
}

#[test]
fn bounds_of_amounts_name_currencies_and_positive_amounts() {
    let config = with(
        "[channel.acme]\nendpoint = \"http://localhost/\"\nlimits = []\nmax_amount_minor = { EUR = 500000, JPY = 9 }\n",
    );
    let channel = config.channels.values().next().unwrap();
    assert_eq!(Config::public_settings(channel)["max_amount_minor"].to_string(), r#"{"EUR":500000,"JPY":9}"#);
    let folder = folder();
    for (table, requirement) in [
        ("{}", "must name a currency and its highest amount"),
        ("{ EUR = 0 }", "must be at least 1"),
        ("{ EUR = \"5\" }", "must be a whole number"),
        ("{ ZZZ = 5 }", "is for a currency of ISO 4217"),
        ("{ eur = 5 }", "is for a currency of ISO 4217"),
        ("500000", "must be a section"),
    ] {
        let complaint = acme(&folder, "https://b/", &format!("max_amount_minor = {table}")).unwrap_err();
        assert!(complaint.contains(requirement), "{table}: {complaint}");
        let is_empty = complaint.contains("must name a currency");
        assert_eq!(is_empty, table == "{}", "a table has one fault: {complaint}");
    }
}

#[test]
fn a_file_that_the_configuration_names_is_a_regular_one_of_at_most_1_mib() {
    let folder = folder();
    let pipe = folder.path().join("pipe");
    // With no mode for others, since a secret's file is asked for its mode, too.
    let made = std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&pipe).status().unwrap();
    assert!(made.success());
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    // Kubernetes mounts secrets as links.
    std::os::unix::fs::symlink("secret", folder.path().join("link")).unwrap();
    std::os::unix::fs::symlink("a.pem", folder.path().join("link.pem")).unwrap();
    let most = format!("s3cret{}", " ".repeat(1024 * 1024 - "s3cret".len()));
    write(folder.path(), "most", &most, 0o600);
    write(folder.path(), "more", &format!("{most} "), 0o600);
    let of = |key: &str, file: &str| acme(&folder, "https://b/", &format!("{key} = \"{file}\""));
    for (key, file) in
        [("authorization_file", "link"), ("authorization_file", "most"), ("ca_file", "link.pem")]
    {
        assert!(of(key, file).is_ok(), "{key} {file}");
    }
    for (file, requirement) in [
        ("pipe", "it is not a regular file"),
        ("folder", "it is not a regular file"),
        ("more", "it has more than 1 MiB"),
    ] {
        for key in ["authorization_file", "ca_file"] {
            let complaint = of(key, file).unwrap_err();
            assert!(complaint.contains(requirement) && !complaint.contains("s3cret"), "{key}: {complaint}");
        }
    }
}

//! The messages are interface: an operator acts on them.

use std::time::Duration;

use secrecy::ExposeSecret;

use super::Config;
use crate::channel::Channel;
use crate::limiter::Algorithm;

const BASE: &str = r#"
[node]
name = "a"
[postgres]
url = "postgres://refundd@localhost/payments"
[redis]
url = "redis://localhost"
[limit.acme]
permits = 20
per = "1s"
[channel.acme]
endpoint = "https://bank.example/refunds"
limits = ["acme"]
"#;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, "refundd.toml", &|_| None).map_err(|error| error.to_string())
}

fn refused(text: &str) -> String {
    parse(text).map(|_| ()).expect_err("it is refused")
}

fn with(find: &str, put: &str) -> String {
    assert!(BASE.contains(find), "{find}");
    BASE.replace(find, put)
}

#[test]
fn the_reference_is_a_good_configuration() {
    let config = parse(Config::REFERENCE).unwrap();
    let acme = config.channels.values().next().unwrap();
    assert_eq!(acme.limits.len(), 2);
    assert_eq!(acme.verdicts.len(), 1);
}

#[test]
fn what_the_reference_shows_as_default_is_the_default() {
    // Leave out the sections' examples and put every commented default in; nothing may change.
    let spelled: String = Config::REFERENCE
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest)
                if rest
                    .split_once(" = ")
                    .is_some_and(|(key, _)| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
                    && ![
                        "name",
                        "url_file",
                        "password_file",
                        "max_backlog",
                        "authorization_file",
                        "authorization_credential",
                        "format",
                    ]
                    .contains(&rest.split(' ').next().unwrap_or_default()) =>
            {
                format!("{rest}\n")
            }
            _ => format!("{line}\n"),
        })
        .collect();
    assert!(
        spelled.contains("\nlease = \"25s\"")
            && spelled.contains("\nahead = \"50ms\"")
            && spelled.contains("\nretry = {")
    );
    let (said, unsaid) = (parse(&spelled).unwrap(), parse(Config::REFERENCE).unwrap());
    let shown = |c: &Config| {
        format!("{:?}", (&c.http, &c.postgres, &c.redis, &c.bucket, &c.recovery, &c.limits, &c.channels))
    };
    assert_eq!(shown(&said), shown(&unsaid));
}

#[test]
fn a_misspelt_key_is_named_with_its_place_and_the_nearest_name() {
    let message = refused(&with("limits = [\"acme\"]", "limits = [\"acme\"]\ntiemout = \"5s\""));
    assert_eq!(
        message,
        "1 fault in the configuration `refundd.toml`:\nrefundd.toml:14:1: field `channel.acme.tiemout`: unknown key; did you mean `timeout`?"
    );
}

#[test]
fn all_faults_are_told_at_once_in_the_order_of_the_file() {
    let text = with("permits = 20", "permits = 0").replace("endpoint = \"https:", "endpoint = \"ftp:");
    let message = refused(&text);
    assert!(message.starts_with("2 faults"), "{message}");
    assert!(message.find("limit.acme.permits") < message.find("channel.acme.endpoint"), "{message}");
}

#[test]
fn every_law_names_its_field_and_the_way_out() {
    for (find, put, wanted) in [
        ("limits = [\"acme\"]", "", "field `channel.acme.limits`: is missing"),
        ("limits = [\"acme\"]", "limits = [\"amce\"]", "there is no [limit.amce]; did you mean `acme`?"),
        ("limits = [\"acme\"]", "limits = [\"acme\", \"acme\"]", "names `acme` twice"),
        ("permits = 20", "permits = -2", "must lie between 1 and 1000000, or be -1 for unlimited"),
        ("permits = 20", "", "field `limit.acme.permits`: is missing"),
        ("per = \"1s\"", "per = \"1\"", "did you mean \"1s\"?"),
        ("per = \"1s\"", "per = \"1ms\"", "field `limit.acme.per` = \"1ms\": must lie between"),
        ("per = \"1s\"", "per = \"1s\"\nlateness = \"500ms\"", "less than half of `per`"),
        ("per = \"1s\"", "per = \"1s\"\nahead = \"600ms\"", "at most half of `per`"),
        ("per = \"1s\"", "per = \"1s\"\nalgorithm = \"paced\"", "comes with a later version"),
        ("per = \"1s\"", "per = \"1s\"\nalgorithm = \"magic\"", "must be \"fixed_window\""),
        ("per = \"1s\"", "per = \"1s\"\nburst = 5", "belongs to `token_bucket`"),
        ("https://bank.example/refunds", "bank.example", "whole address"),
        ("https://bank.example/refunds", "https://u:p@bank.example/", "authorization_file"),
        (
            "limits = [\"acme\"]",
            "limits = [\"acme\"]\ntimeout = \"1h\"",
            "field `channel.acme.timeout` = \"1h\": must lie between",
        ),
        ("limits = [\"acme\"]", "limits = [\"acme\"]\nlease = \"19s\"", "must be at least \"20s\""),
        ("limits = [\"acme\"]", "limits = [\"acme\"]\nmax_in_flight = 0", "must lie between 1 and 10000"),
        ("limits = [\"acme\"]", "limits = [\"acme\"]\nmax_backlog = 0", "must be at least 1"),
        ("limits = [\"acme\"]", "limits = [\"acme\"]\non_unknown = \"resend\"", "comes with a later version"),
        ("limits = [\"acme\"]", "limits = [\"acme\"]\nkey_retention = \"1h\"", "comes with a later version"),
        ("limits = [\"acme\"]", "limits = [\"acme\"]\nauthorization_file = \"/nowhere\"", "cannot be read"),
        (
            "limits = [\"acme\"]",
            "limits = [\"acme\"]\nretry = { sends = 0 }",
            "field `channel.acme.retry.sends`",
        ),
        (
            "limits = [\"acme\"]",
            "limits = [\"acme\"]\n[[channel.acme.verdict]]\nstatus = 200\npointer = \"/a\"\noutcome = \"review\"",
            "go together",
        ),
        ("[channel.acme]", "[channel.Acme]", "is not a name"),
        ("name = \"a\"", "name = \"a b\"", "without spaces"),
        ("[node]", "[http]\nlisten = \"0.0.0.0:8080\"\n[node]", "must be a loopback address"),
        ("[node]", "[bucket]\ncapacity = 0\n[node]", "must lie between 1 and 100000"),
        ("[node]", "[bucket]\nkind = \"memory\"\n[node]", "comes with a later version"),
        ("[node]", "[log]\nlevel = \"a=b=c\"\n[node]", "error, warn, info"),
        ("[node]", "[recovery]\nkeep_permits = \"1h\"\n[node]", "must lie between \"1d\""),
        ("[node]", "[telemetry]\n[node]", "section `telemetry`: unknown key"),
        ("redis://localhost", "http://localhost", "must start with redis://"),
        ("url = \"postgres://refundd@localhost/payments\"", "", "set REFUNDD_POSTGRES_URL"),
    ] {
        let message = refused(&with(find, put));
        assert!(message.contains(wanted), "{put}\nwanted {wanted}\ngot {message}");
        assert!(message.contains("refundd.toml:"), "it names the place: {message}");
    }
}

#[test]
fn a_password_is_never_shown() {
    for text in [
        with("postgres://refundd@localhost/payments", "psotgres://refundd:hunter2@localhost/payments"),
        with(
            "url = \"postgres://refundd@localhost/payments\"",
            "url = \"postgres://refundd:hunter2@localhost/payments",
        ),
        with("redis://localhost", "http://:hunter2@localhost"),
    ] {
        let message = refused(&text);
        assert!(!message.contains("hunter2"), "{message}");
    }
    let good = parse(&with("postgres://refundd@", "postgres://refundd:hunter2@")).unwrap();
    assert!(!format!("{good:?}").contains("hunter2"));
}

#[test]
fn the_environment_wins_over_a_credential_and_that_over_the_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("postgres-url"), "postgres://from-credential/x\n").unwrap();
    let directory = folder.path().display().to_string();
    let url = |env: &dyn Fn(&str) -> Option<String>| {
        Config::parse(BASE, "refundd.toml", env).unwrap().postgres.url.expose_secret().to_owned()
    };
    assert_eq!(url(&|_| None), "postgres://refundd@localhost/payments");
    let credential = |name: &str| (name == "CREDENTIALS_DIRECTORY").then(|| directory.clone());
    assert_eq!(url(&credential), "postgres://from-credential/x");
    let both = |name: &str| match name {
        "REFUNDD_POSTGRES_URL" => Some("postgres://from-environment/x".to_owned()),
        other => credential(other),
    };
    assert_eq!(url(&both), "postgres://from-environment/x");
}

#[test]
fn unlimited_has_to_be_said() {
    let empty = parse(&with("limits = [\"acme\"]", "limits = []")).unwrap();
    assert!(empty.channels.values().next().unwrap().limits.is_empty());
    let minus_one = parse(&with("permits = 20\nper = \"1s\"", "permits = -1")).unwrap();
    assert!(minus_one.channels.values().next().unwrap().limits.is_empty());
    assert!(minus_one.limits.is_empty());
}

#[test]
fn defaults_shrink_with_a_short_window() {
    let config = parse(&with("per = \"1s\"", "per = \"50ms\"")).unwrap();
    let limit = config.limits.values().next().unwrap();
    assert_eq!(limit.algorithm, Algorithm::FixedWindow { permits: 20, per: Duration::from_millis(50) });
    assert_eq!((limit.lateness, limit.ahead), (Duration::from_millis(5), Duration::from_millis(25)));
}

#[test]
fn the_lease_outlives_the_call_by_default() {
    let config = parse(&with("limits = [\"acme\"]", "limits = [\"acme\"]\ntimeout = \"2m\"")).unwrap();
    let channel = config.channels.values().next().unwrap();
    assert_eq!(channel.lease, Channel::default_lease(Duration::from_mins(2), Duration::from_secs(5)));
    assert!(channel.lease >= channel.timeout + channel.connect_timeout + Channel::LEASE_MARGIN);
}

#[test]
fn only_what_matters_between_nodes_changes_the_digest() {
    let digest = |text: &str| parse(text).unwrap().digest();
    assert_eq!(digest(BASE), digest(&with("name = \"a\"", "name = \"b\"")));
    assert_ne!(digest(BASE), digest(&with("permits = 20", "permits = 21")));
    assert_ne!(digest(BASE), digest(&with("bank.example", "other.example")));
}

#[test]
fn a_reload_names_what_needs_a_restart_and_nothing_else() {
    let old = parse(BASE).unwrap();
    let new = parse(
        &with("permits = 20", "permits = 5")
            .replace("[redis]\nurl = \"redis://localhost\"", "[redis]\nurl = \"redis://other\""),
    )
    .unwrap();
    assert_eq!(old.needs_restart(&new), ["redis.url"]);
    assert!(old.needs_restart(&parse(&with("permits = 20", "permits = 5")).unwrap()).is_empty());
}

//! Checks each requirement by the message that an operator reads.

mod clear_text;
mod limits;
mod unknown;

use std::time::Duration;

use super::{SECOND, complaints, with};
use crate::channel::{Breaker, Channel};
use crate::config::{Config, LogFormat};
use crate::limiter::Algorithm;
use crate::refund::id::ChannelName;
use crate::refund::retry::RetryPolicy;

fn channel_complaints(lines: &str) -> String {
    complaints(&format!("[channel.acme]\nendpoint = \"https://b/\"\nlimits = []\n{lines}\n"))
}

fn channel(config: &Config) -> &Channel {
    &config.channels[&ChannelName::new("acme").unwrap()]
}

#[test]
fn a_key_that_is_left_out_has_its_default() {
    let config = with(
        "[limit.acme]\npermits = 20\nper = \"1s\"\n[channel.acme]\nendpoint = \"http://localhost/\"\nlimits = [\"acme\"]\n",
    );
    assert_eq!(config.http.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.http.max_connections, None);
    assert!(config.node.name.ends_with(&format!("-{}", std::process::id())));
    assert_eq!(config.postgres.connections, 10);
    assert_eq!(config.redis.key_prefix, "refundd");
    assert_eq!(config.redis.clock_tolerance, 5 * SECOND);
    assert_eq!(config.bucket.capacity, 1000);
    assert_eq!(config.log.level, "info");
    assert_eq!(config.recovery.keep_permits, 7 * 86_400 * SECOND);
    let channel = channel(&config);
    assert_eq!(channel.timeout, 10 * SECOND);
    assert_eq!(channel.connect_timeout, 5 * SECOND);
    assert_eq!(channel.lease, 25 * SECOND);
    assert_eq!(channel.max_in_flight, 16);
    assert_eq!(channel.max_backlog, None);
    assert_eq!(channel.retry, RetryPolicy::default());
    assert_eq!(channel.cool_down, 5 * SECOND);
    assert!(channel.authorization.is_none());
    let limit = &channel.limits[0];
    assert_eq!(limit.rule.algorithm, Algorithm::FixedWindow { zone: None });
    assert_eq!((limit.rule.permits, limit.rule.per), (20, SECOND));
    assert_eq!(limit.rule.lateness, Duration::from_millis(20));
    assert_eq!(limit.ahead, Duration::from_millis(50));
}

#[test]
fn a_lease_outlives_the_timeouts() {
    insta::assert_snapshot!(channel_complaints("timeout = \"30s\"\nlease = \"39s\""), @r#"r.toml:9:9: field `channel.acme.lease` = "39s": must be at least 40s, which is timeout (30s) + connect_timeout (5s) + 5s to spare, or a refund would count as unknown while the bank may still answer; raise it, or leave it out"#);
    let fits = with(
        "[channel.acme]\nendpoint = \"http://localhost/\"\nlimits = []\ntimeout = \"30s\"\nlease = \"40s\"\n",
    );
    assert_eq!(channel(&fits).lease, 40 * SECOND);
    assert!(channel_complaints("lease = \"25h\"").contains("at most 1d"));
}

#[test]
fn a_lease_outlives_a_claim_made_ahead_of_its_window() {
    let text = "[limit.acme]\npermits = 1\nper = \"1h\"\nahead = \"10m\"\n\
                [channel.acme]\nendpoint = \"http://localhost/\"\nlimits = [\"acme\"]\n";
    insta::assert_snapshot!(complaints(text), @r#"r.toml:9:10: field `channel.acme.lease` (default "25s"): must be at least 10m 15s, which is timeout (10s) + ahead (10m) + 5s to spare, or a refund would count as unknown while the bank may still answer; set `lease` to at least "10m 15s", or lower `ahead`"#);
    assert_eq!(channel(&with(&format!("{text}lease = \"10m 15s\"\n"))).lease, 615 * SECOND);
    // An inquiry waits for its own limits under the same lease.
    let asks = text.replace("limits = [\"acme\"]", "limits = []")
        + "inquiry = { url = \"http://localhost/{request_id}\", limits = [\"acme\"] }\n";
    assert!(complaints(&asks).contains("must be at least 10m 15s"), "{}", complaints(&asks));
    assert_eq!(channel(&with(&format!("{asks}lease = \"10m 15s\"\n"))).lease, 615 * SECOND);
}

#[test]
fn time_outs_and_counts_have_bounds() {
    insta::assert_snapshot!(channel_complaints(
        "timeout = \"11m\"\nconnect_timeout = \"1ms\"\nmax_in_flight = 10001\nmax_backlog = 0\ncool_down = \"0s\"\n\
         retry = { base = \"10m\", sends = 0 }"
    ), @r#"
    r.toml:8:11: field `channel.acme.timeout` = "11m": must lie between "100ms" and "10m"
    r.toml:9:19: field `channel.acme.connect_timeout` = "1ms": must lie between "10ms" and "10m"
    r.toml:10:17: field `channel.acme.max_in_flight` = 10001: must lie between 1 and 10000
    r.toml:11:15: field `channel.acme.max_backlog` = 0: must be at least 1; leave it out for no bound, and to take nothing more pause the channel
    r.toml:12:13: field `channel.acme.cool_down` = "0s": must lie between "100ms" and "1d"
    r.toml:13:1: field `channel.acme.retry.cap` (default "5m"): must not be shorter than `base`, which is 10m; raise it, or lower `base`
    r.toml:13:33: field `channel.acme.retry.sends` = 0: must lie between 1 and 1000
    "#);
}

#[test]
fn a_bucket_in_memory_needs_no_redis() {
    let text = "[postgres]\nurl = \"postgres://127.0.0.1/payments\"\n[bucket]\nkind = \"memory\"\n";
    let config = Config::parse(text, "r.toml", &super::no_env).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.bucket.kind, crate::bucket::BucketKind::Memory);
}

#[test]
fn permits_are_kept_for_longer_than_any_window() {
    insta::assert_snapshot!(complaints("[limit.acme]\npermits = 1\nper = \"7d\"\n"), @r#"r.toml: field `recovery.keep_permits` (default "7d"): must outlive the longest window, 7d, by 1h: a permit that is deleted earlier could be spent twice; set it to at least "7d 1h""#);
    insta::assert_snapshot!(
        complaints("[recovery]\nkeep_permits = \"1d\"\n[limit.acme]\npermits = 1\nper = \"24h\"\n"), @r#"r.toml:6:16: field `recovery.keep_permits` = "1d": must outlive the longest window, 1d, by 1h: a permit that is deleted earlier could be spent twice; set it to at least "1d 1h""#);
    let kept = with("[recovery]\nkeep_permits = \"25h\"\n[limit.acme]\npermits = 1\nper = \"1d\"\n");
    assert_eq!(kept.recovery.keep_permits, 25 * 3600 * SECOND);
}

#[test]
fn attempts_are_kept_for_ever_or_for_longer_than_they_are_needed() {
    assert_eq!(with("").recovery.keep_attempts, None);
    assert_eq!(
        with("[recovery]\nkeep_attempts = \"400d\"\n").recovery.keep_attempts,
        Some(400 * 86_400 * SECOND)
    );
    insta::assert_snapshot!(complaints("[recovery]\nkeep_attempts = \"29d\"\n"), @r#"r.toml:6:17: field `recovery.keep_attempts` = "29d": must lie between "30d" and "36500d""#);
    insta::assert_snapshot!(complaints("[recovery]\nkeep_permits = \"60d\"\nkeep_attempts = \"61d\"\n"), @r#"r.toml:7:17: field `recovery.keep_attempts` = "61d": must outlive `keep_permits`, 60d, by 2d: `refundd prove` compares permits with attempts; set it to at least "62d", or leave it out to keep them for ever"#);
    insta::assert_snapshot!(
        complaints("[recovery]\nkeep_attempts = \"301d\"\n[channel.acme]\nendpoint = \"http://localhost/\"\nlimits = []\non_unknown = \"resend\"\nkey_retention = \"300d\"\n"),
        @r#"r.toml:6:17: field `recovery.keep_attempts` = "301d": must outlive the longest `key_retention`, 300d, by 2d: until then a refund may be sent again; set it to at least "302d", or leave it out to keep them for ever"#);
}

#[test]
fn events_are_kept_for_ever_or_for_30_days_at_least() {
    assert_eq!(with("").recovery.keep_events, None);
    assert_eq!(with("[recovery]\nkeep_events = \"90d\"\n").recovery.keep_events, Some(90 * 86_400 * SECOND));
    assert_eq!(with("").telemetry.otlp, None);
    insta::assert_snapshot!(complaints("[telemetry]\notlp = \"https://collector.example:4318\"\n"), @r#"r.toml:6:8: field `telemetry.otlp` = "https://collector.example:4318": must be http://, an address of this host, and a port, such as "http://127.0.0.1:4318", without `/v1/traces`: for a collector elsewhere, run one on this host that passes spans on by TLS"#);
    insta::assert_snapshot!(complaints("[recovery]\nkeep_events = \"29d\"\n"), @r#"r.toml:6:15: field `recovery.keep_events` = "29d": must lie between "30d" and "36500d""#);
}

#[test]
fn the_breaker_is_on_unless_the_file_switches_it_off() {
    let of = |line: &str| {
        let config =
            with(&format!("[channel.acme]\nendpoint = \"http://localhost/\"\nlimits = []\n{line}\n"));
        channel(&config).breaker
    };
    assert_eq!(of(""), Some(Breaker::default()));
    assert_eq!(of("breaker = \"off\""), None);
    assert_eq!(of("breaker = false"), None);
    let own = of("breaker = { rejected = 300, probe = \"10s\" }");
    assert_eq!(own, Some(Breaker { rejected: 300, probe: 10 * SECOND, ..Breaker::default() }));
    insta::assert_snapshot!(
        complaints("[channel.acme]\nendpoint = \"http://localhost/\"\nlimits = []\nbreaker = { rejected = 0, unknwon = 5, probe = \"10ms\" }\n[channel.b]\nendpoint = \"http://localhost/\"\nlimits = []\nbreaker = \"on\"\n"),
        @r#"
    r.toml:8:24: field `channel.acme.breaker.rejected` = 0: must lie between 1 and 1000000; to switch the whole breaker off, write `breaker = "off"`
    r.toml:8:27: field `channel.acme.breaker.unknwon`: unknown key; did you mean `unknown`?
    r.toml:8:48: field `channel.acme.breaker.probe` = "10ms": must lie between "1s" and "1d"
    r.toml:12:1: field `channel.b.breaker`: must be a section, `[channel.b.breaker]`, not text
    "#);
}

#[test]
fn a_probe_that_may_overtake_the_one_before_it_is_warned_of() {
    let warnings = |probe: &str| {
        let channel = "[channel.acme]\nendpoint = \"http://localhost/\"\nlimits = []\ntimeout = \"25s\"\n";
        with(&format!("{channel}breaker = {{ probe = \"{probe}\" }}\n")).warnings()
    };
    assert_eq!(warnings("30s"), Vec::<String>::new());
    let short = warnings("29s");
    assert!(short.len() == 1 && short[0].contains("has a `probe` of 29s"), "{short:?}");
}

#[test]
fn an_endpoint_is_http_with_a_host_and_no_password() {
    for (endpoint, requirement) in [
        ("ftp://bank/", "must start with `https://`"),
        ("/refunds", "must start with `https://`"),
        ("bank.example", "must start with `https://`"),
        ("https://", "is not an address"),
        ("https://a b/", "is not an address"),
        ("https://user@bank/", "must not hold a user"),
        ("https://bank/#part", "`#` part"),
    ] {
        let shown = complaints(&format!("[channel.acme]\nendpoint = \"{endpoint}\"\nlimits = []\n"));
        assert!(shown.contains(requirement), "{shown}");
    }
    with("[channel.acme]\nendpoint = \"http://[::1]:9001/refunds?a=b\"\nlimits = []\n");
}

#[test]
fn a_log_level_that_would_silence_everything_is_refused() {
    insta::assert_snapshot!(complaints("[log]\nformat = \"jsn\"\nlevel = \"inof\"\n"), @r#"
    r.toml:6:10: field `log.format` = "jsn": must be "human" or "json"
    r.toml:7:9: field `log.level` = "inof": `inof` is not a level; did you mean `info`?
    "#);
    assert!(complaints("[log]\nlevel = \"refundd\"\n").contains("is not a level"));
    let log = with("[log]\nformat = \"json\"\nlevel = \"warn,refundd::bank=debug\"\n").log;
    assert_eq!(log.format, LogFormat::Json);
}

#[test]
fn names_and_clocks_have_bounds() {
    let text = "[node]\nname = \"a b\"\n[redis]\nurl = \"redis://localhost\"\nkey_prefix = \"a{b}\"\nclock_tolerance = \"1ms\"\n\
                [postgres]\nurl = \"postgres://localhost\"\nconnections = 1\npassword = \"hunter2\"\n";
    insta::assert_snapshot!(super::only_complaints(super::parse(text)), @r#"
    r.toml:2:8: field `node.name` = "a b": must have 1 to 100 characters, none of them blank
    r.toml:5:14: field `redis.key_prefix` = "a{b}": must be 1 to 100 of a-z, A-Z, 0-9, `-`, `_`, `.` and `:`; braces would move keys to other slots of a cluster
    r.toml:6:19: field `redis.clock_tolerance` = "1ms": must lie between "100ms" and "5m"
    r.toml:9:15: field `postgres.connections` = 1: must lie between 2 and 1000
    r.toml:10:1: field `postgres.password`: a password does not belong in this file; name a file with `password_file`
    "#);
}

#[test]
fn a_ca_file_contains_whole_certificates_and_belongs_to_an_https_address() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let root = rcgen::generate_simple_self_signed(["bank".to_owned()]).unwrap().cert.pem();
    write("whole.pem", &format!("a comment\n{root}{root}"));
    write("other.pem", &root);
    write("cut.pem", &root[..200]);
    write("key.pem", &rcgen::KeyPair::generate().unwrap().serialize_pem());
    write("empty.pem", "");
    let file = folder.path().join("r.toml");
    let parse = |endpoint: &str, ca_file: &str| {
        let text = format!(
            "[postgres]\nurl = \"postgres://localhost\"\n[redis]\nurl = \"redis://localhost\"\n\
             [channel.acme]\nendpoint = \"{endpoint}\"\nlimits = []\nca_file = \"{ca_file}\"\n"
        );
        Config::parse(&text, file.to_str().unwrap(), &|_| None).map_err(|error| error.to_string())
    };
    let config = parse("https://b/", "whole.pem").unwrap();
    assert_eq!(channel(&config).roots.as_ref().unwrap().0.len(), 2);
    let shown = Config::public_settings(channel(&config))["ca_file"].to_string();
    assert!(shown.starts_with("\"2 certificates, "), "{shown}");
    assert_ne!(config.digest(), parse("https://b/", "other.pem").unwrap().digest());
    for (ca_file, requirement) in [
        ("cut.pem", "no list of certificates"),
        ("key.pem", "no list of certificates"),
        ("empty.pem", "no list of certificates"),
        ("gone.pem", "cannot be read: No such file"),
    ] {
        let complaint = parse("https://b/", ca_file).unwrap_err();
        assert!(complaint.contains(requirement), "{complaint}");
    }
    assert!(
        parse("http://localhost/", "whole.pem")
            .unwrap_err()
            .contains("no address of this section starts with")
    );
}

#[test]
fn an_account_is_a_plain_name_and_belongs_to_the_channels_address() {
    let of = |lines: &str| {
        with(&format!("[channel.acme]\nendpoint = \"https://b/refunds?key=hunter2\"\nlimits = []\n{lines}\n"))
    };
    let longest = "a".repeat(64);
    for name in ["merchant-17", "M", "0", "Acme_EU.live", &longest] {
        let config = of(&format!("account = \"{name}\""));
        let channel = channel(&config);
        assert_eq!(channel.bank_address().endpoint, format!("https://b/refunds (account {name})"));
        assert_eq!(Config::public_settings(channel)["account"], name);
    }
    let none = of("");
    assert_eq!(channel(&none).bank_address().endpoint, "https://b/refunds");
    assert_eq!(Config::public_settings(channel(&none)).get("account"), None);
    for (name, requirement) in [
        ("", "must be 1 to 64 of"),
        ("merchant 17", "must be 1 to 64 of"),
        ("Bearer hunter2", "must be 1 to 64 of"),
        ("merchant(17)", "must be 1 to 64 of"),
        ("h\u{e4}ndler", "must be 1 to 64 of"),
        ("a\\nb", "must be 1 to 64 of"),
        (&"a".repeat(65), "must be 1 to 64 of"),
        ("4111111111111111", "looks like a card number"),
        ("4111-1111-1111-1111", "looks like a card number"),
    ] {
        let complaint = channel_complaints(&format!("account = \"{name}\""));
        assert!(
            complaint.starts_with("r.toml:8:11: field `channel.acme.account` = \"****\": "),
            "{complaint}"
        );
        assert!(complaint.contains(requirement) && complaint.lines().count() == 1, "{complaint}");
    }
    let number = channel_complaints("account = 17");
    assert!(number.contains("field `channel.acme.account` = 17: must be text in quotes"), "{number}");
}

#[test]
fn the_file_of_docker_compose_meets_every_requirement() {
    let text = include_str!("../../../config/compose/refundd.toml");
    let environment = |name: &str| match name {
        "REFUNDD_POSTGRES_URL" => Some("postgres://refundd_app:secret@postgres:5432/payments".into()),
        "REFUNDD_REDIS_URL" => Some("redis://refundd:secret@redis:6379".into()),
        _ => None,
    };
    Config::parse(text, "refundd.toml", &environment).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn half_a_permit_is_answered_by_a_longer_time() {
    insta::assert_snapshot!(
        complaints("[limit.acme]\npermits = 0.5\nper = \"1s\"\n"), @r#"r.toml:6:11: field `limit.acme.permits` = 0.5: must be a whole number, not a number with a fraction; make `per` longer instead: 0.5 in "1s" are permits = 1 in per = "2s""#);
}

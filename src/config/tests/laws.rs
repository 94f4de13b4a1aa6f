//! Checks each law by the message that an operator reads.

use std::time::Duration;

use secrecy::ExposeSecret;

use super::{SECOND, complaints, with};
use crate::channel::{Channel, RuleOutcome};
use crate::config::{Config, LogFormat};
use crate::limiter::{Algorithm, Placement};
use crate::refund::OnUnknown;
use crate::refund::id::{ChannelName, LimitName};
use crate::refund::retry::RetryPolicy;

fn channel_complaints(lines: &str) -> String {
    complaints(&format!("[channel.acme]\nendpoint = \"https://b/\"\nlimits = []\n{lines}\n"))
}

fn limit_complaints(lines: &str) -> String {
    complaints(&format!("[limit.acme]\n{lines}\n"))
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
fn limits_have_to_be_named_and_to_exist() {
    insta::assert_snapshot!(complaints(
        "[limit.acme]\npermits = 1\nper = \"1s\"\n\
         [channel.a]\nendpoint = \"http://localhost/\"\n\
         [channel.b]\nendpoint = \"http://localhost/\"\nlimits = [\"acne\"]\n\
         [channel.c]\nendpoint = \"http://localhost/\"\nlimits = [\"acme\", \"acme\"]\n\
         [channel.d]\nlimits = [\"daily-of-elsewhere\"]\n"
    ), @r#"
    r.toml:8:10: field `channel.a.limits`: missing; no channel should be unlimited by accident: name the limits that must all grant, or say `limits = []` for unlimited
    r.toml:12:10: field `channel.b.limits` = ["acne"]: there is no `[limit.acne]`; did you mean `acme`?
    r.toml:15:10: field `channel.c.limits` = ["acme", "acme"]: names `acme` twice
    r.toml:16:10: field `channel.d.endpoint`: missing; it is the address refunds are POSTed to
    r.toml:17:10: field `channel.d.limits` = ["daily-of-elsewhere"]: there is no `[limit.daily-of-elsewhere]`; add it, or use one of `acme`
    "#);
}

#[test]
fn minus_one_permit_is_no_limit() {
    let config = with(
        "[limit.free]\npermits = -1\n[limit.b]\npermits = 1\nper = \"1s\"\n[limit.a]\npermits = 1\nper = \"1s\"\n\
         [channel.acme]\nendpoint = \"http://localhost/\"\nlimits = [\"b\", \"free\", \"a\"]\n",
    );
    let names: Vec<&str> = channel(&config).limits.iter().map(|limit| limit.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(!config.limits.contains_key(&LimitName::new("free").unwrap()));
}

#[test]
fn a_limit_has_permits_and_a_window() {
    insta::assert_snapshot!(limit_complaints(""), @r#"
    r.toml:5:8: field `limit.acme.permits`: missing; it says how many first bytes fit in each `per`; -1 is unlimited
    r.toml:5:8: field `limit.acme.per`: missing; it says how long a window is, such as "1s"
    "#);
    insta::assert_snapshot!(limit_complaints("permits = 0\nper = \"1s\""), @"r.toml:6:11: field `limit.acme.permits` = 0: must be a whole number from 1 to 2147483647, or -1 for unlimited; to send nothing, pause the channel");
    insta::assert_snapshot!(limit_complaints("permits = -2\nper = \"32d\""), @r#"
    r.toml:6:11: field `limit.acme.permits` = -2: must be a whole number from 1 to 2147483647, or -1 for unlimited; to send nothing, pause the channel
    r.toml:7:7: field `limit.acme.per` = "32d": must lie between "10ms" and "31d"
    "#);
    insta::assert_snapshot!(limit_complaints("permits = 1\nper = \"9ms\""), @r#"r.toml:7:7: field `limit.acme.per` = "9ms": must lie between "10ms" and "31d""#);
    insta::assert_snapshot!(limit_complaints("permits = 1\nper = \"1000000100ns\""), @r#"r.toml:7:7: field `limit.acme.per` = "1000000100ns": must be whole microseconds, which is how Redis counts"#);
}

#[test]
fn each_algorithm_has_its_own_numbers_and_no_others() {
    let rule = |lines: &str| {
        let config = with(&format!("[limit.acme]\npermits = 20\nper = \"1s\"\n{lines}\n"));
        config.limits.values().next().unwrap().rule.to_string()
    };
    assert_eq!(
        rule("algorithm = \"paced\""),
        r#"{"algorithm":"paced","permits":20,"per_us":1000000,"lateness_us":20000}"#
    );
    assert_eq!(
        rule("algorithm = \"sliding_log\""),
        r#"{"algorithm":"sliding_log","permits":20,"per_us":1000000,"lateness_us":20000}"#
    );
    assert_eq!(
        rule("algorithm = \"sliding_window\""),
        r#"{"algorithm":"sliding_window","permits":20,"per_us":1000000,"lateness_us":20000,"segments":10}"#
    );
    assert_eq!(
        rule("algorithm = \"token_bucket\"\nburst = 7"),
        r#"{"algorithm":"token_bucket","permits":20,"per_us":1000000,"lateness_us":20000,"burst":7}"#
    );
    insta::assert_snapshot!(limit_complaints("algorithm = \"fixed-window\"\npermits = 1\nper = \"1s\"\nburst = 3"), @r##"r.toml:6:13: field `limit.acme.algorithm` = "fixed-window": no such algorithm; did you mean `fixed_window`?"##);
    insta::assert_snapshot!(limit_complaints("algorithm = \"paced\"\npermits = 1\nper = \"1s\"\nburst = 3\nsegments = 4\ntime_zone = \"UTC\""), @r##"
    r.toml:9:9: field `limit.acme.burst` = 3: belongs to `token_bucket`, and this limit is `paced`; leave it out
    r.toml:10:12: field `limit.acme.segments` = 4: belongs to `sliding_window`, and this limit is `paced`; leave it out
    r.toml:11:13: field `limit.acme.time_zone` = "UTC": belongs to `fixed_window`, and this limit is `paced`; leave it out
    "##);
    insta::assert_snapshot!(limit_complaints("algorithm = \"token_bucket\"\npermits = 1\nper = \"1s\""), @r##"r.toml:5:8: field `limit.acme.burst`: missing; it says how many requests may start at once after a quiet time"##);
    insta::assert_snapshot!(limit_complaints("algorithm = \"paced\"\npermits = 20000\nper = \"1s\"\nlateness = \"1ms\""), @r##"
    r.toml:7:11: field `limit.acme.permits` = 20000: must be at most one in 100us, for `paced` counts in whole microseconds; use "fixed_window"
    r.toml:9:12: field `limit.acme.lateness` = "1ms": must be at least 2ms: a permit of `paced` is good for half of it
    "##);
    insta::assert_snapshot!(limit_complaints("algorithm = \"sliding_log\"\npermits = 100001\nper = \"1h\""), @r##"r.toml:7:11: field `limit.acme.permits` = 100001: must be at most 100000, for each of them may be remembered; use "sliding_window""##);
}

#[test]
fn a_day_may_begin_at_the_banks_midnight() {
    let config = with("[limit.acme]\npermits = 20\nper = \"1d\"\ntime_zone = \"Europe/Berlin\"\n");
    let rule = &config.limits.values().next().unwrap().rule;
    assert_eq!(
        rule.to_string(),
        r#"{"algorithm":"fixed_window","permits":20,"per_us":86400000000,"lateness_us":20000,"zone":"Europe/Berlin"}"#
    );
    insta::assert_snapshot!(limit_complaints("permits = 1\nper = \"1h\"\ntime_zone = \"Europe/Berlin\""), @r##"r.toml:8:13: field `limit.acme.time_zone` = "Europe/Berlin": needs `per` = "1d", for it says when a day begins, and `per` is 1h"##);
    insta::assert_snapshot!(limit_complaints("permits = 1\nper = \"1d\"\ntime_zone = \"Mars/Olympus\""), @r##"r.toml:8:13: field `limit.acme.time_zone` = "Mars/Olympus": no such time zone; use a name such as "Europe/Berlin""##);
}

#[test]
fn a_channel_has_one_paced_limit_at_most() {
    let paced = |name: &str| format!("[limit.{name}]\nalgorithm = \"paced\"\npermits = 1\nper = \"1s\"\n");
    let text = format!(
        "{}{}[channel.acme]\nendpoint = \"https://b/\"\nlimits = [\"a\", \"b\"]\n",
        paced("a"),
        paced("b")
    );
    assert!(complaints(&text).contains("more than one paced limit, `a`, `b`"), "{}", complaints(&text));
}

#[test]
fn a_bucket_in_memory_needs_no_redis() {
    let text = "[postgres]\nurl = \"postgres://127.0.0.1/payments\"\n[bucket]\nkind = \"memory\"\n";
    let config = Config::parse(text, "r.toml", &super::no_env).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.bucket.kind, crate::config::BucketKind::Memory);
}

#[test]
fn a_local_share_is_a_whole_number_of_permits() {
    insta::assert_snapshot!(limit_complaints("permits = 19\nper = \"1s\"\nplacement = \"local_share\"\nnodes = 20"), @r##"r.toml:9:9: field `limit.acme.nodes` = 20: must be at most `permits`, and at most `burst`: each node's share is a whole number, and at least 1"##);
    insta::assert_snapshot!(limit_complaints("permits = 19\nper = \"1s\"\nnodes = 2"), @r##"r.toml:8:9: field `limit.acme.nodes` = 2: belongs to `placement` = "local_share"; leave it out"##);
    insta::assert_snapshot!(limit_complaints("permits = 19\nper = \"1s\"\nplacement = \"local\""), @r##"r.toml:8:13: field `limit.acme.placement` = "local": must be "shared" or "local_share""##);
    let config = with("[limit.acme]\npermits = 20\nper = \"1s\"\nplacement = \"local_share\"\nnodes = 20\n");
    assert_eq!(config.limits.values().next().unwrap().placement, Placement::LocalShare { nodes: 20 });
}

#[test]
fn lateness_and_ahead_fit_into_half_a_window() {
    insta::assert_snapshot!(limit_complaints("permits = 1\nper = \"40ms\""), @r#"r.toml:5:8: field `limit.acme.lateness` (default "20ms"): must be less than half of `per`, which is 40ms, or hardly any of a window could be used; set `lateness` below "20ms", or make the window longer"#);
    insta::assert_snapshot!(
        limit_complaints("permits = 1\nper = \"1s\"\nlateness = \"500ms\"\nahead = \"501ms\""), @r#"
    r.toml:8:12: field `limit.acme.lateness` = "500ms": must be less than half of `per`, which is 1s, or hardly any of a window could be used; set `lateness` below "500ms", or make the window longer
    r.toml:9:9: field `limit.acme.ahead` = "501ms": must be at most half of `per`, which is 1s; set it to "500ms" or less
    "#);
    let short = with("[limit.acme]\npermits = 1\nper = \"60ms\"\n");
    assert_eq!(short.limits.values().next().unwrap().ahead, Duration::from_millis(30));
    let edge = with("[limit.acme]\npermits = 1\nper = \"1s\"\nlateness = \"499999us\"\nahead = \"500ms\"\n");
    assert_eq!(edge.limits.values().next().unwrap().ahead, Duration::from_millis(500));
}

#[test]
fn permits_are_kept_for_longer_than_any_window() {
    insta::assert_snapshot!(limit_complaints("permits = 1\nper = \"7d\""), @r#"r.toml: field `recovery.keep_permits` (default "7d"): must outlive the longest window, 7d, by 1h: a permit that is deleted earlier could be spent twice; set it to at least "7d 1h""#);
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
fn an_endpoint_is_http_with_a_host_and_no_password() {
    for (endpoint, law) in [
        ("ftp://bank/", "must start with `https://`"),
        ("/refunds", "must start with `https://`"),
        ("bank.example", "must start with `https://`"),
        ("https://", "is not an address"),
        ("https://a b/", "is not an address"),
        ("https://user@bank/", "must not hold a user"),
        ("https://bank/#part", "`#` part"),
    ] {
        let shown = complaints(&format!("[channel.acme]\nendpoint = \"{endpoint}\"\nlimits = []\n"));
        assert!(shown.contains(law), "{shown}");
    }
    with("[channel.acme]\nendpoint = \"http://[::1]:9001/refunds?a=b\"\nlimits = []\n");
}

#[test]
fn each_policy_for_unknown_refunds_has_the_keys_it_needs() {
    insta::assert_snapshot!(channel_complaints("on_unknown = \"inquire\""), @r#"r.toml:8:14: field `channel.acme.on_unknown` = "inquire": needs `inquiry`, which says how refundd asks this bank what became of a refund"#);
    insta::assert_snapshot!(channel_complaints("on_unknown = \"resend\""), @r#"r.toml:8:14: field `channel.acme.on_unknown` = "resend": needs `key_retention`, how long this bank recognises an `Idempotency-Key`: after that a repeat is a second refund"#);
    insta::assert_snapshot!(channel_complaints("on_unknown = \"reviw\"\nkey_retention = \"25s\""), @r#"
    r.toml:8:14: field `channel.acme.on_unknown` = "reviw": no such policy; did you mean `review`?
    r.toml:9:17: field `channel.acme.key_retention` = "25s": must be longer than one lease (25s), or no refund could ever be sent again in time
    "#);
    let ways = |lines: &str| {
        let config =
            with(&format!("[channel.acme]\nendpoint = \"http://localhost/\"\nlimits = []\n{lines}\n"));
        channel(&config).clone()
    };
    assert_eq!(ways("").on_unknown, OnUnknown::Review);
    let resends = ways("on_unknown = \"resend\"\nkey_retention = \"24h\"");
    assert_eq!(resends.on_unknown, OnUnknown::Resend { key_retention: 24 * 3600 * SECOND });
    assert_eq!(resends.resend_within(), Some((24 * 3600 - 25) * SECOND), "less one lease");
    let inquires = ways("on_unknown = \"inquire\"\ninquiry = { url = \"http://localhost/{request_id}\" }");
    assert_eq!(inquires.on_unknown, OnUnknown::Inquire);
    let inquiry = inquires.inquiry.unwrap();
    assert_eq!((inquiry.trust.not_found_is_final, inquiry.trust.grace), (false, 30 * SECOND));
    assert_eq!((inquiry.status.as_str(), inquiry.limits.as_ref()), ("/status", None));
    assert_eq!(inquiry.status_texts.pending, ["pending"]);
    assert_eq!(inquiry.url_of("k").unwrap(), "http://localhost/k");
}

#[test]
fn an_inquiry_is_an_address_with_a_key_and_status_texts_that_mean_one_thing() {
    let inquiry = |inner: &str| channel_complaints(&format!("inquiry = {{ {inner} }}"));
    insta::assert_snapshot!(inquiry(
        "url = \"https://b/refunds\", grace = \"0s\", status = \"status\", limits = [\"none\"], pending = [\"rejected\"], final = true"
    ), @r#"
    r.toml:8:1: field `channel.acme.inquiry.rejected` (default ["rejected"]): and the other lists name `rejected` twice: a word means one thing
    r.toml:8:19: field `channel.acme.inquiry.url` = "https://b/refunds": must hold `{request_id}` where the refund's key belongs, such as "https://gateway.example/acme/refunds/{request_id}"
    r.toml:8:48: field `channel.acme.inquiry.grace` = "0s": must lie between "1s" and "1d"
    r.toml:8:63: field `channel.acme.inquiry.status` = "status": must be a JSON pointer (RFC 6901): empty, or each name after a `/`, such as "/result/code"
    r.toml:8:82: field `channel.acme.inquiry.limits` = ["none"]: there is no `[limit.none]`, nor any other; add it
    r.toml:8:116: field `channel.acme.inquiry.final`: unknown key; known here: `url`, `authorization_file`, `authorization_credential`, `not_found_is_final`, `grace`, `limits`, `status`, `succeeded`, `pending`, `rejected`, `not_found`
    "#);
    for (url, law) in [
        ("http://localhost/{request_id}", "must start with `https://` like the `endpoint`"),
        ("https://{request_id}/", "not in the host"),
        ("https://u:hunter2@b/{request_id}", "must not hold a user"),
        ("{request_id}", "must start with `https://`"),
    ] {
        let shown = inquiry(&format!("url = \"{url}\""));
        assert!(shown.contains(law) && !shown.contains("hunter2"), "{shown}");
    }
    assert!(inquiry("").contains("missing; it is the address"), "{}", inquiry(""));
    for (not_found, law) in [
        ("pointer = \"/error\"", "it is the bank's \"not found\""),
        ("equals = \"x\"", "it says where"),
        ("pointer = \"error\", equals = \"x\"", "must be a JSON pointer"),
        ("pointer = \"/error\", equals = \"\"", "must not be empty"),
        ("pointer = \"/status\", equals = \"pending\"", "a word means one thing"),
        ("pointer = \"/error\", word = \"x\"", "unknown key"),
    ] {
        let shown = inquiry(&format!("url = \"https://b/{{request_id}}\", not_found = {{ {not_found} }}"));
        assert!(shown.contains(law), "{shown}");
    }
    let own = with(
        "[limit.asks]\npermits = 1\nper = \"1s\"\n[channel.acme]\nendpoint = \"http://localhost/\"\nlimits = []\n\
         inquiry = { url = \"http://localhost/?key={request_id}\", limits = [\"asks\"] }\nbank_ref = \"/data/id\"\n",
    );
    insta::assert_snapshot!(channel_complaints("bank_ref = \"\""), @r#"r.toml:8:12: field `channel.acme.bank_ref` = "": must name a place inside the answer, such as "/id""#);
    let channel = channel(&own);
    let limits = channel.inquiry.as_ref().unwrap().limits.as_ref().unwrap();
    assert_eq!(limits.iter().map(|limit| limit.name.as_str()).collect::<Vec<_>>(), ["asks"]);
    assert_eq!(channel.bank_ref.as_deref(), Some("/data/id"));
}

#[test]
fn answer_rules_are_whole_known_and_reachable() {
    let rule = |lines: &str| format!("[[channel.acme.verdict]]\n{lines}\n");
    insta::assert_snapshot!(channel_complaints(&[
        rule("status = 99\noutcome = \"rejectd\""),
        rule("status = 200\npointer = \"/code\"\noutcome = \"rejected\""),
        rule("status = 200\npointer = \"code\"\nequals = \"51\"\noutcome = \"rejected\""),
        rule("status = 409\noutcome = \"review\""),
        rule("status = 409\npointer = \"/code\"\nequals = \"51\"\noutcome = \"rejected\""),
        rule("outcme = \"review\""),
    ].concat()), @r#"
    r.toml:9:10: field `channel.acme.verdict#1.status` = 99: must lie between 200 and 599
    r.toml:10:11: field `channel.acme.verdict#1.outcome` = "rejectd": no such outcome; did you mean `rejected`?
    r.toml:11:1: `[[channel.acme.verdict]]` number 2: `pointer` and `equals` go together: give both, or neither to match any body
    r.toml:17:11: field `channel.acme.verdict#3.pointer` = "code": must be a JSON pointer (RFC 6901): empty, or each name after a `/`, such as "/result/code"
    r.toml:23:1: `[[channel.acme.verdict]]` number 5: is never reached: an earlier rule for status 409 already matches the same answers; put this rule first, or remove it
    r.toml:28:1: field `channel.acme.verdict#6.status`: missing; it is the HTTP status that the rule matches
    r.toml:28:1: field `channel.acme.verdict#6.outcome`: missing; use one of `succeeded`, `accepted`, `rejected`, `not_executed`, `asked_to_wait`, `unknown`, `review`
    r.toml:29:1: field `channel.acme.verdict#6.outcme`: unknown key; did you mean `outcome`?
    "#);
    let config = with(&format!(
        "[channel.acme]\nendpoint = \"http://localhost/\"\nlimits = []\n{}{}",
        rule("status = 200\npointer = \"/code\"\nequals = \"51\"\noutcome = \"rejected\""),
        rule("status = 200\noutcome = \"not_executed\""),
    ));
    let rules = &channel(&config).answer_rules;
    assert_eq!(rules[0].body, Some(("/code".to_owned(), "51".to_owned())));
    assert_eq!(rules[1].outcome, RuleOutcome::NotExecuted);
}

#[test]
fn a_rule_with_a_faulty_condition_is_complained_about_once_and_hides_no_other_rule() {
    let rules = |first: &str, second: &str| {
        let rule =
            |lines: &str| format!("[[channel.acme.verdict]]\nstatus = 200\n{lines}\noutcome = \"review\"\n");
        channel_complaints(&[rule(first), rule(second)].concat())
    };
    let (any_body, one_text) = ("", "pointer = \"/code\"\nequals = \"51\"");
    insta::assert_snapshot!(rules("pointer = 7\nequals = \"51\"", one_text), @"r.toml:10:11: field `channel.acme.verdict#1.pointer` = 7: must be text in quotes, not a whole number");
    insta::assert_snapshot!(rules(any_body, "pointer = \"/code\"\nequals = 51"), @"r.toml:15:10: field `channel.acme.verdict#2.equals` = 51: must be text in quotes, not a whole number");
    insta::assert_snapshot!(rules("points = \"/code\"", one_text), @"r.toml:10:1: field `channel.acme.verdict#1.points`: unknown key; did you mean `pointer`?");
    insta::assert_snapshot!(rules(one_text, one_text), @"r.toml:13:1: `[[channel.acme.verdict]]` number 2: is never reached: an earlier rule for status 200 already matches the same answers; put this rule first, or remove it");
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
    for (ca_file, law) in [
        ("cut.pem", "no list of certificates"),
        ("key.pem", "no list of certificates"),
        ("empty.pem", "no list of certificates"),
        ("gone.pem", "cannot be read: No such file"),
    ] {
        let complaint = parse("https://b/", ca_file).unwrap_err();
        assert!(complaint.contains(law), "{complaint}");
    }
    assert!(
        parse("http://localhost/", "whole.pem")
            .unwrap_err()
            .contains("no address of this channel starts with")
    );
}

fn servers(postgres: &str, redis: &str) -> Result<Config, crate::config::ConfigError> {
    super::parse(&format!("[postgres]\n{postgres}\n[redis]\n{redis}\n"))
}

#[test]
fn postgres_on_another_host_needs_verify_full_or_a_word_of_the_operator() {
    let of = |lines: &str| servers(lines, "url = \"redis://localhost\"");
    insta::assert_snapshot!(super::only_complaints(of("url = \"postgres://u:hunter2@db/p\"")), @r##"r.toml:2:7: field `postgres.url` = "postgres://u:****@db/p": leads to another host, `db`, and anyone on the way could read and change what is sent; set `tls = "verify-full"` in `[postgres]`, or write `?sslmode=verify-full` at the end of the address, or, if you trust every network on the way, set `plain = "accepted"` in `[postgres]`"##);
    for (lines, sound) in [
        ("url = \"postgres://u:hunter2@db/p?sslmode=require\"", false),
        ("url = \"postgres://u:hunter2@db/p?sslmode=verify-ca\"", false),
        ("url = \"postgres://u:hunter2@db/p?hostaddr=203.0.113.7\"", false),
        ("url = \"postgres://u:hunter2@db/p?sslmode=verify-full\"", true),
        ("url = \"postgres://u:hunter2@db/p\"\ntls = \"verify-full\"", true),
        ("url = \"postgres://u:hunter2@db/p\"\nplain = \"accepted\"", true),
        ("url = \"postgres://u:hunter2@db/p\"\nplain = \"yes\"", false),
        ("url = \"postgres://u:hunter2@db/p\"\ntls = \"require\"", false),
        ("url = \"postgres://u:hunter2@db/p?sslmode=disable\"\ntls = \"verify-full\"", false),
        ("url = \"postgres:///p?host=/run/postgresql\"", true),
        ("url = \"postgres://u@[::1]/p\"", true),
    ] {
        let read = of(lines);
        assert_eq!(read.is_ok(), sound, "{lines}");
        assert!(!read.is_err_and(|error| error.to_string().contains("hunter2")), "{lines}");
    }
    let url = |lines: &str| of(lines).unwrap().postgres.url.expose_secret().to_owned();
    assert_eq!(
        url("url = \"postgres://db/p\"\ntls = \"verify-full\""),
        "postgres://db/p?sslmode=verify-full"
    );
    let named = "url = \"postgres://db/p?sslrootcert=/ca\"\ntls = \"verify-full\"";
    assert_eq!(url(named), "postgres://db/p?sslrootcert=/ca&sslmode=verify-full");
}

#[test]
fn redis_on_another_host_needs_tls_or_a_word_of_the_operator() {
    let of = |lines: &str| servers("url = \"postgres://localhost\"", lines);
    insta::assert_snapshot!(super::only_complaints(of("url = \"redis://:hunter2@cache\"")), @r##"r.toml:4:7: field `redis.url` = "redis://:****@cache": leads to another host, `cache`, and anyone on the way could read and change what is sent; use TLS with a checked certificate: `rediss://`, `rediss+sentinel://` or `rediss+cluster://`, or, if you trust every network on the way, set `plain = "accepted"` in `[redis]`"##);
    for (lines, sound) in [
        ("url = \"valkey://cache\"", false),
        ("url = \"rediss://cache/#insecure\"", false),
        ("url = \"redis+sentinel://127.0.0.1,cache/main\"", false),
        ("url = \"redis-cluster://127.0.0.1,cache\"", false),
        ("url = \"rediss://cache\"", true),
        ("url = \"rediss+sentinel://one,two/main\"", true),
        ("url = \"rediss-cluster://one,two\"", true),
        ("url = \"redis+sentinel://127.0.0.1,[::1]/main\"", true),
        ("url = \"unix:///run/redis.sock\"", true),
        ("url = \"redis://cache\"\nplain = \"accepted\"", true),
    ] {
        assert_eq!(of(lines).is_ok(), sound, "{lines}");
    }
    // The law holds for an address from elsewhere, too.
    let env = |name: &str| match name {
        "REFUNDD_POSTGRES_URL" => Some("postgres://u:hunter2@db".to_owned()),
        "REFUNDD_REDIS_URL" => Some("redis://:hunter3@cache".to_owned()),
        _ => None,
    };
    let shown = super::only_complaints(Config::parse("", "r.toml", &env));
    assert!(shown.contains("`REFUNDD_POSTGRES_URL`: leads to another host, `db`"), "{shown}");
    assert!(shown.contains("`REFUNDD_REDIS_URL`: leads to another host, `cache`"), "{shown}");
    assert!(!shown.contains("hunter"), "{shown}");
}

#[test]
fn a_bank_on_another_host_needs_tls_or_a_word_of_the_operator() {
    let of = |endpoint: &str, more: &str| {
        let text =
            format!("{}[channel.acme]\nendpoint = \"{endpoint}\"\nlimits = []\n{more}", super::SERVERS);
        super::parse(&text)
    };
    let inquires = "inquiry = { url = \"http://bank.example/{request_id}\" }\n";
    insta::assert_snapshot!(super::only_complaints(of("http://bank.example/?key=hunter2", inquires)), @r##"
    r.toml:6:12: field `channel.acme.endpoint` = "http://bank.example/?****": would send refunds and the `Authorization` header to another host, `bank.example`, in clear text; use `https://`, or, if you trust every network on the way, set `plain_http = "accepted"` in the channel
    r.toml:8:19: field `channel.acme.inquiry.url` = "http://bank.example/{request_id}": would send refunds and the `Authorization` header to another host, `bank.example`, in clear text; use `https://`, or, if you trust every network on the way, set `plain_http = "accepted"` in the channel
    "##);
    let accepted = "plain_http = \"accepted\"\n";
    assert!(of("http://bank.example/", &format!("{inquires}{accepted}")).is_ok());
    assert!(of("http://127.0.0.1:9000/", "").is_ok());
    assert!(of("http://127.0.0.1.example/", "").is_err());
    assert!(of("https://bank.example/", "").is_ok());
}

#[test]
fn the_file_of_docker_compose_keeps_every_law() {
    let text = include_str!("../../../config/compose/refundd.toml");
    Config::parse(text, "refundd.toml", &super::no_env).unwrap_or_else(|error| panic!("{error}"));
}

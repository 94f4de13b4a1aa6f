//! The requirements of `[limit.NAME]`, and of the channels that name limits.

use std::time::Duration;

use super::channel;
use crate::config::tests::{SERVERS, complaints, parse, with};
use crate::limiter::Placement;
use crate::refund::id::LimitName;

fn limit_complaints(lines: &str) -> String {
    complaints(&format!("[limit.acme]\n{lines}\n"))
}

#[test]
fn a_channel_has_at_most_so_many_limits_as_the_journal_can_name() {
    let names: Vec<String> = (0..=100).map(|nth| format!("l{nth}")).collect();
    let file = |names: &[String]| {
        let limits: Vec<String> =
            names.iter().map(|name| format!("[limit.{name}]\npermits = 1\nper = \"1s\"\n")).collect();
        format!("{}[channel.a]\nendpoint = \"http://localhost/\"\nlimits = {names:?}\n", limits.concat())
    };
    parse(&format!("{SERVERS}{}", file(&names[..100]))).unwrap();
    assert!(complaints(&file(&names)).contains("names more than 100 limits"));
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
fn a_local_share_is_a_whole_number_of_permits() {
    insta::assert_snapshot!(limit_complaints("permits = 19\nper = \"1s\"\nplacement = \"local_share\"\nnodes = 20"), @r##"r.toml:9:9: field `limit.acme.nodes` = 20: must be at most `permits`, and at most `burst`: each node's share is a whole number, and at least 1"##);
    insta::assert_snapshot!(limit_complaints("permits = 19\nper = \"1s\"\nnodes = 2"), @r##"r.toml:8:9: field `limit.acme.nodes` = 2: belongs to `placement` = "local_share"; leave it out"##);
    insta::assert_snapshot!(limit_complaints("permits = 19\nper = \"1s\"\nplacement = \"local\""), @r##"r.toml:8:13: field `limit.acme.placement` = "local": must be "shared" or "local_share""##);
    let strict = "algorithm = \"paced\"\ngap = \"strict\"\npermits = 20\nper = \"1s\"\n\
                  placement = \"local_share\"\nnodes = ";
    insta::assert_snapshot!(limit_complaints(&format!("{strict}2")), @r##"r.toml:10:13: field `limit.acme.placement` = "local_share": keeps no gap between the requests of two nodes, and `gap` is "strict"; leave `placement` and `nodes` out, or set `nodes` = 1 or `gap` = "even""##);
    let one = with(&format!("[limit.acme]\n{strict}1\n"));
    assert_eq!(one.limits.values().next().unwrap().placement, Placement::LocalShare { nodes: 1 });
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
fn an_ahead_beyond_the_tolerance_of_clocks_is_warned_of() {
    let warnings = |ahead: &str| {
        let config = with(&format!(
            "[limit.acme]\npermits = 1\nper = \"1h\"\nahead = \"{ahead}\"\n\
             [channel.acme]\nendpoint = \"http://localhost/\"\nlimits = [\"acme\"]\nlease = \"1h\"\n"
        ));
        config.warnings()
    };
    assert_eq!(warnings("5s"), Vec::<String>::new());
    let long = warnings("10m");
    assert!(long.len() == 1 && long[0].contains("limit `acme` has an `ahead` of 10m"), "{long:?}");
}

#[test]
fn channels_that_share_a_limit_and_get_its_permits_by_another_ahead_are_warned_of() {
    let warnings = |bank: &str, spread: &str, of_slow: &str| {
        let config = with(&format!(
            "[limit.bank]\npermits = 100\nper = \"1s\"\n{bank}\n[limit.spread]\npermits = 9\nper = \"40ms\"\nlateness = \"10ms\"\n{spread}\n\
             [channel.acme]\nendpoint = \"http://localhost/\"\nlimits = [\"bank\"]\n\
             [channel.slow]\nendpoint = \"http://localhost/\"\nlimits = [{of_slow}]\n"
        ));
        config.warnings()
    };
    let uneven = warnings("", "", "\"bank\", \"spread\"");
    assert_eq!(
        uneven,
        [
            "channel `slow` may stand still while channel `acme` uses up limit `bank`, which both have: it gets permits at most 20ms \
             ahead, by limit `spread`, and the other 50ms ahead, by limit `bank`; set the `ahead` of `bank` to 20ms"
        ]
    );
    assert_eq!(warnings("ahead = \"20ms\"", "", "\"bank\", \"spread\""), Vec::<String>::new());
    assert_eq!(warnings("", "", "\"spread\""), Vec::<String>::new());
    let least = warnings("ahead = \"20ms\"", "ahead = \"5ms\"", "\"bank\", \"spread\"");
    assert!(least.len() == 1 && least[0].ends_with("set the `ahead` of `bank` to 5ms"), "{least:?}");
}

#[test]
fn many_days_of_permits_are_warned_of_where_claims_lock_them_all() {
    let warnings = |keep: &str, algorithm: &str, adaptive: bool| {
        let config = with(&format!(
            "[recovery]\nkeep_permits = \"{keep}\"\n[limit.acme]\nalgorithm = \"{algorithm}\"\npermits = 1\nper = \"1s\"\n\
             [channel.acme]\nendpoint = \"http://localhost/\"\nlimits = [\"acme\"]\nadaptive = {adaptive}\n"
        ));
        config.warnings()
    };
    for (keep, algorithm, adaptive) in
        [("7d", "paced", true), ("60d", "paced", true), ("3650d", "fixed_window", false)]
    {
        assert_eq!(warnings(keep, algorithm, adaptive), Vec::<String>::new(), "{keep} {algorithm}");
    }
    for (algorithm, adaptive) in [("paced", false), ("fixed_window", true)] {
        let long = warnings("61d", algorithm, adaptive);
        assert!(long.len() == 1 && long[0].starts_with("`recovery.keep_permits` is 61d."), "{long:?}");
        assert!(long[0].ends_with("set `recovery.keep_permits` to 60d or less"), "{long:?}");
    }
}

#[test]
fn a_short_lateness_of_a_limit_that_callers_acquire_is_warned_of() {
    let warnings = |algorithm: &str, lateness: &str, may: &str| {
        let config = with(&format!(
            "[limit.acme]\nalgorithm = \"{algorithm}\"\npermits = 1\nper = \"1s\"\nlateness = \"{lateness}\"\n\
             [channel.acme]\nendpoint = \"http://localhost/\"\nlimits = [\"acme\"]\n\
             [caller.shop]\ncertificate = \"shop\"\nmay = [{may}]\nchannels = [\"*\"]\nlimits = [\"*\"]\n"
        ));
        config.warnings().into_iter().filter(|warning| warning.contains("lateness")).collect::<Vec<_>>()
    };
    let short = warnings("paced", "10ms", "\"acquire\"");
    assert!(short.len() == 1 && short[0].contains("limit `acme` has a `lateness` of 10ms"), "{short:?}");
    for (algorithm, lateness, may) in [
        ("paced", "20ms", "\"acquire\""),
        ("fixed_window", "10ms", "\"acquire\""),
        ("paced", "10ms", "\"look\""),
    ] {
        assert_eq!(warnings(algorithm, lateness, may), Vec::<String>::new(), "{algorithm} {lateness} {may}");
    }
}

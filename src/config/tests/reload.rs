//! Checks the digest, the public settings, and the keys that need a restart.

use super::{no_env, with};
use crate::config::Config;

const TWO: &str = "[limit.a]\npermits = 1\nper = \"1s\"\n[limit.b]\npermits = 2\nper = \"1m\"\n\
    [channel.x]\nplain_http = \"accepted\"\nendpoint = \"http://x/?key=hunter2\"\nlimits = [\"a\", \"b\"]\n\
    [channel.y]\nplain_http = \"accepted\"\nendpoint = \"http://y/\"\nlimits = []\n";

#[test]
fn the_digest_is_the_same_on_every_machine_and_in_every_version() {
    insta::assert_snapshot!(with(TWO).digest(), @r##"f508e6e01b92d906"##);
}

/// A new condition of a rule must not change this digest where the file does not use the condition. Otherwise nodes of
/// two versions would report that their files differ.
#[test]
fn the_digest_and_the_published_settings_of_a_rule_are_the_same_in_every_version() {
    let rules = "[[channel.y.verdict]]\nstatus = 200\npointer = \"/code\"\nequals = \"51\"\noutcome = \"rejected\"\n\
        [[channel.y.verdict]]\nstatus = 503\noutcome = \"asked_to_wait\"\n";
    let config = with(&format!("{TWO}{rules}"));
    insta::assert_snapshot!(config.digest(), @"043c89ae4622beaa");
    let channel = config.channels.values().last().unwrap();
    insta::assert_snapshot!(Config::public_settings(channel)["verdict"], @r#"[{"equals":"51","outcome":"rejected","pointer":"/code","status":200},{"equals":null,"outcome":"asked_to_wait","pointer":null,"status":503}]"#);
}

#[test]
fn the_digest_ignores_order_and_other_sections() {
    let reordered = "[channel.y]\nlimits = []\nplain_http = \"accepted\"\nendpoint = \"http://y/\"\ntimeout = \"10000ms\"\n\
        [channel.x]\nlimits = [\"b\", \"a\"]\nplain_http = \"accepted\"\nendpoint = \"http://x/?key=hunter2\"\n\
        [limit.b]\nper = \"60s\"\npermits = 2\n[limit.a]\npermits = 1\nper = \"1s\"\n[node]\nname = \"other\"\n";
    assert_eq!(with(TWO).digest(), with(reordered).digest());
}

#[test]
fn the_digest_changes_with_every_difference_in_channels_and_limits() {
    let digest = with(TWO).digest();
    for (old, new) in [
        ("permits = 2", "permits = 3"),
        ("per = \"1m\"", "per = \"2m\""),
        ("http://y/", "http://z/"),
        ("hunter2", "hunter3"),
        ("limits = [\"a\", \"b\"]", "limits = [\"a\"]"),
        ("limits = []\n", "limits = []\ntimeout = \"9s\"\n"),
        ("limits = []\n", "limits = []\naccount = \"merchant-17\"\n"),
        ("limits = []\n", "limits = []\n[[channel.y.verdict]]\nstatus = 200\noutcome = \"review\"\n"),
    ] {
        assert_ne!(with(&TWO.replace(old, new)).digest(), digest, "{new}");
    }
}

#[test]
fn public_settings_contain_everything_but_secrets() {
    let config = with(TWO);
    let shown =
        serde_json::to_string_pretty(&Config::public_settings(config.channels.values().next().unwrap()));
    insta::assert_snapshot!(shown.unwrap(), @r##"
    {
      "adaptive": true,
      "authorization": "none",
      "bank_ref": null,
      "connect_timeout": "5s",
      "cool_down": "5s",
      "endpoint": "http://x/?****",
      "inquiry": null,
      "key_retention": null,
      "lease": "25s",
      "limits": [
        {
          "ahead": "50ms",
          "algorithm": "fixed_window",
          "lateness": "20ms",
          "name": "a",
          "per": "1s",
          "permits": 1
        },
        {
          "ahead": "50ms",
          "algorithm": "fixed_window",
          "lateness": "20ms",
          "name": "b",
          "per": "1m",
          "permits": 2
        }
      ],
      "max_backlog": null,
      "max_in_flight": 16,
      "on_unknown": "review",
      "retry": {
        "base": "2s",
        "cap": "5m",
        "sends": 12
      },
      "timeout": "10s",
      "verdict": []
    }
    "##);
}

fn settings(url: &str, rest: &str) -> Config {
    let text = format!("[postgres]\nurl = \"{url}\"\n[redis]\nurl = \"redis://localhost\"\n{rest}");
    Config::parse(&text, "r.toml", &no_env).unwrap()
}

#[test]
fn keys_that_need_a_restart_are_named_and_no_others() {
    let old = settings("postgres://u:hunter2@localhost", "[node]\nname = \"n\"\n[log]\nformat = \"json\"\n");
    let same = settings(
        "postgres://u:hunter2@localhost",
        "[bucket]\ncapacity = 7\n[node]\nname = \"n\"\n[log]\nformat = \"json\"\nlevel = \"debug\"\n\
         [limit.a]\npermits = 1\nper = \"1s\"\n[channel.x]\nendpoint = \"https://x/\"\nlimits = [\"a\"]\n",
    );
    assert_eq!(old.needs_restart(&same), Vec::<String>::new());
    let new = settings(
        "postgres://u:hunter3@localhost",
        "plain = \"accepted\"\nkey_prefix = \"k\"\nclock_tolerance = \"1s\"\n[http]\nlisten = \"127.0.0.1:1\"\nmax_connections = 1\n\
         [node]\nname = \"m\"\n[log]\nformat = \"human\"\n[recovery]\nkeep_permits = \"8d\"\nkeep_attempts = \"90d\"\nkeep_events = \"90d\"\n\
         [telemetry]\notlp = \"http://127.0.0.1:4318\"\n",
    );
    assert_eq!(
        old.needs_restart(&new),
        [
            "node.name",
            "http.listen",
            "http.max_connections",
            "postgres.url",
            "redis.plain",
            "redis.key_prefix",
            "redis.clock_tolerance",
            "log.format",
            "recovery.keep_permits",
            "recovery.keep_attempts",
            "recovery.keep_events",
            "telemetry.otlp"
        ]
    );
}

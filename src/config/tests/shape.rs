//! Checks files that are no configuration: bad TOML, unknown keys, values of a wrong kind.

use super::{SERVERS, complaints, no_env, only_complaints, parse, with};
use crate::config::section::Section;
use crate::config::source::Source;
use crate::config::{Config, ConfigError};

#[test]
fn an_unknown_key_is_refused_with_its_place_and_the_nearest_name() {
    insta::assert_snapshot!(complaints(
        "[channel.acme]\nendpoint = \"http://localhost/\"\nlimits = []\n  tiemout = \"10s\"\nflavour = 1\n[chanel.x]\n"
    ), @r##"
    r.toml:8:3: field `channel.acme.tiemout`: unknown key; did you mean `timeout`?
    r.toml:9:1: field `channel.acme.flavour`: unknown key; known here: `endpoint`, `plain_http`, `limits`, `timeout`, `connect_timeout`, `idle_timeout`, `lease`, `max_in_flight`, `max_backlog`, `on_unknown`, `key_retention`, `inquiry`, `bank_ref`, `card_numbers`, `account`, `authorization_file`, `authorization_credential`, `token`, `ca_file`, `client_certificate_file`, `client_key_file`, `signing`, `addresses`, `max_amount_minor`, `retry`, `cool_down`, `adaptive`, `breaker`, `verdict`
    r.toml:10:2: section `chanel`: unknown key; did you mean `channel`?
    "##);
}

#[test]
fn an_unknown_key_never_shows_its_value() {
    let shown =
        complaints("[channel.a]\nendpoint = \"http://localhost/\"\nlimits = []\napi_key = \"hunter2\"\n");
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn every_complaint_is_listed_in_the_order_of_the_file() {
    let error = parse(
        "[bucket]\ncapacity = 0\nkind = \"memori\"\n[http]\nlisten = \"0.0.0.0:80\"\n[limit.a]\npermits = 1\nper = 5\n",
    )
    .unwrap_err();
    insta::assert_snapshot!(error, @r##"
    6 faults in the configuration `r.toml`:
    r.toml:2:12: field `bucket.capacity` = 0: must lie between 1 and 100000
    r.toml:3:8: field `bucket.kind` = "memori": must be "redis", or "memory" for a single node without Redis
    r.toml:5:10: field `http.listen` = "0.0.0.0:80": is reached from other hosts, which needs `tls` and at least one `[caller.NAME]`: without them anyone who reaches the port could read and order refunds; add both, or use "127.0.0.1:8080"
    r.toml:8:7: field `limit.a.per` = 5: a number alone has no unit; did you mean "5s"?
    r.toml: section `[postgres]`: no address; set `url` or `url_file` in `[postgres]`, the environment variable `REFUNDD_POSTGRES_URL` or the systemd credential `postgres-url`
    r.toml: section `[redis]`: no address; set `url` or `url_file` in `[redis]`, the environment variable `REFUNDD_REDIS_URL` or the systemd credential `redis-url`
    "##);
}

#[test]
fn a_place_counts_characters_from_one() {
    let ConfigError::Refused { complaints, .. } = parse("# Größe\n[bucket]\n\"größe\" = 1\n").unwrap_err()
    else {
        panic!("it was read")
    };
    let places: Vec<_> = complaints.iter().filter_map(|complaint| complaint.place).collect();
    assert!(places.contains(&(3, 1)), "{places:?}");
    let text = format!(
        "{SERVERS}[channel.a]\nendpoint = \"http://localhost/\"\nlimits = []\nretry = {{ \"ä\" = 1, base = 7 }}\n"
    );
    let ConfigError::Refused { complaints, .. } = parse(&text).unwrap_err() else { panic!("it was read") };
    let places: Vec<_> = complaints.iter().filter_map(|complaint| complaint.place).collect();
    assert_eq!(places, [(8, 11), (8, 27)]);
}

#[test]
fn bad_toml_is_quoted_with_a_caret() {
    insta::assert_snapshot!(complaints("[channel.acme]\ntimeout = 10s\n"), @"
    r.toml:6:11: not TOML: string values must be quoted, expected literal string
      6 | timeout = 10s
        |           ^
    ");
}

#[test]
fn a_table_that_stands_twice_is_one_fault_that_names_the_first_place() {
    let twice = "[limit.acme]\npermits = 1\nper = \"1s\"\n[node]\nname = \"a\"\n[limit.acme] # again\npermits = 2\nper = \"2s\"\n\
        [node]\nname = \"b\"\n[channel.acme]\nlimits = []\nlimits = []\n";
    insta::assert_snapshot!(only_complaints(parse(twice)), @r#"
    r.toml:6:8: not TOML: `[limit.acme]` stands in line 1 already; put its keys together there, or give this one another name
      6 | [limit.acme] # again
        |        ^
    r.toml:9:2: not TOML: `[node]` stands in line 4 already; put its keys together there
      9 | [node]
        |  ^
    r.toml:13:1: not TOML: duplicate key
      13 | limits = []
         | ^
    "#);
}

#[test]
fn bad_toml_that_contains_a_password_is_quoted_without_it() {
    let text = "[postgres]\nurl = \"postgres://u:hunter2@db/p\n[redis]\nurl = redis://:hunter3@cache\n";
    let shown = only_complaints(parse(text));
    assert!(!shown.contains("hunter"), "{shown}");
    insta::assert_snapshot!(shown, @r#"
    r.toml:2:33: not TOML: invalid basic string, expected `"`
      2 | url = "postgres://u:****@db/p
    r.toml:4:7: not TOML: string values must be quoted, expected literal string
      4 | url = redis://:****@cache
    "#);
}

#[test]
fn a_faulty_address_is_shown_without_its_password() {
    let shown = only_complaints(parse(
        "[postgres]\nurl = \"mysql://u:hunter2@db/p\"\n[redis]\nurl = \"cache:6379:hunter3\"\n",
    ));
    assert!(!shown.contains("hunter"), "{shown}");
    insta::assert_snapshot!(shown, @r#"
    r.toml:2:7: field `postgres.url` = "mysql://u:****@db/p": must start with one of `postgres://`, `postgresql://`
    r.toml:4:7: field `redis.url` = "****": must start with one of `redis://`, `rediss://`, `redis+unix://`, `unix://`, `valkey://`, `valkeys://`, `valkey+unix://`, `redis+sentinel://`, `rediss+sentinel://`, `redis-sentinel://`, `rediss-sentinel://`, `redis+cluster://`, `rediss+cluster://`, `redis-cluster://`, `rediss-cluster://`
    "#);
}

#[test]
fn a_secret_written_where_its_file_belongs_is_not_shown() {
    let shown = complaints(
        "[channel.a]\nendpoint = \"http://localhost/\"\nlimits = []\nauthorization_file = \"Bearer hunter2\"\n\
         [channel.b]\nendpoint = \"http://u:hunter3@localhost/\"\nlimits = []\nauthorization = \"hunter4\"\n",
    );
    assert!(!shown.contains("hunter"), "{shown}");
    insta::assert_snapshot!(shown, @r#"
    r.toml:8:22: field `channel.a.authorization_file` = "****": the file it names does not exist; it must be the name of a file that holds the secret, not the secret
    r.toml:10:12: field `channel.b.endpoint` = "http://****@localhost/": must not hold a user or a password; put the `Authorization` header in a file and name it with `authorization_file`
    r.toml:12:1: field `channel.b.authorization`: a secret does not belong in this file; name its file with `authorization_file`, or a systemd credential with `authorization_credential`
    "#);
}

#[test]
fn a_secret_of_the_wrong_kind_is_not_shown() {
    let shown = only_complaints(parse(
        "[postgres]\nurl = { password = \"hunter2\" }\n[redis]\nurl = [\"hunter3\"]\n",
    ));
    assert!(!shown.contains("hunter"), "{shown}");
    assert!(shown.contains("`postgres.url` = \"****\": must be text in quotes, not a table"), "{shown}");
}

#[test]
fn a_value_of_the_wrong_kind_is_named() {
    insta::assert_snapshot!(complaints(
        "[bucket]\ncapacity = \"many\"\n[log]\nlevel = 3\n[recovery]\nkeep_permits = 7\n\
         [channel]\nacme = 1\n[channel.b]\nendpoint = \"http://localhost/\"\nlimits = \"acme\"\nverdict = 1\nretry = 3\n\
         timeout = true\nmax_in_flight = 99999999999999999999\n"
    ), @r#"
    r.toml:6:12: field `bucket.capacity` = "many": must be a whole number, not text
    r.toml:8:9: field `log.level` = 3: must be text in quotes, not a whole number
    r.toml:10:16: field `recovery.keep_permits` = 7: a number alone has no unit; did you mean "7s"?
    r.toml:12:1: field `channel.acme`: must be a section, `[channel.acme]`, not a whole number
    r.toml:15:10: field `channel.b.limits` = "acme": must be a list of names, such as ["acme"], not text
    r.toml:16:1: field `channel.b.verdict`: must be tables, each opened by `[[channel.b.verdict]]`
    r.toml:17:1: field `channel.b.retry`: must be a section, `[channel.b.retry]`, not a whole number
    r.toml:18:11: field `channel.b.timeout` = true: must be a duration in quotes, such as "10s", not true or false
    r.toml:19:17: field `channel.b.max_in_flight` = 99999999999999999999: is a larger number than can be counted
    "#);
}

#[test]
fn a_name_that_redis_keys_cannot_contain_is_refused() {
    insta::assert_snapshot!(complaints(
        "[limit.Acme]\npermits = -1\n[channel.\"a b\"]\nendpoint = \"http://localhost/\"\nlimits = []\n"
    ), @r#"
    r.toml:5:8: section `[limit.Acme]`: `Acme` is not a name: use 1 to 63 of a-z, 0-9, `-` and `_`, starting with a letter or digit
    r.toml:7:10: section `[channel."a b"]`: `a b` is not a name: use 1 to 63 of a-z, 0-9, `-` and `_`, starting with a letter or digit
    "#);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let path = std::path::Path::new("/nonexistent/refundd.toml");
    let error = Config::load(Some(path)).unwrap_err();
    assert!(matches!(error, ConfigError::Read { .. }));
    assert_eq!(error.to_string(), "read the configuration file `/nonexistent/refundd.toml`");
}

#[test]
fn dotted_keys_and_inline_tables_are_the_same_as_sections() {
    let config = with(
        "channel.acme = { endpoint = \"http://localhost/\", limits = [], retry.sends = 3, \
         verdict = [{ status = 200, outcome = \"review\" }] }\n"
            .replace("channel.acme", "[channel]\nacme")
            .as_str(),
    );
    let channel = config.channels.values().next().unwrap();
    assert_eq!(channel.retry.sends, 3);
    assert_eq!(channel.answer_rules.len(), 1);
    assert!(Config::parse(SERVERS, "r.toml", &no_env).unwrap().channels.is_empty());
}

#[test]
fn a_complaint_inside_an_array_of_tables_names_a_header_that_is_toml() {
    let text = "[[a.b]]\nc = 1\nd = 2\n[[a.b]]\n[a.b.c]\n[[a.b.d]]\n[\"a#1\"]\n";
    let source = Source::new("r.toml", text, &|_| None);
    let table = source.table().unwrap();
    let root = Section::root(&source, &table);
    let [first, second] = root.section("a").tables("b").try_into().ok().unwrap();
    let _not_a_table = first.section("c");
    let _no_tables = first.tables("d");
    second.complain("is one");
    second.section("c").complain("is a sub-table");
    second.tables("d")[0].complain("is one of a second array");
    root.section("a#1").complain("has a name that looks like a number");
    insta::assert_snapshot!(source.refusal(), @r#"
    6 faults in the configuration `r.toml`:
    r.toml:2:1: field `a.b#1.c`: must be a section, `[a.b.c]`, not a whole number
    r.toml:3:1: field `a.b#1.d`: must be tables, each opened by `[[a.b.d]]`
    r.toml:4:1: `[[a.b]]` number 2: is one
    r.toml:5:6: section `[a.b.c]`: is a sub-table
    r.toml:6:1: `[[a.b.d]]` number 1: is one of a second array
    r.toml:7:2: section `["a#1"]`: has a name that looks like a number
    "#);
}

#[test]
fn a_cluster_is_named_by_some_of_its_nodes() {
    let of =
        |url: &str| parse(&format!("[postgres]\nurl = \"postgres://localhost\"\n[redis]\nurl = \"{url}\"\n"));
    assert!(of("rediss-cluster://app:hunter2@one,two:7001,[::1]:7002").is_ok());
    let shown = only_complaints(of("rediss+cluster://app:hunter2@one,two:x"));
    assert!(!shown.contains("hunter"), "{shown}");
    insta::assert_snapshot!(shown, @r#"r.toml:4:7: field `redis.url` = "rediss+cluster://app:****@one,two:x": has a port that is no number from 1 to 65535; it must be written as redis-cluster://[user:password@]host[:6379],host[:6379],..."#);
}

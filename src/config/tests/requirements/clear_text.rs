//! The requirements of addresses on other hosts: nothing goes there in clear text without a word of the operator.

use secrecy::ExposeSecret;

use crate::config::Config;
use crate::config::tests::{SERVERS, only_complaints, parse};

fn servers(postgres: &str, redis: &str) -> Result<Config, crate::config::ConfigError> {
    parse(&format!("[postgres]\n{postgres}\n[redis]\n{redis}\n"))
}

#[test]
fn postgres_on_another_host_needs_verify_full_or_a_word_of_the_operator() {
    let of = |lines: &str| servers(lines, "url = \"redis://localhost\"");
    insta::assert_snapshot!(only_complaints(of("url = \"postgres://u:hunter2@db/p\"")), @r##"r.toml:2:7: field `postgres.url` = "postgres://u:****@db/p": leads to another host, `db`, and anyone on the way could read and change what is sent; set `tls = "verify-full"` in `[postgres]`, or write `?sslmode=verify-full` at the end of the address, or, if you trust every network on the way, set `plain = "accepted"` in `[postgres]`"##);
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
        ("url = \"postgres://u:hunter2@db/p?sslmode=verify-full&ssl-mode=disable\"", false),
        (
            "url = \"postgres://u:hunter2@db/p?sslmode=verify-full&ssl-mode=disable\"\ntls = \"verify-full\"",
            false,
        ),
        (
            "url = \"postgres://u:hunter2@db/p?ssl-mode=verify-full&sslmode=disable\"\nplain = \"accepted\"",
            false,
        ),
        ("url = \"postgres://u:hunter2@db/p?ssl-mode=verify-full\"\ntls = \"verify-full\"", true),
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
    insta::assert_snapshot!(only_complaints(of("url = \"redis://:hunter2@cache\"")), @r##"r.toml:4:7: field `redis.url` = "redis://:****@cache": leads to another host, `cache`, and anyone on the way could read and change what is sent; use TLS with a checked certificate: `rediss://`, `rediss+sentinel://` or `rediss-cluster://`, or, if you trust every network on the way, set `plain = "accepted"` in `[redis]`"##);
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
    // The requirement holds for an address from elsewhere, too.
    let env = |name: &str| match name {
        "REFUNDD_POSTGRES_URL" => Some("postgres://u:hunter2@db".to_owned()),
        "REFUNDD_REDIS_URL" => Some("redis://:hunter3@cache".to_owned()),
        _ => None,
    };
    let shown = only_complaints(Config::parse("", "r.toml", &env));
    assert!(shown.contains("`REFUNDD_POSTGRES_URL`: leads to another host, `db`"), "{shown}");
    assert!(shown.contains("`REFUNDD_REDIS_URL`: leads to another host, `cache`"), "{shown}");
    assert!(!shown.contains("hunter"), "{shown}");
}

#[test]
fn a_bank_on_another_host_needs_tls_or_a_word_of_the_operator() {
    let of = |endpoint: &str, more: &str| {
        parse(&format!("{SERVERS}[channel.acme]\nendpoint = \"{endpoint}\"\nlimits = []\n{more}"))
    };
    let inquires = "inquiry = { url = \"http://bank.example/{request_id}\" }\n";
    insta::assert_snapshot!(only_complaints(of("http://bank.example/?key=hunter2", inquires)), @r##"
    r.toml:6:12: field `channel.acme.endpoint` = "http://bank.example/?****": would send refunds and the `Authorization` header to another host, `bank.example`, in clear text; use `https://`, or, if you trust every network on the way, set `plain_http = "accepted"` in the channel
    r.toml:8:19: field `channel.acme.inquiry.url` = "http://bank.example/{request_id}": would send refunds and the `Authorization` header to another host, `bank.example`, in clear text; use `https://`, or, if you trust every network on the way, set `plain_http = "accepted"` in the channel
    "##);
    for (url, way_out) in [
        ("https://us:hunter2@login.example/", "name the client with `client_id` and the file of its secret"),
        ("http://login.example/", "would send the client's secret to another host, `login.example`"),
    ] {
        let token =
            format!("token = {{ url = \"{url}\", client_id = \"us\", client_secret_file = \"/none\" }}\n");
        let shown = only_complaints(of("https://bank.example/", &token));
        assert!(shown.contains(way_out), "{shown}");
    }
    let accepted = "plain_http = \"accepted\"\n";
    assert!(of("http://bank.example/", &format!("{inquires}{accepted}")).is_ok());
    assert!(of("http://127.0.0.1:9000/", "").is_ok());
    assert!(of("http://127.0.0.1.example/", "").is_err());
    assert!(of("https://bank.example/", "").is_ok());
}

use super::super::{
    BucketSection, Config, Http, HttpTls, Log, NodeSection, Postgres, RecoverySection, Redis, breaker,
    caller, channel, inquiry, limit, notify, retry, review, signing, token, verdict,
};
use super::no_env;

fn parsed(text: &str) -> Config {
    Config::parse(text, "refundd.toml", &no_env).unwrap_or_else(|error| panic!("{error}"))
}

/// The key and the default of a line such as `#timeout = "10s"`.
fn default_line(line: &str) -> Option<&str> {
    line.strip_prefix('#')
        .filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()) && rest.contains(" = "))
}

fn uncommented(strip: fn(&str) -> Option<&str>) -> String {
    Config::REFERENCE.lines().map(|line| strip(line).unwrap_or(line).to_owned() + "\n").collect()
}

#[test]
fn the_reference_is_a_valid_configuration() {
    let config = parsed(Config::REFERENCE);
    assert_eq!(config.channels.len(), 1);
    assert_eq!(config.limits.len(), 1);
}

#[test]
fn every_default_in_the_reference_is_the_default_in_the_code() {
    assert!(Config::REFERENCE.lines().filter_map(default_line).count() >= 15);
    let (written_out, left_out) = (parsed(&uncommented(default_line)), parsed(Config::REFERENCE));
    assert_eq!(format!("{written_out:#?}"), format!("{left_out:#?}"));
    assert!(written_out.channels == left_out.channels, "the `Debug` of a channel does not show all");
}

#[test]
fn every_example_in_the_reference_is_taken() {
    // A file or a credential excludes another key, and does not exist in this test.
    let usable = |line: &'static str| -> Option<&'static str> {
        line.strip_prefix("#? ").filter(|rest| !rest.contains("_file") && !rest.contains("_credential"))
    };
    let text: String =
        Config::REFERENCE.lines().map(|line| usable(line).unwrap_or(line).to_owned() + "\n").collect();
    let config = parsed(&text);
    let channel = config.channels.values().next().unwrap();
    assert_eq!(config.node.name, "node-a");
    assert_eq!(config.http.max_connections, Some(1024));
    assert_eq!(channel.max_backlog, Some(1_000_000));
    let rules = Config::REFERENCE.lines().filter(|line| *line == "#? [[channel.acme.verdict]]").count();
    assert_eq!((channel.answer_rules.len(), rules > 0), (rules, true), "each example of a rule is one rule");
    assert!(channel.inquiry.as_ref().unwrap().trust.not_found_is_final);
    assert!(channel.inquiry.as_ref().unwrap().not_found.is_some());
    assert_eq!(channel.bank_ref.as_deref(), Some("/id"));
    assert_eq!(channel.account.as_deref(), Some("merchant-17"));
    assert!(config.callers.0.values().next().unwrap().rate.is_some());
    assert_eq!(channel.networks.0.len(), 1);
    assert_eq!(channel.amount_bounds.0.len(), 2);
    assert_eq!(config.second_person_above.0.len(), 2);
}

#[test]
fn every_key_stands_in_the_reference() {
    let mut section = String::new();
    let mut written = Vec::new();
    for line in Config::REFERENCE.lines() {
        let line = line.strip_prefix("#? ").or_else(|| default_line(line)).unwrap_or(line);
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']).to_owned();
        } else if let Some((key, value)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) {
            written.push(format!("{section}.{key}"));
            let inner =
                value.trim_matches(['{', '}', ' ']).split(", ").filter_map(|part| part.split_once(" = "));
            written.extend(inner.map(|(inner, _)| format!("{section}.{key}.{inner}")));
        }
    }
    let sections: [(&str, &[&str]); 19] = [
        ("node", NodeSection::KEYS),
        ("http", Http::KEYS),
        ("http.tls", HttpTls::KEYS),
        ("postgres", Postgres::KEYS),
        ("redis", Redis::KEYS),
        ("bucket", BucketSection::KEYS),
        ("log", Log::KEYS),
        ("recovery", RecoverySection::KEYS),
        ("limit.acme", limit::KEYS),
        ("channel.acme", channel::KEYS),
        ("channel.acme.inquiry", inquiry::KEYS),
        ("channel.acme.retry", retry::KEYS),
        ("channel.acme.breaker", breaker::KEYS),
        ("channel.acme.verdict", verdict::KEYS),
        ("caller.shop", caller::KEYS),
        ("channel.acme.signing", signing::KEYS),
        ("channel.acme.token", token::KEYS),
        ("review", review::KEYS),
        ("notify", notify::KEYS),
    ];
    for (section, keys) in sections {
        for key in keys.iter().filter(|key| **key != "verdict") {
            let key = format!("{section}.{key}");
            let of_some_limit = |name: &String| {
                section == "limit.acme"
                    && name.starts_with("limit.")
                    && name.ends_with(key.rsplit('.').next().unwrap_or_default())
            };
            assert!(
                written.contains(&key) || written.iter().any(of_some_limit),
                "{key} is not in the reference; there are {written:?}"
            );
        }
    }
}

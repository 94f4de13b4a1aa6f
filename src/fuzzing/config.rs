//! The configuration file.

use secrecy::ExposeSecret;

use crate::bank::Bank;
use crate::bucket::BucketKind;
use crate::config::{Config, ConfigError};
use crate::limiter::Rule;

/// What the check accepts, a node can build: its clients of banks and its connection to Redis. Each rule is read again as
/// it was written. A refusal names at least one fault, and each fault says what is right.
pub fn target(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    // The file names files. Reading one of these would block, or never end.
    if ["/dev", "/proc", "/sys"].iter().any(|folder| text.contains(folder)) {
        return;
    }
    let config = match Config::parse(text, "/nowhere/refundd.toml", &|_| None) {
        Ok(config) => config,
        Err(ConfigError::Refused { complaints, .. }) => {
            assert!(!complaints.is_empty(), "it is refused for nothing");
            for complaint in &complaints {
                assert!(!complaint.requirement.is_empty() && !complaint.subject.is_empty(), "{complaint:?}");
            }
            return;
        }
        Err(other) => panic!("{other}"),
    };
    assert_eq!(config.digest(), config.clone().digest());
    assert_eq!(config.needs_restart(&config), Vec::<String>::new());
    let _ = config.warnings();
    for limit in config.limits.values() {
        let rule = &limit.rule;
        assert_eq!(rule.to_string().parse::<Rule>().as_ref(), Ok(rule));
        let _ = (rule.describe(), rule.memory(), rule.spacing_us(), rule.at_once());
    }
    for channel in config.channels.values() {
        let _ = (
            Config::public_settings(channel),
            channel.spacing(),
            channel.climb_step(),
            channel.slowed_to(50),
        );
        // TLS would read the system's roots each time.
        let is_plain = channel.endpoint.scheme_str() == Some("http")
            && channel.inquiry.as_ref().is_none_or(|inquiry| inquiry.url.starts_with("http://"))
            && channel.token.as_ref().is_none_or(|token| token.url.scheme_str() == Some("http"));
        if is_plain && let Err(error) = Bank::new(channel) {
            panic!("{error}: the check accepted `{}`", channel.endpoint);
        }
    }
    let url = config.redis.url.expose_secret();
    if config.bucket.kind == BucketKind::Redis
        && !url.starts_with("rediss")
        && let Err(error) = config.redis.open()
    {
        panic!("{error}: the check accepted `{url}`");
    }
}

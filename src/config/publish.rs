//! What others may see of a configuration: the database, other nodes, and whoever reloads it.

use secrecy::ExposeSecret;
use serde_json::{Value, json};

use super::{Config, duration};
use crate::channel::Channel;
use crate::limiter::{Algorithm, Limit};

impl Config {
    /// A channel and its limits without secrets.
    pub fn public_settings(&self, channel: &Channel) -> Value {
        json!({
            "limits": channel.limits.iter().map(|limit| public_limit(limit)).collect::<Vec<_>>(),
            "timeout": duration::say(channel.timeout),
            "connect_timeout": duration::say(channel.connect_timeout),
            "lease": duration::say(channel.lease),
            "max_in_flight": channel.max_in_flight,
            "retry": { "base": duration::say(channel.retry.base), "cap": duration::say(channel.retry.cap), "sends": channel.retry.sends },
            "cool_down": duration::say(channel.cool_down),
            "verdict_rules": channel.verdicts.len(),
            "authorization": channel.authorization.is_some(),
        })
    }

    /// Tells nodes whose channels or limits differ apart. Not a secure digest, and not meant as one.
    pub fn digest(&self) -> String {
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325; // FNV-1a
        for channel in self.channels.values() {
            let text = format!(
                "{}\n{}\n{:?}\n{}\n",
                channel.name,
                channel.endpoint,
                channel.verdicts,
                self.public_settings(channel)
            );
            for byte in text.bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        format!("{hash:016x}")
    }

    /// The keys in which `new` differs and that take effect only at a restart.
    pub fn needs_restart(&self, new: &Config) -> Vec<String> {
        let secret = |s: &secrecy::SecretString| s.expose_secret().to_owned();
        let password = |c: &Config| c.postgres.password.as_ref().map(secret);
        let changes = [
            ("node.name", self.node.name != new.node.name && !self.names_itself(new)),
            ("http.listen", self.http.listen != new.http.listen),
            (
                "postgres.url",
                secret(&self.postgres.url) != secret(&new.postgres.url) || password(self) != password(new),
            ),
            ("postgres.connections", self.postgres.connections != new.postgres.connections),
            ("redis.url", secret(&self.redis.url) != secret(&new.redis.url)),
            ("redis.key_prefix", self.redis.key_prefix != new.redis.key_prefix),
            ("redis.clock_tolerance", self.redis.clock_tolerance != new.redis.clock_tolerance),
            ("recovery.keep_permits", self.recovery.keep_permits != new.recovery.keep_permits),
            ("log.format", self.log.format != new.log.format),
        ];
        changes.into_iter().filter(|(_, changed)| *changed).map(|(key, _)| key.to_owned()).collect()
    }

    /// Whether both names are this process's own default.
    fn names_itself(&self, new: &Config) -> bool {
        let own = format!("-{}", std::process::id());
        self.node.name.ends_with(&own) && new.node.name.ends_with(&own)
    }
}

fn public_limit(limit: &Limit) -> Value {
    let Algorithm::FixedWindow { permits, per } = limit.algorithm;
    json!({
        "name": limit.name,
        "algorithm": "fixed_window",
        "permits": permits,
        "per": duration::say(per),
        "lateness": duration::say(limit.lateness),
        "ahead": duration::say(limit.ahead),
    })
}

//! Reads what `refundd doctor` says about Redis: its clocks, its settings, and the rights of its user.
//!
//! It takes no id and no permit. It writes one key, which it deletes in the same script.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Instant;

use redis::Value;
use rustls::pki_types::CertificateDer;

use super::keys::Keys;
use super::slot_group::Tag;
use super::{Bucket, BucketError, misread};
use crate::certificate;
use crate::channel::Channel;
use crate::eyeballs;

const RIGHTS: &str = include_str!("lua/rights.lua");

/// What one server says about itself.
#[derive(Debug, Clone)]
pub struct ServerCheckup {
    /// Its clock in us since 1970, and the moment of the reading on this machine's monotonic clock.
    pub clock: (i64, Instant),
    /// The fields of `INFO`.
    pub info: BTreeMap<String, String>,
    /// Each command of the scripts that the server refuses, with the reason.
    pub refused: Vec<String>,
    /// Whether the user may read the server's settings. Only an administrator's rights include that.
    pub is_administrator: bool,
}

impl Bucket {
    /// The most slot groups of a cluster that are looked at. Many groups share a master.
    const MOST_GROUPS: usize = 32;

    /// What the servers of these channels say about themselves: one without a cluster, otherwise each master once.
    ///
    /// # Errors
    /// When a server cannot be asked.
    pub async fn checkup<'a>(
        &self,
        channels: impl IntoIterator<Item = &'a Channel>,
    ) -> Result<Vec<ServerCheckup>, BucketError> {
        let mut tags: BTreeSet<Tag> =
            channels.into_iter().map(|channel| self.keys.tag(&channel.name)).collect();
        if tags.is_empty() {
            tags.insert(None);
        }
        let looks = tags.iter().take(Self::MOST_GROUPS).map(|tag| self.checkup_of(tag));
        let mut servers: BTreeMap<String, ServerCheckup> = BTreeMap::new();
        for server in futures_util::future::try_join_all(looks).await? {
            let run_id = server.info.get("run_id").cloned().unwrap_or_default();
            servers.entry(run_id).or_insert(server);
        }
        Ok(servers.into_values().collect())
    }

    async fn checkup_of(&self, tag: &Tag) -> Result<ServerCheckup, BucketError> {
        const SETTINGS: &str = "its settings";
        const RIGHTS_OF_USER: &str = "the rights of this user";
        let failed = |what: &str, source| BucketError::Ask { what: what.to_owned(), source };
        let key = self.keys.doctor(tag);
        let clock = self.time_of(tag).await?;
        let info = self.server.command(&key, &redis::cmd("INFO")).await;
        let info = info.map_err(|source| failed(SETTINGS, source))?;
        let text: String = redis::from_redis_value_ref(&info).map_err(|_| misread(SETTINGS, &info))?;
        let mut rights = redis::cmd("EVAL");
        rights.arg(RIGHTS).arg(1).arg(&key);
        let refused = self.server.command(&key, &rights).await;
        let refused = refused.map_err(|source| failed(RIGHTS_OF_USER, source))?;
        let mut config = redis::cmd("CONFIG");
        config.arg("GET").arg("maxmemory-policy");
        let settings = self.server.command(&key, &config).await;
        Ok(ServerCheckup {
            clock,
            info: fields(&text),
            refused: redis::from_redis_value_ref(&refused).map_err(|_| misread(RIGHTS_OF_USER, &refused))?,
            is_administrator: settings.is_ok_and(|found| !is_empty(&found)),
        })
    }
}

fn is_empty(found: &Value) -> bool {
    match found {
        Value::Array(items) => items.is_empty(),
        Value::Map(items) => items.is_empty(),
        _ => true,
    }
}

/// The fields of an answer to `INFO`.
fn fields(info: &str) -> BTreeMap<String, String> {
    let field =
        |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    info.lines().filter(|line| !line.starts_with('#')).filter_map(field).collect()
}

/// The certificates that a server shows. Nobody logs in. The caller limits the time.
///
/// # Errors
/// When the server cannot be reached or does not speak TLS.
pub async fn certificates_of(host: &str, port: u16) -> io::Result<Vec<CertificateDer<'static>>> {
    let (stream, _) = eyeballs::connect(tokio::net::lookup_host((host, port)).await?).await?;
    certificate::shown_by(host, stream).await
}

impl Keys {
    /// The key on which `refundd doctor` tries the rights of the user. It exists within one script only.
    fn doctor(&self, tag: &Tag) -> String {
        format!("{}:doctor", self.clock(tag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Commands that nodes send by themselves. A node that may not send them fails before it asks for anything.
    const DIRECT: &[&str] =
        &["evalsha", "eval", "script|load", "ping", "role", "cluster|info", "cluster|slots", "asking"];

    #[test]
    fn every_command_of_the_shipped_user_that_scripts_may_use_is_tried() {
        let acl = include_str!("../../config/redis.acl");
        let allowed = acl.split_whitespace().filter_map(|word| word.strip_prefix('+'));
        for command in allowed.filter(|command| !DIRECT.contains(command)) {
            let tried = format!("try(\"{}\"", command.to_ascii_uppercase());
            assert!(RIGHTS.contains(&tried), "rights.lua does not try `{command}`");
        }
    }
}

//! The configuration file: read whole, checked whole, and turned into the values the rooms take.
//!
//! Every fault is said at once, with its place, the law it breaks and the way out. Nothing here acts on
//! a configuration; swapping one for another is the daemon's business.
//!
//! `config/refundd.toml` is the reference: every key, its default and what raising it costs.

mod channels;
mod complaint;
mod duration;
mod field;
mod limits;
mod mask;
mod plain;
mod publish;
mod secret;
mod section;
mod source;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::channel::Channel;
use crate::limiter::Limit;
use crate::refund::{ChannelName, LimitName};

pub use complaint::{Complaint, ConfigError};
pub use plain::{Bucket, Http, Log, Node, Postgres, Recovery, Redis};
use section::Section;
use source::Source;

/// A configuration that keeps every law.
#[derive(Debug, Clone)]
pub struct Config {
    pub node: Node,
    pub http: Http,
    pub postgres: Postgres,
    pub redis: Redis,
    pub bucket: Bucket,
    pub recovery: Recovery,
    pub log: Log,
    /// Without those that are unlimited.
    pub limits: BTreeMap<LimitName, Arc<Limit>>,
    pub channels: BTreeMap<ChannelName, Arc<Channel>>,
}

impl Config {
    /// Where the file is looked for when none is named.
    pub const DEFAULT_PATH: &str = "/etc/refundd/refundd.toml";

    /// Default, reference and example in one.
    pub const REFERENCE: &str = include_str!("../config/refundd.toml");

    /// Reads the file, or [`Self::DEFAULT_PATH`].
    pub fn load(path: Option<&Path>) -> Result<Config, ConfigError> {
        let path = path.unwrap_or(Path::new(Self::DEFAULT_PATH));
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, &path.display().to_string(), &|name| std::env::var(name).ok())
    }

    /// Reads a text. `file` is its name in complaints, and its folder is where relative paths start;
    /// `env` looks a variable of the environment up.
    pub fn parse(
        text: &str,
        file: &str,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Config, ConfigError> {
        let source = Source::new(file, text, env);
        let table = source.table()?;
        let root = Section::root(&source, &table);
        root.keys(
            &["node", "http", "postgres", "redis", "bucket", "recovery", "log", "limit", "channel"],
            &[],
        );
        let limits = limits::read(&root);
        let channels = channels::read(&root, &limits);
        let plain = (
            plain::node(&root),
            plain::http(&root),
            plain::postgres(&root),
            plain::redis(&root),
            plain::bucket(&root),
            plain::recovery(&root),
            plain::log(&root),
        );
        if source.has_complaints() {
            return Err(source.refusal());
        }
        let (Some(node), Some(http), Some(postgres), Some(redis), Some(bucket), Some(recovery), Some(log)) =
            plain
        else {
            // Whoever answered nothing has complained; this keeps a slip from becoming a panic.
            source.complain_outside(format!("`{file}`"), "was refused without a reason; please report this");
            return Err(source.refusal());
        };
        let limits = limits.into_iter().filter_map(|(name, limit)| Some((name, limit?))).collect();
        Ok(Config { node, http, postgres, redis, bucket, recovery, log, limits, channels })
    }
}

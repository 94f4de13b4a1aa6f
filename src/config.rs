//! Reads the configuration file, checks every law in it, and hands out plain values.
//!
//! It starts nothing and connects to nothing; the files that hold secrets are the only other files
//! it reads. Either the whole file holds together or there is no [`Config`], only the list of
//! everything that is wrong.
//!
//! A limit of `permits = -1` is no limit: it is not among [`Config::limits`], and the channels that
//! name it do not carry it.

mod address;
mod authorization;
mod bucket;
mod change;
mod channel;
mod complaint;
mod duration;
mod field;
mod granting;
mod http;
mod inquiry;
mod limit;
mod log;
mod mask;
mod node;
mod postgres;
mod recovery;
mod redis;
mod retry;
mod roots;
mod secret;
mod section;
mod source;
#[cfg(test)]
mod tests;
mod value;
mod verdict;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::channel::Channel;
use crate::limiter::Limit;
use crate::refund::OnUnknown;
use crate::refund::id::{ChannelName, LimitName};

pub use self::bucket::{Bucket, BucketKind};
pub use self::complaint::{Complaint, ConfigError};
pub use self::http::Http;
pub use self::log::{Log, LogFormat};
pub use self::node::Node;
pub use self::postgres::Postgres;
pub use self::recovery::Recovery;
pub use self::redis::Redis;
pub use self::secret::Origin;

use self::section::Section;
use self::source::Source;

/// A whole configuration, checked.
#[derive(Debug, Clone)]
pub struct Config {
    pub node: Node,
    pub http: Http,
    pub postgres: Postgres,
    pub redis: Redis,
    pub bucket: Bucket,
    pub log: Log,
    pub recovery: Recovery,
    /// Every limit that limits.
    pub limits: BTreeMap<LimitName, Arc<Limit>>,
    pub channels: BTreeMap<ChannelName, Arc<Channel>>,
}

impl Config {
    /// Where the file lies when nobody names one.
    pub const DEFAULT_PATH: &str = "/etc/refundd/refundd.toml";
    /// Every key with its default, its bounds and its cost; itself a valid configuration.
    pub const REFERENCE: &str = include_str!("../config/refundd.toml");

    const SECTIONS: &[&str] =
        &["node", "http", "postgres", "redis", "bucket", "log", "recovery", "limit", "channel"];

    /// Reads the file at `path`, or at [`Config::DEFAULT_PATH`], with the environment of this
    /// process.
    ///
    /// # Errors
    /// [`ConfigError::Read`] when there is no such file; [`ConfigError::Refused`] when it does not
    /// hold together.
    pub fn load(path: Option<&Path>) -> Result<Config, ConfigError> {
        let path = path.unwrap_or(Path::new(Self::DEFAULT_PATH));
        let text =
            fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, &path.display().to_string(), &|name| std::env::var(name).ok())
    }

    /// Checks a configuration that was read already. Names of files in it are relative to the
    /// folder of `file_name`.
    ///
    /// # Errors
    /// [`ConfigError::Refused`] with everything that is wrong.
    pub fn parse(
        text: &str,
        file_name: &str,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Config, ConfigError> {
        let source = Source::new(file_name, text, env);
        let table = source.table()?;
        let root = Section::root(&source, &table);
        match Self::read(&root) {
            Some(config) if !source.has_complaints() => Ok(config),
            _ => Err(source.refusal()),
        }
    }

    /// Reads section after section, going on past every complaint.
    fn read(root: &Section<'_>) -> Option<Config> {
        root.keys(Self::SECTIONS, &[]);
        let node = Node::read(&root.section("node"));
        let http = Http::read(&root.section("http"));
        let postgres = Postgres::read(&root.section("postgres"));
        let bucket = Bucket::read(&root.section("bucket"));
        let redis = Redis::read(&root.section("redis"), bucket.kind == BucketKind::Redis);
        let log = Log::read(&root.section("log"));
        let by_name = limit::read_all(&root.section("limit"));
        let channels: Vec<_> = root
            .section("channel")
            .sections()
            .into_iter()
            .map(|(name, section)| channel::read(&name, &section, &by_name))
            .collect();
        let limits: BTreeMap<_, _> =
            by_name.into_values().flatten().map(|limit| (limit.name.clone(), limit)).collect();
        let windows = limits.values().map(|limit| limit.rule.window().unwrap_or_else(|| limit.rule.memory()));
        let retentions = channels.iter().flatten().filter_map(|channel| match channel.on_unknown {
            OnUnknown::Resend { key_retention } => Some(key_retention),
            OnUnknown::Review | OnUnknown::Inquire => None,
        });
        let longest = recovery::Longest {
            window: windows.max().unwrap_or_default(),
            key_retention: retentions.max().unwrap_or_default(),
        };
        let recovery = Recovery::read(&root.section("recovery"), longest);
        Some(Config {
            node,
            http: http?,
            postgres: postgres?,
            redis: redis?,
            bucket,
            log,
            recovery,
            limits,
            channels: channels.into_iter().flatten().map(|channel| (channel.name.clone(), channel)).collect(),
        })
    }
}

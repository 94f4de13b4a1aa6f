//! Reads the configuration file, checks it against every requirement, and returns plain values.
//!
//! It starts nothing and connects to nothing. The only other files that it reads hold secrets, their hashes or root
//! certificates. A file with any fault gives no [`Config`], only the list of all its faults.
//!
//! A limit of `permits = -1` is no limit: it is not among [`Config::limits`], nor among the limits of
//! the channels that name it.

mod account;
mod address;
mod addresses;
mod amounts;
mod authorization;
mod breaker;
mod bucket;
mod caller;
mod certificates;
mod change;
mod channel;
mod complaint;
mod config_file;
pub mod duration;
mod exchange;
mod field;
mod granting;
mod http;
mod http_tls;
mod inquiry;
mod limit;
mod log;
mod mask;
mod named_file;
mod node;
mod notify;
mod pointer;
mod postgres;
mod recovery;
mod redis;
mod reloadable;
mod retry;
mod review;
mod secret;
mod section;
mod settled;
mod signing;
mod source;
mod telemetry;
#[cfg(test)]
mod tests;
mod token;
mod value;
mod verdict;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::bank::WebhookTarget;
use crate::bucket::{Bucket, BucketKind};
use crate::caller::{Caller, Callers, Names};
use crate::channel::Channel;
use crate::limiter::Limit;
use crate::refund::AmountBounds;
use crate::refund::draft::DraftRules;
use crate::refund::id::{ChannelName, LimitName};

pub use self::bucket::BucketSection;
pub use self::complaint::{Complaint, ConfigError};
pub use self::http::Http;
pub use self::http_tls::HttpTls;
pub use self::log::{Log, LogFormat};
pub use self::node::NodeSection;
pub use self::postgres::Postgres;
pub use self::recovery::RecoverySection;
pub use self::redis::Redis;
pub use self::secret::Origin;
pub use self::telemetry::Telemetry;

use self::config_file::ConfigFile;
use self::section::Section;
use self::source::Source;

/// A whole configuration that meets every requirement.
#[derive(Debug, Clone)]
pub struct Config {
    pub node: NodeSection,
    pub http: Http,
    pub postgres: Postgres,
    pub redis: Redis,
    pub bucket: BucketSection,
    pub log: Log,
    pub recovery: RecoverySection,
    pub telemetry: Telemetry,
    /// Every limit, without the unlimited ones.
    pub limits: BTreeMap<LimitName, Arc<Limit>>,
    pub channels: BTreeMap<ChannelName, Arc<Channel>>,
    /// Who may use the HTTP interface; if empty, every program that reaches it.
    pub callers: Callers,
    /// The highest amounts that one person decides; empty for no bound. Two decide amounts of any other currency then.
    pub second_person_above: AmountBounds,
    /// Where changes of refunds are delivered; `None` for nowhere.
    pub notify: Option<WebhookTarget>,
}

impl Config {
    /// The path of the file if the command line names none.
    pub const DEFAULT_PATH: &str = "/etc/refundd/refundd.toml";
    /// The reference: every key with its default, its bounds and its cost. It is a valid configuration.
    pub const REFERENCE: &str = include_str!("../config/refundd.toml");

    const SECTIONS: &[&str] = &[
        "node",
        "http",
        "postgres",
        "redis",
        "bucket",
        "log",
        "recovery",
        "telemetry",
        "limit",
        "channel",
        "caller",
        "review",
        "notify",
    ];

    /// Reads the file at `path`, or at [`Config::DEFAULT_PATH`], with the environment of this
    /// process.
    ///
    /// # Errors
    /// [`ConfigError::Read`] when the file cannot be read; [`ConfigError::Refused`] when it has
    /// faults.
    pub fn load(path: Option<&Path>) -> Result<Config, ConfigError> {
        Self::load_part(path, Self::read)
    }

    /// Reads `[postgres]` of the file at `path` and nothing else, for commands that need no more. So neither a fault in
    /// another section nor a secret that only nodes may read keeps a person from pausing a channel.
    ///
    /// # Errors
    /// [`ConfigError::Read`] when the file cannot be read; [`ConfigError::Refused`] when it is not TOML, or when this
    /// section has faults.
    pub fn load_postgres(path: Option<&Path>) -> Result<Postgres, ConfigError> {
        Self::load_part(path, Self::read_postgres)
    }

    /// Reads `[postgres]` as [`Config::load_postgres`] does, and the whole file if it has no fault. The file is opened once: it
    /// may be a pipe, and both parts are of one state of it.
    ///
    /// # Errors
    /// Those of [`Config::load_postgres`].
    pub fn load_postgres_and_rest(path: Option<&Path>) -> Result<(Postgres, Option<Config>), ConfigError> {
        let file = Self::open(path)?;
        let postgres = Self::parse_part(&file, &Self::variable, Self::read_postgres)?;
        Ok((postgres, Self::parse_part(&file, &Self::variable, Self::read).ok()))
    }

    /// Checks the `text` of a configuration file. Names of files in it are relative to the folder of
    /// `file_name`; `env` reads a variable of the environment.
    ///
    /// # Errors
    /// [`ConfigError::Refused`] with all faults.
    pub fn parse(
        text: &str,
        file_name: &str,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Config, ConfigError> {
        let file = ConfigFile { text: text.to_owned(), name: file_name.to_owned(), mode: None };
        Self::parse_part(&file, env, Self::read)
    }

    fn load_part<T>(
        path: Option<&Path>,
        read: impl FnOnce(&Section<'_>) -> Option<T>,
    ) -> Result<T, ConfigError> {
        Self::parse_part(&Self::open(path)?, &Self::variable, read)
    }

    fn open(path: Option<&Path>) -> Result<ConfigFile, ConfigError> {
        ConfigFile::open(path.unwrap_or(Path::new(Self::DEFAULT_PATH)))
    }

    fn variable(name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn read_postgres(root: &Section<'_>) -> Option<Postgres> {
        Postgres::read(&root.section("postgres"))
    }

    fn parse_part<T>(
        file: &ConfigFile,
        env: &dyn Fn(&str) -> Option<String>,
        read: impl FnOnce(&Section<'_>) -> Option<T>,
    ) -> Result<T, ConfigError> {
        let mut source = Source::new(&file.name, &file.text, env);
        source.mode = file.mode;
        let table = source.table()?;
        let root = Section::root(&source, &table);
        match read(&root) {
            Some(part) if source.complaint_count() == 0 => Ok(part),
            _ => Err(source.refusal()),
        }
    }

    /// What a channel demands of a draft.
    #[must_use]
    pub fn draft_rules(&self, name: &ChannelName) -> DraftRules {
        self.channels.get(name).map(|channel| channel.draft_rules()).unwrap_or_default()
    }

    /// Sets the channels and limits of a bucket.
    pub fn group(&self, bucket: &Bucket) {
        let limits = self.limits.values().map(AsRef::as_ref);
        bucket.group(self.channels.values().map(AsRef::as_ref), limits);
    }

    /// What an operator should know of a configuration that meets every requirement. `callers` says which tokens expire.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = caller::certificate_warnings(&self.http, &self.callers);
        warnings.extend(caller::metrics_warning(&self.http, &self.callers));
        warnings.extend(self.unused_limits().map(|limit| {
            format!("no channel names limit `{limit}`, so it slows no refund; only `acquire` counts by it")
        }));
        warnings.extend(limit::warnings(&self.limits, self.redis.clock_tolerance, &self.callers));
        warnings.extend(limit::uneven_aheads(&self.channels));
        warnings.extend(review::warnings(&self.callers, self.channels.keys()));
        warnings.extend(self.recovery.warning().filter(|_| self.counts_spans()));
        warnings.extend(self.channels.values().filter_map(|channel| breaker::warning(channel)));
        warnings
    }

    /// Whether a claim may count the permits of a span. It then locks the tables of all days of permits.
    #[must_use]
    pub fn counts_spans(&self) -> bool {
        // A channel whose bank asks for less gets a limit that is no window (`Channel::slowed_to`).
        self.limits.values().any(|limit| !limit.rule.algorithm.is_numbered())
            || self.channels.values().any(|channel| channel.adaptive && !channel.limits.is_empty())
    }

    /// The limits that neither a channel, nor an inquiry, nor a caller names.
    fn unused_limits(&self) -> impl Iterator<Item = &LimitName> {
        self.limits.keys().filter(|name| {
            let has = |limits: &[Arc<Limit>]| limits.iter().any(|limit| limit.name == **name);
            let by_channel = self.channels.values().any(|channel| {
                let inquiry = channel.inquiry.as_ref().and_then(|inquiry| inquiry.limits.as_deref());
                has(&channel.limits) || inquiry.is_some_and(has)
            });
            let by_caller = |caller: &Caller| matches!(&caller.limits, Names::These(these) if these.contains(name.as_str()));
            !by_channel && !self.callers.0.values().any(|caller| by_caller(caller))
        })
    }

    /// Reads section after section, and goes on after a complaint so that all faults are listed.
    fn read(root: &Section<'_>) -> Option<Config> {
        root.keys(Self::SECTIONS, &[]);
        let node = NodeSection::read(&root.section("node"));
        let callers = caller::read_all(root);
        let second_person_above = review::read(&root.section("review"));
        let notify = notify::read(&root.section("notify"));
        let http = Http::read(&root.section("http"), !callers.is_empty());
        let postgres = Postgres::read(&root.section("postgres"));
        let bucket = BucketSection::read(&root.section("bucket"));
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
        let retentions = channels.iter().flatten().filter_map(|channel| channel.on_unknown.key_retention());
        let longest = recovery::Longest {
            window: windows.max().unwrap_or_default(),
            key_retention: retentions.max().unwrap_or_default(),
        };
        let recovery = RecoverySection::read(&root.section("recovery"), longest);
        let telemetry = Telemetry::read(&root.section("telemetry"));
        Some(Config {
            node,
            http: http?,
            postgres: postgres?,
            redis: redis?,
            bucket,
            log,
            recovery,
            telemetry,
            limits,
            channels: channels.into_iter().flatten().map(|channel| (channel.name.clone(), channel)).collect(),
            callers,
            second_person_above,
            notify,
        })
    }
}

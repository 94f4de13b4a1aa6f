//! `refundd check --against-running`: what changes if all nodes take the file over, and what becomes of the backlog.
//!
//! It reads what nodes published in Postgres. It asks no node and changes nothing.

mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use serde::Serialize;
use serde_json::Value;

use super::difference::{Changed, SettingChange, between, limits_of};
use super::looser;
use crate::config::Config;
use crate::desk::comparison::{BacklogComparison, compare as compare_backlogs};
use crate::desk::forecasts::Measured;
use crate::desk::plan::{PlannedChannel, PlannedConfig};
use crate::forecast::rule_on;
use crate::limiter::Limit;
use crate::refund::State;
use crate::refund::text::shown_json;
use crate::store::{ChannelCensus, LeftBehind, NodeRow, RunningChannel, Store};

/// The states of refunds that have not ended.
const OPEN: [State; 5] = [State::Ready, State::Sending, State::Accepted, State::Unknown, State::Review];

/// The exit code of a change that makes refunds late or leaves them behind.
const WORSE: u8 = 4;

/// All that the command shows.
#[derive(Debug, Serialize)]
struct Report {
    /// The digest of this file's channels and limits.
    digest: String,
    /// The living nodes, each with the digest of its file.
    nodes: Vec<RunningNode>,
    /// Whether living nodes have different files.
    nodes_differ: bool,
    limits: Vec<Changed>,
    channels: Vec<ChannelChange>,
    /// What changes of the callers and of other sections that a reload takes over. Empty if no living node published them.
    sections: Vec<Changed>,
    /// Each channel of which refunds may have been sent to an address that this file does not name.
    left_behind: Vec<Behind>,
    /// Each channel with refunds that wait.
    backlogs: Vec<BacklogComparison>,
    /// Whether refunds will be late or left behind that would not be without the change.
    is_worse: bool,
}

#[derive(Debug, Serialize)]
struct RunningNode {
    node: String,
    digest: String,
    runs_this_file: bool,
}

#[derive(Debug, Serialize)]
struct ChannelChange {
    #[serde(flatten)]
    changed: Changed,
    /// Refunds of the channel that have not ended, by state.
    open: BTreeMap<State, u64>,
    /// What to do because other limits count the channel's requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    advice: Vec<String>,
}

impl ChannelChange {
    fn open(&self) -> u64 {
        self.open.values().sum()
    }
}

#[derive(Debug, Serialize)]
struct Behind {
    channel: String,
    refunds: i64,
    text: String,
}

/// Compares the file with what nodes run, and prints the result.
///
/// # Errors
/// When Postgres cannot be read.
pub(super) async fn compare(config: &Config, store: &Store, is_json: bool) -> anyhow::Result<ExitCode> {
    let report = report(config, store).await?;
    if is_json {
        println!("{}", shown_json(serde_json::to_string_pretty(&report)?));
    } else {
        print!("{}", page::of(&report));
    }
    Ok(if report.is_worse { ExitCode::from(WORSE) } else { ExitCode::SUCCESS })
}

async fn report(config: &Config, store: &Store) -> anyhow::Result<Report> {
    let digest = config.digest();
    let nodes: Vec<RunningNode> = store
        .nodes()
        .await?
        .into_iter()
        // A node that has just joined has not read its configuration yet.
        .filter(|node| node.lives && !node.config_digest.is_empty())
        .map(|NodeRow { name, config_digest, .. }| RunningNode {
            node: name,
            runs_this_file: config_digest == digest,
            digest: config_digest,
        })
        .collect();
    let running = store.running_channels().await?;
    let census = store.census().await?;
    let reports = store.status_reports().await?;
    let measured = Measured::of_reports(reports.iter().map(|(_, report)| report));
    let plan = plan(config, nodes.len());
    let backlogs = compare_backlogs(store, &census, &measured, &plan).await?;
    let places = config.channels.values().map(|channel| (&channel.name, channel.bank_address()));
    let left_behind = store.left_behind(places).await?;
    let channels = channels(config, &running, &census);
    let goes_with_refunds =
        channels.iter().any(|one| one.changed.change == SettingChange::Goes && one.open() > 0);
    let is_later = backlogs.iter().any(|one| one.after.is_later_than(&one.before));
    Ok(Report {
        limits: limits(config, &running, store).await?,
        sections: sections(config, store).await?,
        is_worse: goes_with_refunds || is_later || !left_behind.is_empty(),
        nodes_differ: nodes.iter().map(|node| node.digest.as_str()).collect::<BTreeSet<_>>().len() > 1,
        backlogs,
        left_behind: left_behind.iter().map(behind).collect(),
        digest,
        nodes,
        channels,
    })
}

/// The file as a forecast needs it.
fn plan(config: &Config, nodes: usize) -> PlannedConfig {
    let channels = config.channels.values().map(|channel| {
        let planned = PlannedChannel {
            limits: channel.limits.iter().map(|limit| limit.name.to_string()).collect(),
            inquiries_share: channel.inquiry.as_ref().is_some_and(|inquiry| inquiry.limits.is_none()),
            max_in_flight: channel.max_in_flight,
        };
        (channel.name.to_string(), planned)
    });
    let limits = config.limits.values().map(|limit| (limit.name.to_string(), rule_on(limit, nodes)));
    PlannedConfig {
        channels: channels.collect(),
        limits: limits.collect(),
        nodes: u32::try_from(nodes).unwrap_or(u32::MAX),
    }
}

fn channels(config: &Config, running: &[RunningChannel], census: &[ChannelCensus]) -> Vec<ChannelChange> {
    let old: BTreeMap<String, Value> =
        running.iter().map(|one| (one.channel.clone(), one.settings.clone())).collect();
    let new =
        config.channels.values().map(|channel| (channel.name.to_string(), Config::public_settings(channel)));
    let new: BTreeMap<String, Value> = new.collect();
    let with_open = |changed: Changed| {
        let counts = census.iter().find(|one| one.channel == changed.name).map(|one| &one.counts);
        let count = |state: State| Some((state, counts?.get(&state).copied().filter(|count| *count > 0)?));
        let both = old.get(&changed.name).zip(new.get(&changed.name));
        let advice =
            both.map(|(old, new)| Config::exchange_advice(&changed.name, old, new)).unwrap_or_default();
        ChannelChange { open: OPEN.into_iter().filter_map(count).collect(), advice, changed }
    };
    between(&old, &new, looser::channel).into_iter().map(with_open).collect()
}

/// What changes of the limits. Channels show the limits that they name; of the others, only the published rules are known.
async fn limits(config: &Config, running: &[RunningChannel], store: &Store) -> anyhow::Result<Vec<Changed>> {
    let mut old: BTreeMap<String, Value> = running.iter().flat_map(|one| limits_of(&one.settings)).collect();
    let new: BTreeMap<String, Value> =
        config.limits.values().map(|limit| (limit.name.to_string(), Config::public_limit(limit))).collect();
    let unseen: Vec<String> = new.keys().filter(|name| !old.contains_key(*name)).cloned().collect();
    for one in store.rules_in_force(&unseen).await? {
        let limit = config.limits.values().find(|limit| limit.name.as_str() == one.limit);
        if let Some((limit, rule)) = limit.zip(one.published) {
            let published = Limit { rule, ..limit.as_ref().clone() };
            old.insert(one.limit, Config::public_limit(&published));
        }
    }
    Ok(between(&old, &new, looser::limit))
}

/// What changes of the other sections on any node: files of nodes may differ.
async fn sections(config: &Config, store: &Store) -> anyhow::Result<Vec<Changed>> {
    let by_name =
        |sections: Value| -> BTreeMap<String, Value> { serde_json::from_value(sections).unwrap_or_default() };
    let new = by_name(config.public_sections());
    let mut changes: Vec<Changed> = Vec::new();
    for (_, settings) in store.settings_of_nodes().await? {
        for change in between(&by_name(settings), &new, looser::none) {
            if !changes.contains(&change) {
                changes.push(change);
            }
        }
    }
    Ok(changes)
}

fn behind(left: &LeftBehind) -> Behind {
    Behind { channel: left.channel.clone(), refunds: left.refunds, text: left.to_string() }
}

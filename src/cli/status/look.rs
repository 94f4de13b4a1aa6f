//! What the command reads: the census with forecasts, the limits in force, the reports of nodes, and the buckets.

use std::collections::HashMap;

use crate::bucket::{BucketDepth, BucketError, BucketKind, Purpose};
use crate::config::Config;
use crate::desk;
use crate::desk::channel::{ChannelStatus, LimitStatus};
use crate::desk::forecasts::Measured;
use crate::logs::chain;
use crate::refund::ChannelName;
use crate::store::{NodeReport, Store};

/// Everything that one page shows.
#[derive(Debug)]
pub(super) struct Look {
    pub channels: Vec<ChannelStatus>,
    /// Why Redis says nothing about the buckets to this host.
    pub redis_trouble: Option<String>,
    /// The status report of each living node.
    pub reports: Vec<(String, NodeReport)>,
}

impl Look {
    /// Whether nodes live and none of them misses Redis. A node that is well may have no report.
    pub(super) fn nodes_have_redis(&self) -> bool {
        self.channels.iter().any(|channel| !channel.run_by.is_empty())
            && self.reports.iter().all(|(_, report)| report.redis.is_none())
    }
}

pub(super) async fn look(store: &Store, config: Option<&Config>) -> anyhow::Result<Look> {
    let reports = store.status_reports().await?;
    let census = desk::census(store, &Measured::of_reports(reports.iter().map(|(_, report)| report))).await?;
    let mut limits = limits_of_channels(store).await?;
    let names: Vec<ChannelName> = census.iter().filter_map(|c| ChannelName::new(&c.channel).ok()).collect();
    let (buckets, redis_trouble) = match config {
        Some(config) => bucket_depths(config, &names).await,
        None => (Vec::new(), None),
    };
    let depth = |channel: &str| {
        let at = names.iter().position(|n| n.as_str() == channel)?;
        buckets.get(at)?.as_ref().ok().map(|bucket| bucket.depth)
    };
    let channels = census
        .iter()
        .map(|census| {
            let mut status = ChannelStatus::of(census);
            status.limits = limits.remove(&census.channel);
            status.note_depth(depth(&census.channel));
            status.note_reports(&reports);
            status
        })
        .collect();
    Ok(Look { channels, redis_trouble, reports })
}

/// The limits of each channel as nodes published them, whatever the file of this command says. A channel is missing if the
/// rule of one of its limits is not known.
async fn limits_of_channels(store: &Store) -> anyhow::Result<HashMap<String, Vec<LimitStatus>>> {
    let published = store.published_limits().await?;
    let mut names: Vec<String> = published.iter().flat_map(|(_, limits)| limits.iter().cloned()).collect();
    names.sort();
    names.dedup();
    let rules = store.rules_in_force(&names).await?;
    let rules: HashMap<&str, LimitStatus> = rules
        .iter()
        .filter_map(|one| {
            let rule = one.published.as_ref().or(one.adopted.as_ref())?;
            Some((one.limit.as_str(), LimitStatus::new(&one.limit, rule)))
        })
        .collect();
    let of_channel = |(channel, limits): (String, Vec<String>)| {
        let limits: Option<Vec<LimitStatus>> =
            limits.iter().map(|limit| rules.get(limit.as_str()).cloned()).collect();
        Some((channel, limits?))
    };
    Ok(published.into_iter().filter_map(of_channel).collect())
}

/// The depth of each channel's bucket, and the reason if Redis cannot say.
async fn bucket_depths(
    config: &Config,
    names: &[ChannelName],
) -> (Vec<Result<BucketDepth, BucketError>>, Option<String>) {
    if config.bucket.kind == BucketKind::Memory {
        // The buckets are in the node's own memory.
        return (Vec::new(), None);
    }
    let redis = &config.redis;
    let away = |error: &BucketError| chain(error).to_string();
    let bucket = match redis.open() {
        Ok(bucket) => bucket,
        Err(error) => return (Vec::new(), Some(away(&error))),
    };
    if let Some(mistake) = bucket.wrong_server().await {
        return (Vec::new(), Some(format!("{} {mistake}", redis.named())));
    }
    config.group(&bucket);
    let depths = bucket.survey(Purpose::Send, names).await;
    let trouble = depths.iter().find_map(|depth| depth.as_ref().err().map(away));
    (depths, trouble)
}

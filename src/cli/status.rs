//! `refundd status`: prints the state of every channel, read from Postgres and Redis.
//!
//! The command asks no node.

use std::process::ExitCode;
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::json;

use crate::bucket::{BucketDepth, BucketError, Purpose};
use crate::config::{BucketKind, Config};
use crate::refund::text::{shown, shown_json, shown_lines};
use crate::refund::{ChannelName, State};
use crate::store::ChannelCensus;
use crate::telemetry::chain;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// For programs: one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) async fn status(args: Args, config: &Config) -> anyhow::Result<ExitCode> {
    let store = super::store(config).await?;
    let census = store.census().await?;
    let names: Vec<ChannelName> = census.iter().filter_map(|c| ChannelName::new(&c.channel).ok()).collect();
    let reports = store.status_reports().await?;
    let (buckets, trouble) = bucket_depths(config, &names).await;
    let depth = |channel: &str| {
        let at = names.iter().position(|n| n.as_str() == channel)?;
        buckets.get(at)?.as_ref().ok().map(|bucket| bucket.depth)
    };
    if args.json {
        let channels: Vec<_> =
            census.iter().map(|c| as_json(c, config, depth(&c.channel), state_text(c, &reports))).collect();
        let nodes: serde_json::Map<_, _> = reports.into_iter().collect();
        let status = json!({ "channels": channels, "redis_trouble": trouble, "nodes": nodes });
        println!("{}", shown_json(serde_json::to_string_pretty(&status)?));
        return Ok(ExitCode::SUCCESS);
    }
    println!("{}", shown_lines(&table(&census, config, &depth, &reports).to_string()));
    if census.is_empty() {
        println!("No channel was ever run on this database: start a node with `refundd run`.");
    }
    if let Some(trouble) = &trouble {
        println!("Redis is away ({}); refunds are saved and wait.", shown(trouble));
    }
    for channel in &census {
        if let Some((reason, who, since)) = &channel.paused {
            println!("{} was paused by {} at {since:.0}: {}", channel.channel, shown(who), shown(reason));
        }
        if let Some((why, since)) = &channel.breaker {
            println!("{} is suspended by its breaker since {since:.0}: {}", channel.channel, shown(why));
        }
        if let Some((until, why)) = &channel.cool_until {
            println!("{} cools until {until:.0}: the bank answered {}", channel.channel, shown(why));
        }
        if let Some(percent) = channel.slowed {
            println!(
                "{}: sends at {percent} % of its rate, because the bank asked for slower; the rate climbs back",
                channel.channel
            );
        }
        if let Some((late, from)) = channel.late {
            println!(
                "{}: {late} refunds will pass their deadlines at this rate, the first at {from:.0}",
                channel.channel
            );
        }
        let review = count(channel, State::Review);
        if review > 0 {
            println!("{}: {review} wait for a person, see `refundd review`", channel.channel);
        }
        if channel.run_by.is_empty() {
            println!("{}: no living node runs it", channel.channel);
        }
    }
    for line in reports.iter().flat_map(|(node, report)| of_node(node, report)) {
        println!("{}", shown(&line));
    }
    Ok(ExitCode::SUCCESS)
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
    let limits = config.limits.values().map(AsRef::as_ref);
    bucket.group(config.channels.values().map(AsRef::as_ref), limits);
    let depths = bucket.survey(Purpose::Send, names).await;
    let trouble = depths.iter().find_map(|depth| depth.as_ref().err().map(away));
    (depths, trouble)
}

/// What a node reports about limits and banks: long waits, and stricter rules of other nodes' files. Also channels that
/// are blocked, banks that the node cannot reach, and banks that are too far away for their limits.
fn of_node(node: &str, report: &serde_json::Value) -> Vec<String> {
    let entries = |name: &str| report[name].as_object().into_iter().flatten();
    let waits = entries("waits").map(|(channel, wait)| {
        let limit = wait["limit"].as_str().unwrap_or("?");
        let left = Duration::from_secs(wait["seconds"].as_u64().unwrap_or_default());
        format!("{channel} waits for limit `{limit}` on node {node}, for {} yet", short(left))
    });
    let stricter_rules = entries("overruled").map(|(limit, by)| {
        let by = by.as_str().unwrap_or("?");
        format!("node {node}: another node's file is stricter about limit `{limit}` (`{by}`), and that is what counts")
    });
    let banks = entries("banks").flat_map(|(channel, bank)| {
        let of = |what: &str| bank[what].as_str().map(ToOwned::to_owned);
        let lines = [
            of("unreachable")
                .map(|why| format!("{channel} is unreachable from node {node}: failed to {why}")),
            of("unreachable_to_ask")
                .map(|why| format!("{channel}: its bank cannot be asked from node {node}: failed to {why}")),
            of("blocked").map(|why| format!("{channel} is blocked on node {node}: {why}")),
            of("permits_lapse").map(|why| format!("{channel}: permits lapse on node {node}: {why}")),
            of("lateness_too_small").map(|why| {
                format!("{channel}: `lateness` is too small for the way to the bank from node {node}: {why}")
            }),
        ];
        lines.into_iter().flatten().collect::<Vec<_>>()
    });
    let redis = report["redis"].as_str();
    let redis =
        redis.map(|why| format!("node {node}: Redis is away or refuses: {why}; refunds are saved and wait"));
    redis.into_iter().chain(waits).chain(stricter_rules).chain(banks).collect()
}

fn count(channel: &ChannelCensus, state: State) -> u64 {
    channel.counts.get(&state).copied().unwrap_or(0)
}

fn limits(channel: &str, config: &Config) -> String {
    let channel = config.channels.values().find(|c| c.name.as_str() == channel);
    match channel {
        None => "not in this file".to_owned(),
        Some(channel) if channel.limits.is_empty() => "unlimited".to_owned(),
        Some(channel) => channel.limits.iter().map(|l| l.rule.describe()).collect::<Vec<_>>().join(" and "),
    }
}

fn table(
    census: &[ChannelCensus],
    config: &Config,
    depth: &dyn Fn(&str) -> Option<u64>,
    reports: &[(String, serde_json::Value)],
) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "CHANNEL",
        "LIMIT",
        "READY",
        "IN BUCKET",
        "SENDING",
        "UNKNOWN",
        "REVIEW",
        "ACCEPTED",
        "SUCCEEDED",
        "FAILED",
        "OLDEST",
        "RATE",
        "STATE",
    ]);
    for channel in census {
        let number = |state| count(channel, state).to_string();
        table.add_row([
            channel.channel.clone(),
            limits(&channel.channel, config),
            number(State::Ready),
            depth(&channel.channel).map_or("?".to_owned(), |d| d.to_string()),
            number(State::Sending),
            number(State::Unknown),
            number(State::Review),
            number(State::Accepted),
            number(State::Succeeded),
            number(State::Failed),
            channel.oldest_ready_age.map_or("-".to_owned(), short),
            format!("{:.1}/s", channel.sends_last_minute as f64 / 60.0),
            state_text(channel, reports).to_owned(),
        ]);
    }
    for column in 2..12 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn state_text(channel: &ChannelCensus, reports: &[(String, serde_json::Value)]) -> &'static str {
    let on_a_node = |trouble: &str| {
        reports.iter().any(|(_, report)| report["banks"][&channel.channel][trouble].is_string())
    };
    match channel {
        c if c.paused.is_some() => "paused",
        c if c.breaker.is_some() => "breaker",
        c if c.cool_until.is_some() => "cooling",
        c if c.run_by.is_empty() => "not run",
        // For one node at least. The lines below the table name the nodes and the reasons.
        _ if on_a_node("unreachable") => "unreachable",
        _ if on_a_node("blocked") || reports.iter().any(|(_, report)| report["redis"].is_string()) => {
            "blocked"
        }
        c if c.slowed.is_some() => "slowed",
        c if c.full => "full",
        _ => "running",
    }
}

/// The two greatest units of a span.
fn short(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

fn as_json(
    channel: &ChannelCensus,
    config: &Config,
    depth: Option<u64>,
    state: &'static str,
) -> serde_json::Value {
    json!({
        "channel": channel.channel,
        "limits": limits(&channel.channel, config),
        "counts": channel.counts,
        "in_line": depth,
        "oldest_ready_seconds": channel.oldest_ready_age.map(|age| age.as_secs_f64()),
        "sends_last_minute": channel.sends_last_minute,
        "state": state,
        "slowed_to_percent": channel.slowed,
        "late": channel.late.map(|(refunds, from)| json!({ "refunds": refunds, "from": from })),
        "paused": channel.paused.as_ref().map(|(reason, by, at)| json!({ "reason": reason, "by": by, "at": at })),
        "cooling": channel.cool_until.as_ref().map(|(until, reason)| json!({ "until": until, "reason": reason })),
        "backlog_full": channel.full,
        "run_by": channel.run_by,
    })
}

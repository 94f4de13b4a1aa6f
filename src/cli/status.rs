//! `refundd status`: prints the state of all channels or of one, read from Postgres and Redis.
//!
//! The command asks no node. Nodes write into their liveness rows what binds a channel and how its bank answers.

mod look;
mod nodes;
mod one;
mod style;
mod table;

use std::io::{IsTerminal, Write as _, stdout};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use serde_json::json;

use self::look::{Look, look};
use self::style::Style;
pub(super) use self::style::{cut, span};
use crate::config::{Config, Postgres};
use crate::logs::chain;
use crate::refund::text::{shown, shown_json, shown_lines};
use crate::store::Store;

/// The time from one drawing of `--watch` to the next.
const REDRAW_EVERY: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only this channel, with its limits, its bank and its forecast
    channel: Option<String>,
    /// Draw it again every two seconds, until Ctrl-C
    #[arg(long, conflicts_with = "json")]
    watch: bool,
    /// For programs: one JSON object, with the names of GET /v1/channels
    #[arg(long)]
    json: bool,
}

/// Stands in place of what Redis would say.
const UNASKED: &str =
    "Redis was not asked: this user cannot use the whole configuration file. `refundd check` says why.";

/// `config` is `None` if the file has faults, or secrets that this user may not read.
pub(super) async fn status(
    args: Args,
    postgres: &Postgres,
    config: Option<&Config>,
) -> anyhow::Result<ExitCode> {
    let store = super::store(postgres).await?;
    // A name without a channel, or a database that was never reached, is no outage to wait for.
    let mut drawn = page(&args, &store, config, Style::of_stdout()).await?;
    if !args.watch {
        print!("{drawn}");
        return Ok(ExitCode::SUCCESS);
    }
    let is_terminal = stdout().is_terminal();
    loop {
        // The cursor goes to the corner, each line is cleared before it is written, and then the rest of the screen.
        if is_terminal {
            print!("\u{1b}[H{}\u{1b}[J", drawn.replace('\n', "\u{1b}[K\n"));
        } else {
            println!("{drawn}");
        }
        super::output::note(stdout().flush());
        if super::output::is_lost() {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::time::sleep(REDRAW_EVERY).await;
        drawn = page(&args, &store, config, Style::of_stdout()).await.unwrap_or_else(|error| {
            format!("refundd: {}\n", shown_lines(&chain(error.as_ref()).to_string()))
        });
    }
}

async fn page(args: &Args, store: &Store, config: Option<&Config>, style: Style) -> anyhow::Result<String> {
    let mut seen = look(store, config).await?;
    if let Some(name) = &args.channel {
        seen.channels.retain(|channel| channel.channel == *name);
        if seen.channels.is_empty() {
            let name = shown(name);
            bail!("no channel `{name}` was ever run on this database; `refundd status` lists the channels");
        }
    }
    if args.json {
        let Look { channels, redis_trouble, reports } = seen;
        let redis_trouble = if config.is_some() { redis_trouble } else { Some(UNASKED.to_owned()) };
        let nodes: serde_json::Map<_, _> =
            reports.into_iter().map(|(node, report)| (node, report.to_json())).collect();
        let status = json!({ "channels": channels, "redis_trouble": redis_trouble, "nodes": nodes });
        return Ok(format!("{}\n", shown_json(serde_json::to_string_pretty(&status)?)));
    }
    let mut page = match (&args.channel, seen.channels.as_slice()) {
        (Some(_), [channel]) => one::page(channel, style),
        _ => table::page(&seen.channels, style),
    };
    if seen.channels.is_empty() {
        page.push_str("No channel was ever run on this database: start a node with `refundd run`.\n");
    }
    if let Some(trouble) = &seen.redis_trouble {
        let trouble = shown(trouble);
        let line = if seen.nodes_have_redis() {
            format!("Redis does not answer this host ({trouble}). The living nodes reach it.")
        } else {
            format!("Redis is away ({trouble}); refunds are saved and wait.")
        };
        page.push_str(&style.line("", &line));
    }
    if config.is_none() {
        page.push_str(&style.line("", UNASKED));
    }
    for line in nodes::of_channels(&seen.channels) {
        page.push_str(&style.line("", &shown(&line)));
    }
    let only = args.channel.as_deref();
    for line in seen.reports.iter().flat_map(|(node, report)| nodes::of_node(node, report, only)) {
        page.push_str(&style.line("", &shown(&line)));
    }
    Ok(page)
}

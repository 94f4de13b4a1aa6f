//! `refundd demo`: three real nodes, a pretend bank, and about a minute in which things go wrong.
//!
//! The bank's own ledger decides whether the promises were kept. The demo reads refundd's records for one thing only:
//! which refunds are shown to a person instead of being paid. That, too, keeps a promise.

mod scene;
mod screen;
mod verdict;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

use crate::refund::State;
use crate::store::Store;
use playground::stage::{NodeProcess, Stage};
use scene::SavedRefs;
use screen::Screen;
use verdict::DemoResult;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// For programs: only the verdict, as one JSON object
    #[arg(long)]
    json: bool,
    /// Plain lines even where there is a terminal
    #[arg(long)]
    plain: bool,
}

/// How long the demo may take. Refunds that still wait then count as not done.
const LIMIT: Duration = Duration::from_secs(100);

pub(super) async fn demo(args: Args) -> anyhow::Result<ExitCode> {
    let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
    let screen = Screen::new(args.json, args.plain);
    let judged = tokio::select! {
        judged = play(&screen) => judged,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted; everything it started is being removed")),
        _ = terminate.recv() => Err(anyhow::anyhow!("terminated; everything it started is being removed")),
    };
    screen.leave();
    let verdict = judged?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&verdict)?);
    } else {
        println!("{verdict}");
    }
    Ok(if verdict.kept() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn play(screen: &Screen) -> anyhow::Result<DemoResult> {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    screen.say("Starting a private Postgres, a private Redis, a pretend bank and three nodes");
    let stage =
        Arc::new(Stage::set(std::env::current_exe().context("failed to find this program")?, any).await?);
    let store = Store::open(&stage.database_url(), None, 10)?;
    let channels = scene::channels();
    let (a, b, c) = tokio::try_join!(
        stage.node("node-a", any, &channels),
        stage.node("node-b", any, &channels),
        stage.node("node-c", any, &channels)
    )?;
    let saved = Arc::new(SavedRefs::default());
    let began = Instant::now();
    screen.begin();

    let producers = tokio::spawn(scene::produce(store.clone(), a.address, Arc::clone(&saved)));
    let mut nodes: Vec<Option<NodeProcess>> = vec![Some(a), Some(b), Some(c)];
    let mut script = scene::script().into_iter().peekable();
    let mut frame = tokio::time::interval(Duration::from_millis(250));
    let ended = loop {
        frame.tick().await;
        let now = began.elapsed();
        while let Some((_, step)) = script.next_if(|(at, _)| now >= *at) {
            screen.say(&scene::perform(step, &stage, &store, &mut nodes).await?);
        }
        let census = store.census().await?;
        let alive: Vec<&str> = nodes.iter().flatten().map(|n| n.name.as_str()).collect();
        stage.bank.look(|ledger| screen.draw(now, ledger, &census, &alive));
        let open = |state: &State| matches!(state, State::Ready | State::Sending | State::Unknown);
        let waiting: u64 =
            census.iter().flat_map(|c| &c.counts).filter(|(s, _)| open(s)).map(|(_, n)| n).sum();
        if producers.is_finished() && script.peek().is_none() && waiting == 0 {
            break true;
        }
        if now > LIMIT {
            break false;
        }
    };
    producers.await.context("the producers crashed")??;

    // The nodes stop first, so that no request reaches the bank after its ledger was read.
    let mut stopped_well = true;
    for node in nodes.into_iter().flatten() {
        stopped_well &= node.stop().await?;
    }
    let rows = scene::rows(&store).await?;
    let ledger = stage.bank.ledger();
    let verdict = verdict::judge(&ledger, &saved.refs(), &rows, ended && stopped_well, began.elapsed());
    if let Ok(stage) = Arc::try_unwrap(stage).map_err(drop) {
        stage.strike().await?;
    }
    Ok(verdict)
}

//! Measures what it costs that programs follow refunds: a drain with `[notify]` beside one without, the delivery of
//! the rest, and reading `/v1/changes` from its beginning.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use sqlx::{Connection, PgConnection};

use crate::cost::settled;
use crate::cpu::{Spent, Watch};
use crate::drain::{Case, Drained, Rig};
use crate::figure::{Better, Notes};
use crate::receiver::Receiver;

const CASE: Case = Case::of(1, 64, 20_000);
const PATIENCE: Duration = Duration::from_mins(10);
/// The sizes of pages: the default, and the largest.
const PAGES: [u32; 2] = [100, 1_000];

const LAST: &str = "select max(id) from refundd.attempts";
const NOTED: &str = "select coalesce(delivered_until, 0) from refundd.feed";

pub async fn round(notes: &mut Notes) -> anyhow::Result<()> {
    let without = without(notes).await?;
    with(notes, &without).await
}

/// A drain without a receiver, and then the feed that it left.
async fn without(notes: &mut Notes) -> anyhow::Result<Drained> {
    let rig = Rig::set(CASE).await?;
    let drained = rig.drain().await?;
    note(notes, "without [notify]", &drained);
    for limit in PAGES {
        let watch = Watch::stage(&rig.stage, rig.nodes());
        let (spent, began) = (watch.read(), Instant::now());
        let changes = read_all(&rig, limit).await?;
        let rate = f64::from(changes) / began.elapsed().as_secs_f64();
        let what = format!("/v1/changes in pages of {limit}");
        notes.add(&what, "changes/s", Better::More, rate);
        note_spent(notes, &what, "µs a change", &watch.since(&spent), f64::from(changes));
    }
    rig.strike().await?;
    Ok(drained)
}

/// Reads the feed from its beginning to its end, and returns how many changes it has.
async fn read_all(rig: &Rig, limit: u32) -> anyhow::Result<u32> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let address = rig.nodes().first().context("a node runs")?.address;
    let (mut after, mut count) = ("0".to_owned(), 0);
    loop {
        let page = format!("http://{address}/v1/changes?after={after}&limit={limit}").parse()?;
        let answer = client.get(page).await?.into_body().collect().await?.to_bytes();
        let answer: Value = serde_json::from_slice(&answer)?;
        count += u32::try_from(answer["changes"].as_array().context("a page has changes")?.len())?;
        answer["next"].as_str().context("a page has a cursor")?.clone_into(&mut after);
        if answer["more"] == false {
            return Ok(count);
        }
    }
}

/// A drain while every change goes to a receiver, and the delivery of the rest.
async fn with(notes: &mut Notes, without: &Drained) -> anyhow::Result<()> {
    let receiver = Receiver::open().await?;
    let mut rig = Rig::set_with(CASE, &receiver.section()).await?;
    let mut database = PgConnection::connect(&rig.stage.database_url()).await?;
    until_all_is_noted(&mut database).await?;
    let warm = receiver.taken();
    let drained = rig.drain().await?;
    let meanwhile = receiver.taken() - warm;
    let lag = rig.store.oldest_undelivered().await?;

    let watch = Watch::stage(&rig.stage, rig.nodes());
    let (spent, began) = (watch.read(), Instant::now());
    let refunds = u64::from(drained.refunds);
    while receiver.taken() - warm < refunds {
        if began.elapsed() > PATIENCE {
            bail!("{} of {refunds} were delivered within {PATIENCE:?}", receiver.taken() - warm);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (took, spent) = (drained.took + began.elapsed(), watch.since(&spent));
    let behind = (refunds - meanwhile) as f64;

    note(notes, "with [notify]", &drained);
    notes.add("with [notify] ÷ without", "×", Better::More, drained.rate() / without.rate());
    let rate = meanwhile as f64 / drained.took.as_secs_f64();
    notes.add("delivered during the drain", "messages/s", Better::More, rate);
    notes.add("not delivered at the end of the drain", "messages", Better::Less, behind);
    notes.add("age of the oldest that is not noted as delivered", "s", Better::Less, lag.as_secs_f64());
    let rate = refunds as f64 / took.as_secs_f64();
    notes.add("delivered until the last message", "messages/s", Better::More, rate);
    let mut whole = drained.spent;
    for (who, seconds) in spent {
        *whole.entry(who).or_default() += seconds;
    }
    note_spent(notes, "until the last message", "µs a refund", &whole, refunds as f64);

    until_all_is_noted(&mut database).await?;
    // A connection reports its writes when it ends.
    rig.stop_nodes().await?;
    let written = settled(&mut database).await?;
    let versions = |table: Option<&str>| -> f64 {
        let ours = written.iter().filter(|row| table.is_none_or(|table| row.0 == table));
        ours.map(|(_, inserted, updated, deleted, _)| inserted + updated + deleted).sum::<i64>() as f64
    };
    let all = receiver.taken() as f64;
    let what = "row versions written, all tables, with [notify]";
    notes.add(what, "a refund", Better::Less, versions(None) / all);
    let what = "row versions written, the lease of the delivery";
    notes.add(what, "a message", Better::Less, versions(Some("feed")) / all);
    database.close().await?;
    rig.strike().await
}

/// Waits until the lease's row says that every line of the journal is delivered.
async fn until_all_is_noted(database: &mut PgConnection) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let last: i64 = sqlx::query_scalar(LAST).fetch_one(&mut *database).await?;
        let noted: i64 = sqlx::query_scalar(NOTED).fetch_one(&mut *database).await?;
        if noted >= last {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            bail!("the lease says line {noted} of {last}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn note(notes: &mut Notes, name: &str, drained: &Drained) {
    notes.add(format!("{name}: {} refunds", drained.refunds), "refunds/s", Better::More, drained.rate());
    note_spent(notes, name, "µs a refund", &drained.spent, f64::from(drained.refunds));
}

fn note_spent(notes: &mut Notes, name: &str, unit: &str, spent: &Spent, count: f64) {
    for who in ["Postgres", "nodes"] {
        let seconds = spent.get(who).copied().unwrap_or_default();
        notes.add(format!("{name}: core time of {who}"), unit, Better::Less, seconds * 1_000_000.0 / count);
    }
}

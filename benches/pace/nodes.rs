//! Reads refundd's own counts of a run: its nodes' metrics and its rows.
//!
//! None of these counts decides whether a promise was kept.

use std::collections::{BTreeMap, HashSet};

use anyhow::Context;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use playground::bank::Ledger;
use playground::stage::NodeProcess;
use sqlx::PgConnection;

use super::case::Case;
use super::judge::Inside;

pub const CHANNEL: &str = "acme";

/// A metric, and the label by which it is added up, both as they begin in the metrics text.
#[derive(Debug)]
pub struct Counter {
    pub metric: &'static str,
    pub label: &'static str,
}

/// Adds up the nodes' counts of takes and unused permits.
pub async fn counted(nodes: &[NodeProcess], inside: &mut Inside) -> anyhow::Result<()> {
    inside.takes = sums(nodes, &Counter { metric: "refundd_takes_total{", label: "answer=\"" }).await?;
    inside.permits_unused =
        sums(nodes, &Counter { metric: "refundd_permits_unused_total{", label: "reason=\"" }).await?;
    Ok(())
}

/// One metric of all nodes, added up by one of its labels.
pub async fn sums(nodes: &[NodeProcess], counter: &Counter) -> anyhow::Result<BTreeMap<String, u64>> {
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let mut sums = BTreeMap::new();
    for node in nodes {
        let answer = client.get(format!("http://{}/metrics", node.address).parse()?).await?;
        let page = answer.into_body().collect().await.context("failed to read a node's metrics")?.to_bytes();
        add(&String::from_utf8_lossy(&page), counter.metric, counter.label, &mut sums);
    }
    Ok(sums)
}

/// Adds the lines of one metric by one of its labels.
fn add(page: &str, metric: &str, label: &str, sums: &mut BTreeMap<String, u64>) {
    for line in page.lines().filter(|line| line.starts_with(metric)) {
        let name = line.split_once(label).and_then(|(_, rest)| rest.split_once('"'));
        let count = line.rsplit_once(' ').and_then(|(_, count)| count.parse::<u64>().ok());
        if let (Some((name, _)), Some(count)) = (name, count) {
            *sums.entry(name.to_owned()).or_default() += count;
        }
    }
}

/// Compares every row with the bank's ledger, after the nodes have ended.
pub async fn rows(database: &mut PgConnection, ledger: &Ledger, inside: &mut Inside) -> anyhow::Result<()> {
    let rows: Vec<(String, String)> = sqlx::query_as("select refund_ref, state from refundd.refunds")
        .fetch_all(database)
        .await
        .context("failed to read the rows")?;
    let paid: HashSet<&str> = ledger.all().iter().filter(|a| a.paid).map(|a| &*a.refund_ref).collect();
    for (refund_ref, state) in &rows {
        match (state.as_str(), paid.contains(refund_ref.as_str())) {
            ("ready", false) => inside.waiting += 1,
            ("ready", true) => inside.would_repeat += 1,
            (_, false) => inside.lost += 1,
            (_, true) => {}
        }
    }
    Ok(())
}

/// The journal's entries for the first and the last arrival of a span. They show whether a byte was late or a permit
/// early.
pub async fn evidence(
    database: &mut PgConnection,
    ledger: &Ledger,
    from_us: i64,
) -> anyhow::Result<Vec<String>> {
    let until_us = from_us + i64::try_from(Case::PER.as_micros())?;
    let mut span: Vec<(i64, &str)> = ledger
        .arrivals(CHANNEL)
        .filter(|arrival| (from_us..until_us).contains(&arrival.at_us))
        .map(|arrival| (arrival.at_us, &*arrival.refund_ref))
        .collect();
    span.sort_unstable();
    let mut lines = Vec::new();
    for (at_us, refund_ref) in span.first().into_iter().chain(span.last()) {
        let row: Option<(i64, Option<String>, String)> = sqlx::query_as(
            "select (extract(epoch from a.started_at) * 1000000)::bigint, a.permit, a.node
               from refundd.attempts a join refundd.refunds r on r.id = a.refund_id
              where r.refund_ref = $1 and a.started_at is not null",
        )
        .bind(refund_ref)
        .fetch_optional(&mut *database)
        .await
        .context("failed to read the journal")?;
        let Some((started_us, permit, node)) = row else { continue };
        lines.push(format!(
            "{refund_ref} arrived {:.1} ms after the span began, {:.1} ms after {node} says it left, under {}",
            (at_us - from_us) as f64 / 1000.0,
            (at_us - started_us) as f64 / 1000.0,
            permit.unwrap_or_default(),
        ));
    }
    Ok(lines)
}

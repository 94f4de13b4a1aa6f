//! `GET /nodes`: the living nodes, and the limits of this node with the channels that share each.

use std::collections::BTreeMap;

use axum::extract::State;
use maud::{Markup, html};
use serde::Deserialize;

use super::super::query::Parameters;
use super::super::{Api, Problem, Who};
use super::numbered::NumberedPage;
use super::parts::{PerUnit, Tone, badge, cell, count, foreign, head, time, whole};
use super::watch::Cluster;
use super::{Page, Tab};
use crate::limiter::{Limit, Placement};
use crate::store::NodeRow;

/// Channels that are named beside a limit.
const MOST_CHANNELS: usize = 8;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct NodesQuery {
    /// A part of a limit's name.
    q: String,
    page: usize,
}

/// `GET /nodes`.
pub(in crate::http) async fn show(
    State(api): State<Api>,
    who: Who,
    Parameters(query): Parameters<NodesQuery>,
) -> Result<Page, Problem> {
    let cluster = api.watch.cluster(&api.node.store, &who).await?;
    let running = api.node.running();
    // Limits of the channels that exist for the one who asks.
    let mut limits: BTreeMap<&str, (&Limit, Vec<&str>)> = BTreeMap::new();
    for limit in &running.limits {
        if who.has_limit(limit.name.as_str()) {
            limits.insert(limit.name.as_str(), (limit, Vec::new()));
        }
    }
    for channel in running.channels.iter().filter(|channel| who.has_channel(channel.name.as_str())) {
        for limit in &channel.limits {
            limits.entry(limit.name.as_str()).or_insert((limit, Vec::new())).1.push(channel.name.as_str());
        }
    }
    let q = query.q.trim();
    let found: Vec<_> =
        limits.into_iter().filter(|(name, _)| name.contains(q)).map(|(_, limit)| limit).collect();
    let page = NumberedPage::new(query.page, found.len());
    let body = html! {
        h1 { "Nodes and limits" }
        section aria-labelledby="nodes" {
            h2 #nodes { "Nodes" }
            div #list data-live { (nodes(&cluster, &api, &who)) }
        }
        section aria-labelledby="limits" {
            h2 #limits { "Limits of this node" }
            form.filter action="/nodes" {
                label { "Name contains" input type="search" name="q" value=(q) maxlength="63" autocomplete="off"; }
                button { "Filter" }
            }
            @if found.is_empty() { p.empty { "No limit matches." } }
            @else {
                (table(&found[page.places()], &api))
                (page.links("/nodes", "limit", &[("q", q)]))
            }
        }
    };
    Ok(Page::new(Tab::Nodes, "Nodes and limits", &who, body).every(5))
}

fn nodes(cluster: &Cluster, api: &Api, who: &Who) -> Markup {
    let sees_all = who.has_all_channels();
    let leading = cluster.nodes.iter().find(|node| node.lives).map(|node| node.name.as_str());
    let own_name = api.node.name.split('#').next().unwrap_or_default();
    let own = cluster.nodes.iter().find(|node| node.lives && node.name == own_name);
    let differs = |node: &NodeRow| {
        node.lives
            && own
                .is_some_and(|own| own.config_digest != node.config_digest && !node.config_digest.is_empty())
    };
    html! {
        table.stack role="table" {
            (head("The nodes, the leading one first", &["Node", "State", "Version", "Channels", "Runs since", "Last heartbeat", "Buckets"]))
            tbody role="rowgroup" {
                @for node in &cluster.nodes {
                    tr role="row" {
                        th scope="row" role="rowheader" { (foreign(&node.name)) @if node.name == own_name { " (this node)" } }
                        (cell("State", &html! {
                            (standing(node, differs(node)))
                            @if leading == Some(node.name.as_str()) { " leads" }
                            @if let Some(why) = &node.redis_trouble { p.small { (foreign(who.server_reason(why))) } }
                            @if differs(node) { p.small { "Its channels or limits differ from those of this node; the stricter rule counts." } }
                        }))
                        (cell("Version", &html! { (node.version) }))
                        (cell("Channels", &html! {
                            @if sees_all { (whole(u64::try_from(node.channels).unwrap_or(0))) } @else { span.none { "not for this caller" } }
                        }))
                        (cell("Runs since", &html! { @if let Some(at) = node.started_at { (time(at)) } }))
                        (cell("Last heartbeat", &html! { @if let Some(at) = node.seen_at { (time(at)) } }))
                        (cell("Buckets", &html! { "in " (node.bucket) }))
                    }
                }
            }
        }
    }
}

fn standing(node: &NodeRow, differs: bool) -> Markup {
    match (node.lives, node.redis_trouble.is_some(), differs) {
        (false, _, _) => badge(Tone::Bad, "silent"),
        (true, true, _) => badge(Tone::Bad, "without Redis"),
        (true, false, true) => badge(Tone::Warning, "other file"),
        (true, false, false) => badge(Tone::Good, "alive"),
    }
}

fn table(limits: &[(&Limit, Vec<&str>)], api: &Api) -> Markup {
    html! {
        table.stack role="table" {
            (head("Limits, by name", &["Limit", "Rule", "Rate", "Counted", "Channels"]))
            tbody role="rowgroup" {
                @for (limit, channels) in limits {
                    @let unit = PerUnit::of(limit.rule.per_second());
                    tr role="row" {
                        th scope="row" role="rowheader" { (limit.name) }
                        (cell("Rule", &html! {
                            (limit.rule.describe()) " (" code { (limit.rule.algorithm.name()) } ")"
                            @if let Some(stricter) = api.node.status_report.stricter_rule(&limit.name) {
                                p.small { "Another node's file is stricter (" (foreign(&stricter)) "), and that rule counts." }
                            }
                        }))
                        (cell("Rate", &html! { @let rate = unit.rate(limit.rule.per_second());
                            (rate) @if rate == "1" { " permit a " } @else { " permits a " } (unit.name) }))
                        (cell("Counted", &html! {
                            @match limit.placement {
                                Placement::Shared => "by all nodes together",
                                Placement::LocalShare { nodes } => { "in " (nodes) " shares, one for each node" }
                            }
                        }))
                        (cell("Channels", &html! {
                            @if channels.is_empty() { span.none { "none; other services may acquire its permits" } }
                            @for (nth, channel) in channels.iter().take(MOST_CHANNELS).enumerate() {
                                @if nth > 0 { ", " }
                                a href={ "/channels/" (channel) } { (channel) }
                            }
                            @if channels.len() > MOST_CHANNELS { " and " (count((channels.len() - MOST_CHANNELS) as u64, "other channel")) }
                        }))
                    }
                }
            }
        }
    }
}

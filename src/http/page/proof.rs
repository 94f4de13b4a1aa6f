//! `GET /proof`: what `refundd prove` says of one channel and a chosen period.
//!
//! A proof reads every permit of the period. So the period is bounded, a node makes one proof at a time, and a proof that
//! takes too long is given up; the command has none of these bounds. Each viewer has one proof in the queue, so that a viewer who
//! makes many keeps nobody else from one.

use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::StatusCode;
use maud::{Markup, html};
use serde::Deserialize;
use tokio::time::timeout;

use super::super::named_channel::no_such_channel;
use super::super::query::Parameters;
use super::super::{Api, Problem, Who};
use super::parts::{Tone, badge, foreign, span, time, with_times};
use super::{Page, Tab, moments};
use crate::limit_proof::{LimitVerdict, Proved, limits_of, prove_one, report};
use crate::prove::{self, Period, When, WrongPeriod};
use crate::refund::ChannelName;
use crate::refund::draft::FieldError;

/// The longest period of a proof on the page.
const MOST: Duration = Duration::from_hours(24);
/// The longest time for making it.
const MOST_TIME: Duration = Duration::from_secs(20);
/// The longest wait for the proofs of other viewers.
const MOST_WAIT: Duration = Duration::from_secs(40);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct ProofQuery {
    channel: String,
    from: String,
    to: String,
}

/// `GET /proof`.
pub(in crate::http) async fn show(
    State(api): State<Api>,
    who: Who,
    Parameters(query): Parameters<ProofQuery>,
) -> Result<Page, Problem> {
    let channel = query.channel.trim();
    let found = if channel.is_empty() { None } else { Some(prove(&api, &who, &query).await?) };
    let body = html! {
        h1 { "Proof" }
        p { "Counts every spent permit of a period again, and compares it with the rule that was in force: what "
            code { (command(&query)) } " says." }
        (form(&query))
        @if let Some((period, proofs)) = found { (result(channel, period, &proofs)) }
    };
    Ok(Page::new(Tab::Proof, "Proof", &who, body))
}

/// The command that proves the same.
fn command(query: &ProofQuery) -> String {
    let (channel, from, to) = (query.channel.trim(), query.from.trim(), query.to.trim());
    // A time of day, or one without a zone, is for the page alone.
    let is_plain = |text: &str| text.is_empty() || !text.contains(':') || When::read(text).is_ok();
    if ChannelName::new(channel).is_err() || !is_plain(from) || !is_plain(to) {
        return "refundd prove --from 1h".to_owned();
    }
    let part =
        |name: &str, text: &str| if text.is_empty() { String::new() } else { format!(" --{name} {text}") };
    let from = if from.is_empty() { "1h" } else { from };
    format!("refundd prove{}{}{}", part("channel", channel), part("from", from), part("to", to))
}

fn form(query: &ProofQuery) -> Markup {
    let or =
        |text: &str, default: &str| if text.trim().is_empty() { default.to_owned() } else { text.to_owned() };
    html! {
        form.filter action="/proof" {
            label { "Channel" input type="text" name="channel" value=(query.channel) required maxlength="63" autocomplete="off"; }
            (moments::field("From", "from", &or(&query.from, "1h"), None, true))
            (moments::field("To", "to", &or(&query.to, "now"), None, true))
            button.primary { "Prove" }
        }
        p #times .hint {
            (moments::HINT) " A period has at most 24 hours here; the command proves longer ones."
        }
    }
}

fn wrong(field: &str, value: &str, message: impl Into<String>) -> Problem {
    Problem::invalid(vec![FieldError::new(field, Some(&value.into()), message)])
}

fn too_much() -> Problem {
    let detail = format!(
        "the proof took longer than {}; choose a shorter period, or use the command `refundd prove`, which has no such bound",
        span(MOST_TIME)
    );
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too-slow", "Took too long", detail)
}

/// The message without the field's name, which stands before it.
fn without(problem: &WrongPeriod, name: &str) -> String {
    let text = problem.to_string();
    text.strip_prefix(name).map_or(text.clone(), str::to_owned)
}

async fn prove(api: &Api, who: &Who, query: &ProofQuery) -> Result<(Period, Vec<Proved>), Problem> {
    let (from, to) = (query.from.trim(), query.to.trim());
    let (store, clocks) = (&api.node.store, api.node.bucket.tolerance());
    let now = store.now().await?;
    let read = |field: &str, text: &str, default: &str| {
        moments::read(if text.is_empty() { default } else { text }, now)
            .map_err(|message| wrong(field, text, message))
    };
    let (from_when, to_when) = (read("from", from, "1h")?, read("to", to, "now")?);
    let period = Period::between(from_when, to_when, now, clocks).map_err(|problem| match problem {
        WrongPeriod::TooLongAgo(_) | WrongPeriod::Empty { .. } => {
            wrong("from", from, without(&problem, "from "))
        }
        WrongPeriod::Future { .. } => wrong("to", to, without(&problem, "to ")),
    })?;
    let length = Duration::from_micros(u64::try_from(period.to_us - period.from_us).unwrap_or(u64::MAX));
    if length > MOST {
        let message = format!(
            "makes a period of {}; the page proves at most {}, and `refundd prove` has no such bound",
            span(length),
            span(MOST)
        );
        return Err(wrong("from", from, message));
    }
    let busy = "this node makes other proofs; nothing was done, and repeating is safe";
    let one = api.watch.proofs.place_within(who, MOST_WAIT, busy).await?;
    let (store, channel) = (store.clone(), query.channel.trim().to_owned());
    let is_seen = who.has_channel(&channel);
    // Postgres goes on with a statement that nobody waits for, and no other proof may begin beside it.
    let all = tokio::spawn(async move {
        let _one = one;
        let began = Instant::now();
        let known = store.provable().await?;
        let limits = limits_of(&channel, &known).filter(|_| is_seen);
        let limits = limits.ok_or_else(|| no_such_channel(&channel))?;
        let mut all = Vec::with_capacity(limits.len());
        for limit in limits {
            if began.elapsed() > MOST_TIME {
                return Err(too_much());
            }
            all.push(prove_one(&store, &known, limit, period, now, clocks, &mut |_| ()).await?);
        }
        Ok(all)
    });
    let proofs = timeout(MOST_TIME, all).await.map_err(|_| too_much())?;
    Ok((period, proofs.unwrap_or_else(|_| Err(Problem::internal()))?))
}

/// A label of the command's report, as labels are written on the page.
fn capital(label: &str) -> String {
    let mut letters = label.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn result(channel: &str, period: Period, proofs: &[Proved]) -> Markup {
    let at =
        |us: i64| jiff::Timestamp::from_microsecond(us).map_or_else(|_| html! { (prove::time(us)) }, time);
    html! {
        section aria-labelledby="result" {
            h2 #result { "Channel " (foreign(channel)) ", " (at(period.from_us)) " to " (at(period.to_us)) }
            @if proofs.is_empty() { p { "The channel is unlimited, so there is nothing to prove." } }
            @for proved in proofs {
                @let (tone, word) = match proved.verdict() {
                    LimitVerdict::Kept => (Tone::Good, "held"),
                    LimitVerdict::Broken => (Tone::Bad, "broken"),
                    LimitVerdict::Unproven => (Tone::Warning, "unproven"),
                };
                h3 { "Limit " (foreign(&proved.limit)) }
                p.standing { (badge(tone, word)) " " (report::sentence(proved)) }
                dl.facts { @for (label, text) in report::lines(proved) { div { dt { (capital(label)) } dd { (with_times(&text)) } } } }
            }
        }
    }
}

//! `refundd show`: finds a refund by any of its names and tells its story.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use serde_json::json;

use crate::caller::Names;
use crate::desk;
use crate::desk::channel::ChannelStatus;
use crate::desk::forecasts::Measured;
use crate::desk::story::Story;
use crate::refund::Refund;
use crate::refund::text::{shown, shown_json};
use crate::store::{Found, FoundRefunds, Store};

/// The most refunds that are listed.
const MOST: u32 = 100;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Its ref, id, request id (the key that the bank sees), bank reference or payment ref; also with a version, as
    /// `refundd review` lists it: 4711@7
    #[arg(value_name = "NAME")]
    name: String,
    /// For programs: one JSON object, with the names of GET /v1/refunds/find
    #[arg(long)]
    json: bool,
}

pub(super) async fn show(args: Args, store: &Store) -> anyhow::Result<ExitCode> {
    let mut all = store.find(&args.name, &Names::All, MOST).await?;
    let versioned =
        args.name.rsplit_once('@').and_then(|(name, seen)| Some((name, seen.parse::<i32>().ok()?)));
    if let Some((name, seen)) = versioned.filter(|_| all.found.is_empty()) {
        all = store.find(name, &Names::All, MOST).await?;
        for Found { refund, .. } in all.found.iter().filter(|one| one.refund.version != seen) {
            eprintln!(
                "refundd: refund {} is not at version {seen}: it is at version {} now",
                refund.id, refund.version
            );
        }
    }
    let FoundRefunds { found, more } = all;
    let story = match found.as_slice() {
        [] => bail!(
            "no refund has the ref, id, request id, bank reference or payment ref `{}`",
            shown(&args.name)
        ),
        [Found { refund, .. }] => story(store, refund.clone()).await?,
        _ => None,
    };
    let page = if args.json {
        let matches: Vec<_> =
            found.iter().map(|Found { refund, by }| json!({ "found_by": by, "refund": refund })).collect();
        let found = json!({ "matches": matches, "more": more, "story": story });
        format!("{}\n", shown_json(serde_json::to_string_pretty(&found)?))
    } else {
        match &story {
            Some(story) => page(story),
            None => list(&found, more),
        }
    };
    print!("{page}");
    Ok(ExitCode::SUCCESS)
}

/// The story of a refund in words.
pub(super) async fn story_text(store: &Store, refund: Refund) -> anyhow::Result<String> {
    let id = refund.id;
    let Some(story) = story(store, refund).await? else { bail!("there is no refund {id}") };
    Ok(page(&story))
}

async fn story(store: &Store, refund: Refund) -> anyhow::Result<Option<Story>> {
    let reports = store.status_reports().await?;
    let measured = Measured::of_reports(reports.iter().map(|(_, report)| report));
    let census = desk::census(store, &measured).await?;
    let status = census.iter().find(|channel| channel.channel == refund.channel).map(|channel| {
        let mut status = ChannelStatus::of(channel);
        status.note_reports(&reports);
        status
    });
    Ok(Story::read(store, refund, Ok(&census), &measured, status.as_ref()).await?)
}

fn list(found: &[Found], more: bool) -> String {
    let mut page = String::new();
    for Found { refund, by } in found {
        let _ = writeln!(
            page,
            "{:>12}  {}  {:<10} {:<12} {:>16}  {}  ({})",
            refund.id,
            refund.request_id,
            refund.state.as_str(),
            shown(&refund.channel),
            shown(&refund.money.to_string()),
            shown(&refund.refund_ref),
            by.join(", "),
        );
    }
    let than = if more { "More than " } else { "" };
    let count = found.len();
    // An id may be the payment ref or the ref of other refunds: it could list them again.
    let _ = writeln!(page, "\n{than}{count} refunds have this name. See one: refundd show REQUEST_ID");
    page
}

fn page(story: &Story) -> String {
    let refund = &story.refund;
    let mut page = format!("Refund {}, {}, is {}\n", refund.id, shown(&refund.refund_ref), refund.state);
    let mut line = |label: &str, text: &str| {
        let _ = writeln!(page, "  {label:<12} {}", shown(text));
    };
    line("channel", &refund.channel);
    line("amount", &refund.money.to_string());
    line("payment", &refund.payment_ref);
    line("request id", &refund.request_id.to_string());
    line("bank", refund.bank_ref.as_deref().unwrap_or("no reference known"));
    line("attempts", &format!("{}, version {}", refund.attempts, refund.version));
    if let Some(reason) = &refund.reason {
        line("reason", reason);
    }
    if let Some(at) = refund.uncertain_since {
        line("uncertain", &format!("since {at:.0} an earlier send may have been executed"));
    }
    if let Some(at) = refund.deadline_at {
        line("deadline", &format!("{at:.0}"));
    }
    if let Some(awaited) = &story.waits_for {
        line("waits for", &awaited.text);
    }
    if let Some((place, of)) = story.place.zip(story.of) {
        line("place", &format!("{place} of {of} that are ready"));
    }
    if let Some((at, seconds)) = story.expected_at.zip(story.expected_in_seconds) {
        let left = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        line("expected", &format!("at about {at:.0}, in {}", super::status::span(left)));
    } else if let Some(why) = &story.no_forecast_because {
        line("expected", &format!("unknown: {why}"));
    }
    page.push('\n');
    if let Some(before) = story.forgotten_before {
        let _ = writeln!(page, "The journal goes back to {before:.0}; earlier attempts may be missing.");
    }
    for happening in &story.happened {
        let _ = writeln!(page, "{:.3}  {:<8}  {}", happening.at, happening.what, shown(&happening.text));
    }
    page
}

//! What a form did, in words. A link to the page may be old, and somebody else may have changed the suspension since: so the
//! words stand only where what suspends the channel, or everything, now agrees with them.

use std::time::Duration;

use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::super::pauses::{Done, PauseResult};
use super::super::{Api, Problem, Who};
use super::parts::with_times;
use crate::caller::Names;
use crate::desk::channel::SuspensionStatus;
use crate::store::{Event, EventFilter, SuspendedBy, Suspension};

/// Among so many events the end of a suspension is looked for.
const MOST: u32 = 20;

/// For so long after its end a page says which suspension a form ended.
const SAID_FOR: Duration = Duration::from_hours(1);

/// How long a page waits for its place to look for that suspension. Then it comes without.
const LOOK_WAIT: Duration = Duration::from_secs(2);

/// What a form on a page did.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct Said {
    pub(super) done: String,
    /// The cause that the form was about.
    of: String,
    /// When the suspension began that it ended, or that its page showed; of a cooling, its end.
    since: String,
}

impl Said {
    /// After a form that changed something, or that had nothing to change.
    pub(super) fn after(done: &Done, cause: SuspendedBy) -> Said {
        let (word, of) = match done.result {
            PauseResult::Paused => ("paused", ""),
            PauseResult::Resumed if done.is_free() => ("resumed", cause.as_str()),
            PauseResult::Resumed => ("ended", cause.as_str()),
            PauseResult::WasNotSuspended => ("unchanged", cause.as_str()),
        };
        let since = done.ended.as_ref().and_then(|ended| ended.since.or(ended.until));
        let since = since.map_or_else(String::new, |since| since.to_string());
        Said { done: word.to_owned(), of: of.to_owned(), since }
    }

    /// After a form that changed nothing, because the suspension is another one than its page showed.
    pub(super) fn changed(cause: SuspendedBy, seen: &str) -> Said {
        Said { done: "changed".to_owned(), of: cause.as_str().to_owned(), since: seen.to_owned() }
    }

    /// As it stands in an address.
    pub(super) fn query(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in [("done", &self.done), ("of", &self.of), ("since", &self.since)] {
            if !value.is_empty() {
                query.append_pair(name, value);
            }
        }
        query.finish()
    }
}

/// What a form did to a channel, or to everything, that is suspended by this now; `None` if that does not agree.
pub(super) async fn notice(
    api: &Api,
    who: &Who,
    said: &Said,
    channel: Option<&str>,
    now: &[Suspension],
) -> Result<Option<Markup>, Problem> {
    let by_a_person = if channel.is_some() { SuspendedBy::Person } else { SuspendedBy::All };
    let same = now.iter().find(|one| one.by.as_str() == said.of);
    let since = |one: &Suspension| one.seen_as().map(|since| since.to_string());
    let mut ended = None;
    let words = match said.done.as_str() {
        "paused" if now.iter().any(|one| one.by == by_a_person) => {
            "Paused: nothing more is claimed, and every node knows within a second. Requests in progress still end."
        }
        "resumed" | "ended" if same.is_none() => {
            ended = ended_by_form(api, who, said, channel).await?;
            match (now.is_empty(), &ended) {
                (true, _) => "Resumed: refunds are sent again within a second.",
                (false, Some(_)) => "Ended. Something else still suspends it, as shown below.",
                (false, None) => return Ok(None),
            }
        }
        "unchanged" if same.is_none() && !said.of.is_empty() => {
            "It was not suspended for that cause any more; nothing was changed."
        }
        "changed" if same.is_some_and(|one| since(one).as_ref() != Some(&said.since)) => {
            "Nothing was changed: what suspends it now is not what you saw. Read it below before you decide."
        }
        _ => return Ok(None),
    };
    Ok(Some(html! {
        p.notice role="status" { (words) @if let Some(ended) = ended { " " (with_times(&ended)) } }
    }))
}

/// Whose suspension a form ended, since when and why: as the events have it, whatever the address says.
async fn ended_by_form(
    api: &Api,
    who: &Who,
    said: &Said,
    channel: Option<&str>,
) -> Result<Option<String>, Problem> {
    let Ok(since) = said.since.parse::<Timestamp>() else { return Ok(None) };
    let filter = EventFilter {
        channel: Some(channel.unwrap_or("*").to_owned()),
        without_refunds: true,
        // Anybody may follow a link with any `since`: it must not choose how much is read.
        since: Some(SAID_FOR),
        limit: MOST,
        ..EventFilter::of(Names::All)
    };
    let Ok(place) = api.lists.place_within(who, LOOK_WAIT, "lists are read").await else { return Ok(None) };
    let node = api.node.clone();
    let events = place.run(async move { Ok(node.store.events(&filter).await?.events) }).await?;
    Ok(events.iter().find_map(|event| ended(event, channel, since)))
}

/// The suspension that people saw as `seen`, if this event is its end.
fn ended(event: &Event, channel: Option<&str>, seen: Timestamp) -> Option<String> {
    let by = match (event.kind.as_str(), channel) {
        ("resumed", Some(_)) => SuspendedBy::Person,
        ("resumed", None) => SuspendedBy::All,
        ("released", _) => SuspendedBy::Credentials,
        ("breaker_ended", _) => SuspendedBy::Breaker,
        ("cooling_ended", _) => SuspendedBy::Cooling,
        _ => return None,
    };
    let before = event.before.as_ref()?;
    let text = |key: &str| before.get(key).and_then(Value::as_str);
    let is_about = event.channel.as_deref() == Some(channel.unwrap_or("*"));
    let moment = |key: &str| text(key).and_then(|text| text.parse::<Timestamp>().ok());
    let (reason, who) = (text("reason")?.to_owned(), text("who").unwrap_or_default().to_owned());
    let (channel, since, until) = (channel.map(str::to_owned), moment("since"), moment("until"));
    let ended = Suspension { channel, by, reason, who, since, until, left: None, probe_in: None };
    (is_about && ended.seen_as() == Some(seen)).then(|| SuspensionStatus::from(ended).past_sentence())
}

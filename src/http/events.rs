//! `GET /v1/events`: who changed what, newest first.

use std::time::Duration;

use axum::extract::State;
use serde::Serialize;

use super::query::{self, Pairs, Parameters, read_each};
use super::{Api, Json, Problem, Who, named_channel};
use crate::caller::Names;
use crate::refund::RefundId;
use crate::refund::draft::FieldError;
use crate::store::{Event, EventFilter, EventPage};

/// Events on a page, unless the caller gives a number.
const LIMIT: u32 = 100;
/// The most events on a page.
const MOST: u32 = 1000;
/// The longest `since_seconds`, some 31 years.
const MOST_SECONDS: u64 = 1_000_000_000;

/// One page of events, newest first.
#[derive(Debug, Serialize)]
pub(super) struct EventList {
    events: Vec<Event>,
    /// The value for `after` that gets the next page; null on the last page.
    next: Option<String>,
}

/// `GET /v1/events`.
pub(super) async fn list(
    State(api): State<Api>,
    who: Who,
    Parameters(pairs): Parameters<Pairs>,
) -> Result<Json<EventList>, Problem> {
    let filter = filter(pairs, who.channels()).map_err(Problem::invalid)?;
    named_channel::exists(&api, &who, filter.channel.as_deref()).await?;
    let node = api.node.clone();
    let read = async move { Ok(node.store.events(&filter).await?) };
    let EventPage { events, next } = api.lists.place(&who).await.run(read).await?;
    Ok(Json(EventList { events, next: next.map(|next| next.to_string()) }))
}

/// Reads the query. The error names every wrong parameter.
fn filter(pairs: Pairs, channels: Names) -> Result<EventFilter, Vec<FieldError>> {
    let mut filter = EventFilter { limit: LIMIT, ..EventFilter::of(channels) };
    read_each(pairs, |name, text| read(&mut filter, name, text))?;
    Ok(filter)
}

/// Reads one parameter into `filter`. Fails with what is wrong with it.
fn read(filter: &mut EventFilter, name: &str, text: &str) -> Result<(), String> {
    let number = || text.parse::<u64>().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
    match name {
        "channel" => filter.channel = Some(query::channel(text)?),
        "refund_id" => match number().and_then(|id| i64::try_from(id).ok()).filter(|id| *id > 0) {
            Some(id) => filter.refund = Some(RefundId(id)),
            None => return Err("must be a refund's id, a positive whole number".to_owned()),
        },
        "since_seconds" => match number().filter(|seconds| (1..=MOST_SECONDS).contains(seconds)) {
            Some(seconds) => filter.since = Some(Duration::from_secs(seconds)),
            None => return Err(format!("must be a whole number of seconds from 1 to {MOST_SECONDS}")),
        },
        "limit" => filter.limit = query::limit(text, MOST)?,
        "after" => match text.parse() {
            Ok(after) => filter.after = Some(after),
            Err(()) => return Err("must be the `next` of a page before".to_owned()),
        },
        _ => {
            let known = "is unknown; there are channel, refund_id, since_seconds, limit and after";
            return Err(known.to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(query: &str) -> Result<EventFilter, Vec<FieldError>> {
        filter(query::pairs(query), Names::All)
    }

    #[test]
    fn a_query_is_read_into_a_filter_and_every_wrong_parameter_is_named() {
        let filter = parsed("channel=acme&refund_id=7&since_seconds=7200&limit=5&after=12-3").unwrap();
        assert_eq!((filter.channel.as_deref(), filter.refund), (Some("acme"), Some(RefundId(7))));
        assert_eq!((filter.since, filter.limit), (Some(Duration::from_hours(2)), 5));
        assert_eq!(filter.after.unwrap().to_string(), "12-3");
        assert_eq!(parsed("").unwrap().limit, 100);
        assert!(parsed("since_seconds=1000000000").is_ok() && parsed("since_seconds=1000000001").is_err());
        let bad = "channel=A%20B&refund_id=0&since_seconds=2h&limit=1001&after=x&colour=red&limit=1";
        let errors = parsed(bad).unwrap_err();
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["channel", "refund_id", "since_seconds", "limit", "after", "colour", "limit"]);
    }
}

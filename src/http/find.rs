//! Finds a refund by any of its names and tells its story.

use std::sync::Arc;
use std::time::Duration;

use axum::extract;
use axum::http::StatusCode;
use serde::Serialize;

use super::census::uncounted;
use super::query::{Pairs, Parameters, read_each};
use super::{Api, Json, Problem, Who, channels};
use crate::desk::channel::ChannelStatus;
use crate::desk::forecasts::Measured;
use crate::desk::story::Story;
use crate::refund::draft::FieldError;
use crate::refund::{Refund, State};
use crate::store::{ChannelCensus, Found, FoundRefunds};

/// The most refunds of an answer. Only a payment ref can have more.
const MOST: u32 = 100;
/// No name is longer.
const MOST_CHARACTERS: usize = 200;

/// The census, or why there is none.
pub(super) type CensusRead = Result<Arc<Vec<ChannelCensus>>, Problem>;

/// The refunds with a name, and the story of the only one.
#[derive(Debug, Serialize)]
pub(super) struct FindAnswer {
    matches: Vec<Match>,
    /// Whether more refunds have the name than are listed.
    more: bool,
    /// Null if several refunds have the name.
    story: Option<Story>,
}

#[derive(Debug, Serialize)]
struct Match {
    /// Which of its names: `refund_ref`, `id`, `request_id`, `bank_ref`, `payment_ref`.
    found_by: Vec<String>,
    refund: Refund,
}

/// `GET /v1/refunds/find`.
pub(super) async fn find(
    extract::State(api): extract::State<Api>,
    who: Who,
    Parameters(pairs): Parameters<Pairs>,
) -> Result<Json<FindAnswer>, Problem> {
    let q = name_in(pairs).map_err(Problem::invalid)?;
    let FoundRefunds { found, more } = named(&api, &who, q, MOST).await?;
    if found.is_empty() {
        let detail = "no refund has this ref, id, request id, bank reference or payment ref".to_owned();
        return Err(Problem::new(StatusCode::NOT_FOUND, "no-such-refund", "No such refund", detail));
    }
    let story = match found.as_slice() {
        [Found { refund, .. }] => {
            let census = census_for(&api, refund, channels::MOST_PATIENCE).await;
            let (api_of_read, refund) = (api.clone(), refund.clone());
            let read = async move { story(&api_of_read, refund, &census).await };
            api.lists.place(&who).await.run(read).await?
        }
        _ => None,
    };
    let matches = found.into_iter().map(|Found { refund, by }| Match { found_by: by, refund }).collect();
    let story = story.map(|story| story.shown_to(&who.channels()));
    Ok(Json(FindAnswer { matches, more, story }))
}

/// Reads the query. The error names every wrong parameter.
fn name_in(pairs: Pairs) -> Result<String, Vec<FieldError>> {
    let expected = || format!("must be a name of 1 to {MOST_CHARACTERS} characters");
    let mut q = None;
    read_each(pairs, |name, text| match name {
        "q" if (1..=MOST_CHARACTERS).contains(&text.chars().count()) => {
            q = Some(text.to_owned());
            Ok(())
        }
        "q" => Err(expected()),
        _ => Err("is unknown; there is q".to_owned()),
    })?;
    q.ok_or_else(|| vec![FieldError::new("q", None, format!("is missing; it {}", expected()))])
}

/// The refunds that have this name.
pub(super) async fn named(api: &Api, who: &Who, name: String, most: u32) -> Result<FoundRefunds, Problem> {
    let (node, channels) = (api.node.clone(), who.channels());
    let read = async move { Ok(node.store.find(&name, &channels, most).await?) };
    api.lists.place(who).await.run(read).await
}

/// The census, for the story of this refund. Only one that is ready has a place and a forecast.
pub(super) async fn census_for(api: &Api, refund: &Refund, patience: Duration) -> CensusRead {
    if refund.state == State::Ready { api.census.now(api, patience).await } else { Ok(Arc::default()) }
}

/// The story of a refund, with what this node knows of its channel. Without counts it lacks the forecast.
pub(super) async fn story(api: &Api, refund: Refund, census: &CensusRead) -> Result<Option<Story>, Problem> {
    let why_none = census.as_ref().err().map(uncounted).unwrap_or_default();
    let census = census.as_ref().map(|census| census.as_slice()).map_err(|_| why_none.as_str());
    let of_channel = census.unwrap_or_default().iter().find(|channel| channel.channel == refund.channel);
    let status: Option<ChannelStatus> = channels::statuses(&api.node, of_channel.into_iter()).pop();
    let measured = Measured::of_reports([&api.node.status_report.report(None)]);
    Ok(Story::read(&api.node.store, refund, census, &measured, status.as_ref()).await?)
}

#[cfg(test)]
mod tests {
    use super::super::query::pairs;
    use super::*;

    #[test]
    fn a_parameter_that_is_no_q_is_named() {
        assert_eq!(name_in(pairs("q=R%2F1")), Ok("R/1".to_owned()));
        let long = format!("q={}", "x".repeat(201));
        for (query, field, message) in [
            ("name=x", "name", "is unknown; there is q"),
            ("", "q", "is missing; it must be a name of 1 to 200 characters"),
            ("q=", "q", "must be a name of 1 to 200 characters"),
            (long.as_str(), "q", "must be a name of 1 to 200 characters"),
            ("q=a&q=b", "q", "is given twice"),
        ] {
            let wrong = name_in(pairs(query)).unwrap_err();
            let shown: Vec<_> = wrong.iter().map(|one| (one.field.as_str(), one.message.as_str())).collect();
            assert_eq!(shown, [(field, message)], "{query}");
        }
    }
}

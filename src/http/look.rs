//! Shows one refund, and lists refunds.

use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::query::{self, Pairs, Parameters, read_each};
use super::{Api, Json, Problem, Who, named_channel};
use crate::caller::Names;
use crate::refund::draft::FieldError;
use crate::refund::{Refund, RefundId};
use crate::store::Filter;

/// Refunds on a page, unless the caller gives a number.
const LIMIT: u32 = 100;
/// The most refunds on a page.
const MOST: u32 = 1000;
/// The most bytes of the refunds on a page. A page has one refund at least.
const MOST_BYTES_OF_A_PAGE: usize = 1024 * 1024;
/// About the most bytes of one refund: its payload and everything else.
const MOST_BYTES_OF_A_REFUND: usize = 20 * 1024;

/// One page of refunds, newest first.
#[derive(Debug, Serialize)]
pub(super) struct RefundList {
    refunds: Vec<Box<RawValue>>,
    /// The value for `after` that gets the next page; null on the last page.
    next: Option<String>,
}

/// `GET /v1/refunds/{id}`.
pub(super) async fn one(State(api): State<Api>, who: Who, Named(id): Named) -> Result<Json<Refund>, Problem> {
    refund_of(&api, &who, id).await.map(Json)
}

/// A refund that exists for the caller.
pub(super) async fn refund_of(api: &Api, who: &Who, id: RefundId) -> Result<Refund, Problem> {
    let refund = api.node.store.refund(id).await?;
    let refund = refund.filter(|refund| who.has_channel(&refund.channel));
    refund.ok_or_else(|| Problem::no_such_refund(&id.to_string()))
}

/// `GET /v1/refunds`.
pub(super) async fn list(
    State(api): State<Api>,
    who: Who,
    Parameters(pairs): Parameters<Pairs>,
) -> Result<Json<RefundList>, Problem> {
    let filter = filter(pairs, who.channels()).map_err(Problem::invalid)?;
    named_channel::exists(&api, &who, filter.channel.as_deref()).await?;
    let place = api.lists.place(&who).await;
    let _room = api.room_for_answer(&who, most_bytes_of(&filter))?;
    let (node, limit) = (api.node.clone(), filter.limit);
    let read = async move { Ok(node.store.list(&filter).await?) };
    page(&place.run(read).await?, limit, MOST_BYTES_OF_A_PAGE).map(Json)
}

/// The most bytes of the page for this filter.
fn most_bytes_of(filter: &Filter) -> usize {
    let refunds = if filter.refund_ref.is_some() { 1 } else { filter.limit as usize };
    refunds.saturating_mul(MOST_BYTES_OF_A_REFUND).min(MOST_BYTES_OF_A_PAGE)
}

/// The first of these refunds, in at most `most_bytes`. A page of `limit` refunds may have a next page.
fn page(refunds: &[Refund], limit: u32, most_bytes: usize) -> Result<RefundList, Problem> {
    let mut page = RefundList { refunds: Vec::new(), next: None };
    let (mut bytes, mut last) = (0, None);
    for refund in refunds {
        let json = to_raw_value(refund).map_err(|_| Problem::internal())?;
        bytes += json.get().len();
        if bytes > most_bytes && last.is_some() {
            break;
        }
        page.refunds.push(json);
        last = Some(refund.id);
    }
    let is_cut = page.refunds.len() < refunds.len();
    let is_full = u32::try_from(refunds.len()).is_ok_and(|n| n >= limit);
    page.next = last.filter(|_| is_cut || is_full).map(|id| id.to_string());
    Ok(page)
}

/// The refund that the path names.
#[derive(Debug)]
pub(super) struct Named(pub RefundId);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let text = path.ok().map(|Path(text)| text);
        refund_id(text.as_deref()).map(Named)
    }
}

/// Reads an id, a positive whole number as refundd writes it. `None` stands for a text that is not UTF-8.
///
/// Another text is not answered 404: a program that sends its ref would read that the refund was never saved.
fn refund_id(text: Option<&str>) -> Result<RefundId, Problem> {
    text.and_then(RefundId::read).ok_or_else(|| {
        let value = text.map(Value::from);
        let message = "is not an id: an id is a whole number that refundd gave. By its ref, \
                       GET /v1/refunds?refund_ref=... finds the refund";
        Problem::invalid(vec![FieldError::new("id", value.as_ref(), message)])
    })
}

/// Reads the query. The error names every wrong parameter.
fn filter(pairs: Pairs, channels: Names) -> Result<Filter, Vec<FieldError>> {
    let mut filter = Filter { limit: LIMIT, ..Filter::of(channels) };
    read_each(pairs, |name, text| read(&mut filter, name, text))?;
    Ok(filter)
}

/// Reads one parameter into `filter`. Fails with what is wrong with it.
fn read(filter: &mut Filter, name: &str, text: &str) -> Result<(), String> {
    match name {
        "refund_ref" if text.contains('\0') => return Err("no refund_ref holds that character".to_owned()),
        "refund_ref" if !(1..=200).contains(&text.chars().count()) => {
            return Err("no refund_ref is like that: each has 1 to 200 characters".to_owned());
        }
        "refund_ref" => filter.refund_ref = Some(text.to_owned()),
        "channel" => filter.channel = Some(query::channel(text)?),
        "state" => match text.parse() {
            Ok(state) => filter.state = Some(state),
            Err(error) => return Err(error.to_string()),
        },
        "limit" => filter.limit = query::limit(text, MOST)?,
        "after" => match RefundId::read(text) {
            Some(id) => filter.after = Some(id),
            None => return Err("must be the `next` of a page before".to_owned()),
        },
        _ => return Err("is unknown; there are refund_ref, channel, state, limit and after".to_owned()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::*;
    use crate::refund::State;

    fn parsed(query: &str) -> Result<Filter, Vec<FieldError>> {
        filter(query::pairs(query), Names::All)
    }

    #[test]
    fn a_query_is_read_into_a_filter() {
        let filter = parsed("refund_ref=R%2F1&channel=acme&state=review&limit=7&after=12").unwrap();
        assert_eq!(filter.refund_ref.as_deref(), Some("R/1"));
        assert_eq!(filter.channel.as_deref(), Some("acme"));
        assert_eq!((filter.state, filter.limit, filter.after), (Some(State::Review), 7, Some(RefundId(12))));
        assert_eq!(parsed("").unwrap().limit, 100);
    }

    #[test]
    fn every_wrong_parameter_is_named() {
        let query = "channel=A%20B&state=done&limit=0&after=x&colour=red&limit=5&refund_ref=%00";
        let errors = parsed(query).unwrap_err();
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["channel", "state", "limit", "after", "colour", "limit", "refund_ref"]);
        assert!(parsed("limit=1001").is_err());
    }

    #[test]
    fn a_ref_in_the_place_of_an_id_is_invalid_and_not_a_refund_that_was_never_saved() {
        assert_eq!(refund_id(Some("17")), Ok(RefundId(17)));
        for bad in ["R-1", "0", "-1", "+1", "017", "1.0", "x", "", "9223372036854775808"] {
            let problem = refund_id(Some(bad)).unwrap_err();
            assert_eq!(
                (problem.status(), problem.kind()),
                (StatusCode::UNPROCESSABLE_ENTITY, "invalid"),
                "{bad}"
            );
            let error = &problem.errors[0];
            assert_eq!((error.field.as_str(), error.value.clone()), ("id", Some(format!("\"{bad}\""))));
            assert!(error.message.contains("/v1/refunds?refund_ref="), "{}", error.message);
        }
        assert_eq!(refund_id(None).unwrap_err().status(), StatusCode::UNPROCESSABLE_ENTITY);
    }
}

//! Reads the parameters of a query.
//!
//! A list's refusal names every wrong parameter at once, so that a caller can repair all of them in one go. Each list says itself
//! which parameters it knows.

use std::collections::HashSet;

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Problem;
use crate::refund::ChannelName;
use crate::refund::draft::FieldError;

/// A query's parameters, decoded.
pub(super) type Pairs = Vec<(String, String)>;

/// A query's parameters as a handler wants them. A query that does not have this form is refused as any other bad value is.
#[derive(Debug)]
pub(super) struct Parameters<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Parameters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        let wrong = |text: String| Problem::invalid(vec![FieldError::new("query", None, text)]);
        let Query(parameters) = query.map_err(|rejection| wrong(rejection.body_text()))?;
        Ok(Parameters(parameters))
    }
}

/// Hands each parameter to `read`, which fails with what is wrong with it. The error names every wrong parameter, and every
/// parameter that is given again.
pub(super) fn read_each(
    pairs: Pairs,
    mut read: impl FnMut(&str, &str) -> Result<(), String>,
) -> Result<(), Vec<FieldError>> {
    let (mut wrong, mut seen) = (Vec::new(), HashSet::new());
    for (name, text) in pairs {
        let is_read =
            if seen.contains(&name) { Err("is given twice".to_owned()) } else { read(&name, &text) };
        if let Err(problem) = is_read {
            wrong.push(FieldError::new(&name, Some(&Value::from(text)), problem));
        }
        seen.insert(name);
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// Reads how many things the caller wants on a page that has at most `most`.
pub(super) fn limit(text: &str, most: u32) -> Result<u32, String> {
    let limit = text.parse::<u32>().ok().filter(|limit| (1..=most).contains(limit));
    limit.ok_or_else(|| format!("must be a whole number from 1 to {most}"))
}

/// Reads the name of a channel.
pub(super) fn channel(text: &str) -> Result<String, String> {
    ChannelName::new(text).map(String::from).map_err(|bad| bad.to_string())
}

/// The parameters of a query as a request brings them.
#[cfg(test)]
pub(super) fn pairs(query: &str) -> Pairs {
    let uri = format!("/?{query}").parse().unwrap();
    Query::try_from_uri(&uri).unwrap().0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wrong_parameter_is_named_with_its_text_and_one_given_twice_is_wrong() {
        let pairs = [("limit", "7"), ("limit", "8"), ("limit", "9"), ("channel", "A B"), ("name", "acme")];
        let pairs = pairs.map(|(name, text)| (name.to_owned(), text.to_owned())).to_vec();
        let mut limits = Vec::new();
        let wrong = read_each(pairs, |name, text| match name {
            "limit" => limit(text, 7).map(|limit| limits.push(limit)),
            _ => channel(text).map(drop),
        })
        .unwrap_err();
        let shown: Vec<_> = wrong.iter().map(|one| (one.field.as_str(), one.value.as_deref())).collect();
        assert_eq!(shown, [("limit", Some("\"8\"")), ("limit", Some("\"9\"")), ("channel", Some("\"A B\""))]);
        assert!(wrong[..2].iter().all(|one| one.message == "is given twice"), "{wrong:?}");
        assert_eq!(limits, [7], "the first of a name is read");
    }

    #[test]
    fn a_limit_is_a_whole_number_within_the_page() {
        assert_eq!((limit("1", 7), limit("7", 7)), (Ok(1), Ok(7)));
        for bad in ["0", "8", "-1", "", "x", "4294967296"] {
            assert_eq!(limit(bad, 7).unwrap_err(), "must be a whole number from 1 to 7", "{bad}");
        }
    }
}

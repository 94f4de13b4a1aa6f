//! Reads a request's body, with a bound on its size and on the time without a byte.
//!
//! It checks the content type but does not parse the body.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::Problem;

/// The most bytes of a single refund. The largest payload fits, even with every character escaped.
pub(super) const MOST_BYTES_ONE: usize = 128 * 1024;

/// The most bytes of a batch.
pub(super) const MOST_BYTES_BATCH: usize = 64 * 1024 * 1024;

/// A caller that sends nothing for this long is taken for gone.
const MOST_SILENCE: Duration = Duration::from_secs(10);

/// How a body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Json,
    Ndjson,
}

impl Kind {
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Kind::Json => "application/json",
            Kind::Ndjson => "application/x-ndjson",
        }
    }
}

/// The kind of a body, from its headers; it must be one of `kinds`. A web page of another origin cannot send these
/// kinds without a CORS preflight request, and refundd never allows one.
pub(super) fn kind(headers: &HeaderMap, kinds: &[Kind]) -> Result<Kind, Problem> {
    let allowed = || kinds.iter().map(|kind| kind.content_type()).collect::<Vec<_>>().join(" or ");
    let refused = |what: String| {
        Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported-content-type",
            "Unsupported content type",
            what,
        )
    };
    if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Err(refused("send the body without a content-encoding".to_owned()));
    }
    let given =
        headers.get(CONTENT_TYPE).map(|given| String::from_utf8_lossy(given.as_bytes()).to_lowercase());
    let Some(given) = given else {
        return Err(refused(format!("say what the body is: content-type {}", allowed())));
    };
    let mut parts = given.split(';').map(str::trim);
    let named = parts.next().unwrap_or_default();
    let kind = kinds.iter().copied().find(|kind| kind.content_type() == named);
    let other_charset = parts.any(|part| {
        part.strip_prefix("charset=").is_some_and(|set| !matches!(set.trim_matches('"'), "utf-8" | "utf8"))
    });
    match kind {
        Some(_) if other_charset => Err(refused("the body must be UTF-8".to_owned())),
        Some(kind) => Ok(kind),
        None => Err(refused(format!("the content-type must be {}", allowed()))),
    }
}

/// Reads a whole body of at most `most` bytes.
///
/// # Errors
/// When the body is too large, breaks off, or brings no byte for [`MOST_SILENCE`].
pub(super) async fn read(headers: &HeaderMap, body: Body, most: usize) -> Result<Bytes, Problem> {
    read_unless_silent(headers, body, most, MOST_SILENCE).await
}

async fn read_unless_silent(
    headers: &HeaderMap,
    mut body: Body,
    most: usize,
    most_silence: Duration,
) -> Result<Bytes, Problem> {
    let too_large = || {
        let detail = format!("the body may have at most {most} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "Body too large", detail)
    };
    let announced =
        headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|bytes| bytes > most) {
        return Err(too_large());
    }
    let mut read = Vec::with_capacity(announced.unwrap_or(0));
    loop {
        let frame = match timeout(most_silence, body.frame()).await {
            Err(_) => {
                let detail = format!("nothing came for {} s", most_silence.as_secs());
                return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "slow-body", "Body too slow", detail));
            }
            Ok(None) => return Ok(read.into()),
            Ok(Some(Err(_))) => {
                let detail = "the body broke off or was not sent as announced";
                return Err(Problem::new(StatusCode::BAD_REQUEST, "broken-body", "Broken body", detail));
            }
            Ok(Some(Ok(frame))) => frame,
        };
        if let Ok(data) = frame.into_data() {
            if read.len() + data.len() > most {
                return Err(too_large());
            }
            read.extend_from_slice(&data);
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn named(content_type: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(content_type))])
    }

    #[test]
    fn only_json_in_utf_8_and_uncompressed_is_read() {
        let both = [Kind::Json, Kind::Ndjson];
        assert_eq!(kind(&named("application/json"), &both), Ok(Kind::Json));
        assert_eq!(kind(&named("Application/JSON; charset=UTF-8"), &both), Ok(Kind::Json));
        assert_eq!(kind(&named("application/x-ndjson"), &both), Ok(Kind::Ndjson));
        let mut zipped = named("application/json");
        zipped.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        for bad in [HeaderMap::new(), named("text/plain"), named("application/json; charset=latin1"), zipped]
        {
            assert_eq!(
                kind(&bad, &both).unwrap_err().status(),
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "{bad:?}"
            );
        }
        assert!(kind(&named("application/x-ndjson"), &[Kind::Json]).is_err());
    }

    #[tokio::test]
    async fn a_body_past_its_bound_is_refused_announced_or_not() {
        let announced = HeaderMap::from_iter([(CONTENT_LENGTH, HeaderValue::from_static("11"))]);
        for headers in [HeaderMap::new(), announced] {
            let refused = read(&headers, Body::from("x".repeat(11)), 10).await.unwrap_err();
            assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
        }
        let read = read(&HeaderMap::new(), Body::from("x".repeat(10)), 10).await.unwrap();
        assert_eq!(read.len(), 10);
    }

    #[tokio::test]
    async fn a_caller_that_falls_silent_is_not_waited_for() {
        let silent = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        let patience = Duration::from_millis(5);
        let refused = read_unless_silent(&HeaderMap::new(), silent, 10, patience).await.unwrap_err();
        assert_eq!(refused.status(), StatusCode::REQUEST_TIMEOUT);
    }
}

//! Reads a request's body, with bounds on its size, on its time, and on the memory for all bodies together.
//!
//! It checks the content type but does not parse the body.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use super::budget::Budget;
use super::{Problem, Who};

/// The most bytes of a single refund. The largest payload fits, even with every character escaped.
pub(super) const MOST_BYTES_ONE: usize = 128 * 1024;

/// The most bytes of a batch.
pub(super) const MOST_BYTES_BATCH: usize = 64 * 1024 * 1024;

/// The most bytes of all bodies that are read or parsed at the same time.
const MOST_BYTES_OF_ALL: usize = 96 * 1024 * 1024;

/// The most of them that are one caller's. The largest batch fits, and bodies of others have room beside it.
const MOST_BYTES_OF_A_CALLER: usize = MOST_BYTES_BATCH;

/// Bodies of at most so many bytes need no room in the budget, so large bodies never keep them waiting.
const SMALL: usize = 16 * 1024;

/// How a body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyKind {
    Json,
    Ndjson,
}

impl BodyKind {
    pub(super) fn content_type(self) -> &'static str {
        match self {
            BodyKind::Json => "application/json",
            BodyKind::Ndjson => "application/x-ndjson",
        }
    }
}

/// The kind of a body, from its headers; it must be one of `kinds`. A web page of another origin cannot send these
/// kinds without a CORS preflight request, and refundd never allows one.
pub(super) fn kind(headers: &HeaderMap, kinds: &[BodyKind]) -> Result<BodyKind, Problem> {
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

/// Reads bodies. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Bodies {
    /// The time for a whole body.
    within: Duration,
    room: Budget,
}

impl Bodies {
    pub(super) fn new(within: Duration) -> Self {
        Bodies { within, room: Budget::new(MOST_BYTES_OF_ALL, MOST_BYTES_OF_A_CALLER) }
    }

    /// Reads the whole body, of at most `most` bytes, of the request with this head.
    ///
    /// # Errors
    /// When the body is too large, breaks off, or is not here in time; or when other bodies use up the memory for so long.
    pub(super) async fn read(&self, head: &Parts, mut body: Body, most: usize) -> Result<Bytes, Problem> {
        let deadline = Instant::now() + self.within;
        let announced =
            head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        if announced.is_some_and(|bytes| bytes > most) {
            return Err(too_large(most));
        }
        let most_capacity = announced.unwrap_or(most);
        let mut read = Vec::with_capacity(most_capacity.min(SMALL));
        let caller = head.extensions.get::<Who>().and_then(Who::name);
        let mut reserved = self.room.try_reserve(caller, 0).ok();
        loop {
            let frame = match timeout_at(deadline, body.frame()).await {
                Err(_) => return Err(self.too_slow()),
                Ok(None) => break,
                Ok(Some(Err(_))) => {
                    let detail = "the body broke off or was not sent as announced";
                    return Err(Problem::new(StatusCode::BAD_REQUEST, "broken-body", "Broken body", detail));
                }
                Ok(Some(Ok(frame))) => frame,
            };
            let Ok(data) = frame.into_data() else { continue };
            let length = read.len() + data.len();
            if length > most {
                return Err(too_large(most));
            }
            if length > read.capacity() {
                let capacity = (2 * read.capacity()).min(most_capacity).max(length);
                if let Some(reserved) = reserved.as_mut().filter(|_| capacity > SMALL) {
                    let room = reserved.grow_to(capacity, announced);
                    timeout_at(deadline, room).await.map_err(|_| no_room())?;
                }
                read.reserve_exact(capacity - read.len());
            }
            read.extend_from_slice(&data);
        }
        Ok(match reserved {
            Some(reserved) => reserved.keep(read),
            None => read.into(),
        })
    }

    fn too_slow(&self) -> Problem {
        let detail = format!("the body must arrive whole within {:?} ([http] body_timeout)", self.within);
        Problem::new(StatusCode::REQUEST_TIMEOUT, "slow-body", "Body too slow", detail)
    }
}

fn too_large(most: usize) -> Problem {
    let detail = format!("the body may have at most {most} bytes");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "Body too large", detail)
}

fn no_room() -> Problem {
    Problem::busy(
        "large bodies, of this caller or of others, use all memory for bodies; nothing was acknowledged, and repeating is safe",
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::convert::Infallible;
    use std::sync::Arc;

    use axum::http::{HeaderValue, Request};
    use futures_util::{FutureExt, StreamExt, stream};

    use super::*;
    use crate::caller::{Caller, Names};
    use crate::refund::{AmountBounds, CallerName};

    fn head_with(headers: HeaderMap) -> Parts {
        let (mut head, ()) = Request::new(()).into_parts();
        head.headers = headers;
        head
    }

    /// The head of a caller's request, which announces a body of so many bytes.
    fn head_of(name: &str, bytes: usize) -> Parts {
        let caller = Caller {
            name: CallerName::new(name).unwrap(),
            tokens: Vec::new(),
            certificate: None,
            may: BTreeSet::new(),
            channels: Names::All,
            limits: Names::All,
            rate: None,
            most: AmountBounds::default(),
        };
        let mut head = head_with(HeaderMap::from_iter([(CONTENT_LENGTH, HeaderValue::from(bytes))]));
        head.extensions.insert(Who::Caller(Arc::new(caller)));
        head
    }

    fn named(content_type: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(content_type))])
    }

    #[test]
    fn only_json_in_utf_8_and_uncompressed_is_read() {
        let both = [BodyKind::Json, BodyKind::Ndjson];
        assert_eq!(kind(&named("application/json"), &both), Ok(BodyKind::Json));
        assert_eq!(kind(&named("Application/JSON; charset=UTF-8"), &both), Ok(BodyKind::Json));
        assert_eq!(kind(&named("application/x-ndjson"), &both), Ok(BodyKind::Ndjson));
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
        assert!(kind(&named("application/x-ndjson"), &[BodyKind::Json]).is_err());
    }

    #[tokio::test]
    async fn a_body_past_its_bound_is_refused_announced_or_not() {
        let bodies = Bodies::new(Duration::from_mins(1));
        let announced = HeaderMap::from_iter([(CONTENT_LENGTH, HeaderValue::from_static("11"))]);
        for headers in [HeaderMap::new(), announced] {
            let refused = bodies.read(&head_with(headers), Body::from("x".repeat(11)), 10).await.unwrap_err();
            assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
        }
        let none = head_with(HeaderMap::new());
        let read = bodies.read(&none, Body::from("x".repeat(10)), 10).await.unwrap();
        assert_eq!(read.len(), 10);
    }

    #[tokio::test]
    async fn a_body_that_drips_is_refused_when_its_time_is_over() {
        // Each byte comes soon after the one before.
        let drops = stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(2)).await;
            Some((Ok::<_, std::io::Error>(Bytes::from_static(b"x")), ()))
        });
        let bodies = Bodies::new(Duration::from_millis(50));
        let none = head_with(HeaderMap::new());
        let refused = bodies.read(&none, Body::from_stream(drops), MOST_BYTES_ONE).await;
        assert_eq!(refused.unwrap_err().status(), StatusCode::REQUEST_TIMEOUT);
    }

    #[tokio::test]
    async fn large_bodies_share_the_memory_and_small_ones_need_none_of_it() {
        let bodies = Bodies::new(Duration::from_millis(50));
        let _others = bodies.room.try_reserve(None, MOST_BYTES_OF_ALL).unwrap();
        let none = head_with(HeaderMap::new());
        let small = bodies.read(&none, Body::from(vec![b'x'; SMALL]), MOST_BYTES_BATCH).await;
        assert_eq!(small.unwrap().len(), SMALL);
        let large = bodies.read(&none, Body::from(vec![b'x'; SMALL + 1]), MOST_BYTES_BATCH).await;
        assert_eq!(large.unwrap_err().status(), StatusCode::SERVICE_UNAVAILABLE);
    }

    #[tokio::test]
    async fn bodies_of_one_caller_that_stall_leave_room_for_those_of_another() {
        let bodies = Bodies::new(Duration::from_mins(1));
        let shop = head_of("shop", MOST_BYTES_BATCH);
        let stalled = || {
            let but_the_last = Bytes::from(vec![0; MOST_BYTES_BATCH - 1]);
            Body::from_stream(stream::iter([Ok::<_, Infallible>(but_the_last)]).chain(stream::pending()))
        };
        let mut all = [(); 2].map(|()| Box::pin(bodies.read(&shop, stalled(), MOST_BYTES_BATCH)));
        assert!(all.iter_mut().all(|one| one.now_or_never().is_none()));
        let desk = head_of("desk", SMALL + 1);
        let read = bodies.read(&desk, Body::from(vec![b'x'; SMALL + 1]), MOST_BYTES_BATCH).now_or_never();
        assert_eq!(read.expect("it waits for room").unwrap().len(), SMALL + 1);
        let own = bodies.read(&shop, Body::from(vec![b'x'; SMALL + 1]), MOST_BYTES_BATCH).now_or_never();
        assert!(own.is_none(), "the caller has more than its share");
    }
}

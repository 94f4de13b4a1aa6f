//! Orders of people over HTTP: how the bank shall misbehave. A test gives a script in its process instead.
//!
//! `PUT /CHANNEL/next` answers one send for each word of the body, and `PUT /CHANNEL/then` all later sends.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Response, StatusCode};

use super::Books;
use super::script::Step;

/// What people can order, for messages.
const WORDS: &str = "pays, pays-500, hang, slow, cut, reset, or an HTTP status such as 429 or 503";

/// The step that a word orders.
fn step(word: &str) -> Option<Step> {
    Some(match word {
        "pays" => Step::pays(),
        "pays-500" => Step::pays_but_says_500(),
        "hang" => Step::silence(),
        "slow" => Step::pays().after(Duration::from_secs(3)),
        // It pays, and the caller gets half of the status line.
        "cut" => Step::pays().cut_after(10),
        "reset" => Step::resets(),
        "429" => Step::too_many(2),
        status => {
            let status = status.parse().ok().filter(|status| (200..=599).contains(status))?;
            if status == 200 { Step::pays() } else { Step::answers(status, r#"{"error":"as you ordered"}"#) }
        }
    })
}

/// Obeys a `PUT`, and answers what the bank will do.
pub(super) fn obey(books: &mut Books, path: &str, body: &[u8]) -> Response<Full<Bytes>> {
    let (status, text) = match order(books, path, body) {
        Ok(text) => (StatusCode::OK, text),
        Err(text) => (StatusCode::BAD_REQUEST, text),
    };
    let mut answer = Response::new(Full::new((text + "\n").into()));
    *answer.status_mut() = status;
    answer
}

fn order(books: &mut Books, path: &str, body: &[u8]) -> Result<String, String> {
    let text = String::from_utf8_lossy(body);
    let words: Vec<&str> = text.split_whitespace().collect();
    let steps: Option<Vec<Step>> = words.iter().map(|word| step(word)).collect();
    let (channel, what) = path.trim_start_matches('/').split_once('/').unwrap_or((path, ""));
    let Some(steps) = steps.filter(|steps| !steps.is_empty()) else {
        return Err(format!("the body names what the bank does: {WORDS}"));
    };
    let name = books.channel(channel);
    let script = books.scripts.entry(name).or_default();
    match (what, steps.as_slice()) {
        ("next", steps) => {
            script.next.extend(steps.iter().cloned());
            Ok(format!("the next sends of {channel}: {}", words.join(", ")))
        }
        ("then", [one]) => {
            script.then = one.clone();
            Ok(format!("all sends of {channel} from now on: {}", words.join(", ")))
        }
        _ => Err(format!("PUT /CHANNEL/next takes some words, and PUT /CHANNEL/then takes one: {WORDS}")),
    }
}

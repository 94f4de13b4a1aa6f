//! Splits a batch into items, without parsing the items.
//!
//! An item stays a slice of the body's bytes. If the whole batch were parsed into values first, a caller that sends
//! 64 MiB of brackets would take many times that much memory.

use std::fmt;

use axum::http::StatusCode;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::Problem;
use crate::refund::draft::FieldError;

/// The most refunds in one batch.
const MOST_ITEMS: usize = 10_000;

/// The elements of a JSON array, each as its bytes.
pub(super) fn of_array(bytes: &[u8]) -> Result<Vec<&[u8]>, Problem> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let read = reader.deserialize_seq(Elements).and_then(|items| reader.end().map(|()| items));
    match read {
        Ok((items, count)) => counted(items, count),
        Err(error) if error.classify() == Category::Data => {
            let message = "must be a JSON array of refunds; for one refund a line use application/x-ndjson";
            Err(Problem::invalid(vec![FieldError::new("batch", None, message)]))
        }
        Err(error) => Err(Problem::malformed(&error)),
    }
}

/// The lines of NDJSON, each as its bytes. Empty lines are skipped and not counted.
pub(super) fn of_lines(bytes: &[u8]) -> Result<Vec<&[u8]>, Problem> {
    let mut lines = bytes.split(|b| *b == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let items: Vec<_> = lines.by_ref().take(MOST_ITEMS).map(<[u8]>::trim_ascii).collect();
    let count = items.len() + lines.count();
    counted(items, count)
}

fn counted(items: Vec<&[u8]>, count: usize) -> Result<Vec<&[u8]>, Problem> {
    match count {
        0 => {
            Err(Problem::invalid(vec![FieldError::new("batch", None, "is empty; send at least one refund")]))
        }
        1..=MOST_ITEMS => Ok(items),
        _ => {
            let detail = format!("the batch has {count} refunds; at most {MOST_ITEMS} are taken at once");
            Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "Batch too large", detail))
        }
    }
}

/// Keeps at most as many elements as a batch may have, and counts all of them.
struct Elements;

impl<'de> Visitor<'de> for Elements {
    type Value = (Vec<&'de [u8]>, usize);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while items.len() < MOST_ITEMS {
            let Some(item) = array.next_element::<&'de RawValue>()? else {
                let count = items.len();
                return Ok((items, count));
            };
            items.push(item.get().as_bytes());
        }
        let mut count = items.len();
        while array.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok((items, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(items: Vec<&[u8]>) -> Vec<&str> {
        items.into_iter().map(|item| std::str::from_utf8(item).unwrap()).collect()
    }

    #[test]
    fn ndjson_is_split_at_line_feeds_and_empty_lines_do_not_count() {
        let items = of_lines(b"\n{\"a\":1}\r\n  \n\t{\"b\":\n{\"c\":3}").unwrap();
        assert_eq!(texts(items), ["{\"a\":1}", "{\"b\":", "{\"c\":3}"]);
    }

    #[test]
    fn an_array_is_split_without_reading_its_elements() {
        let items = of_array(b" [ {\"a\": [1, 2]}, 7 , \"\\ud800\", null ] ").unwrap();
        assert_eq!(texts(items), ["{\"a\": [1, 2]}", "7", "\"\\ud800\"", "null"]);
    }

    #[test]
    fn an_empty_batch_is_refused() {
        for refused in [of_array(b"[]"), of_lines(b""), of_lines(b"\n \n")] {
            assert_eq!(refused.unwrap_err().status(), StatusCode::UNPROCESSABLE_ENTITY);
        }
    }

    #[test]
    fn more_than_ten_thousand_are_refused_and_exactly_as_many_are_not() {
        for (n, is_good) in [(10_000, true), (10_001, false)] {
            let array = format!("[{}1]", "1,".repeat(n - 1));
            let lines = "1\n".repeat(n);
            for items in [of_array(array.as_bytes()), of_lines(lines.as_bytes())] {
                match items {
                    Ok(items) => assert_eq!((items.len(), is_good), (n, true)),
                    Err(problem) => {
                        assert_eq!((problem.status(), is_good), (StatusCode::PAYLOAD_TOO_LARGE, false));
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_no_array_is_invalid_and_what_is_no_json_is_malformed() {
        for (bytes, status) in [
            (&b"{}"[..], 422),
            (b"7", 422),
            (b"", 400),
            (b"[1,", 400),
            (b"[1,,2]", 400),
            (b"[1] x", 400),
            (b"[\"\xff\"]", 400),
        ] {
            assert_eq!(of_array(bytes).unwrap_err().status().as_u16(), status, "{bytes:?}");
        }
    }
}

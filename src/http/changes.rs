//! `GET /v1/changes`: what became of refunds, oldest first, for programs that follow it with a cursor.

use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::query::{self, Pairs, Parameters, read_each};
use super::{Api, Json, Problem, Who, named_channel};
use crate::caller::Names;
use crate::refund::draft::FieldError;
use crate::store::{Change, ChangeFilter, ChangePage, JournalReach};

/// Changes on a page, unless the caller gives a number.
const LIMIT: u32 = 100;
/// The most changes on a page.
const MOST: u32 = 1000;
/// The most bytes of the changes on a page. A page has one change at least, if there is one.
const MOST_BYTES_OF_A_PAGE: usize = 1024 * 1024;
/// About the most bytes of one change: its names and its reason.
const MOST_BYTES_OF_A_CHANGE: usize = 4 * 1024;

/// One page of changes, oldest first.
#[derive(Debug, Serialize)]
pub(super) struct ChangeList {
    changes: Vec<Box<RawValue>>,
    /// The value for `after` that gets the next page.
    next: String,
    /// Whether more changes may be there already. Otherwise wait a moment before the next request.
    more: bool,
}

/// Where a page begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// At the oldest change that the journal has.
    Oldest,
    Cursor(i64),
    /// At the end, so with changes to come.
    End,
}

/// `GET /v1/changes`.
pub(super) async fn list(
    State(api): State<Api>,
    who: Who,
    Parameters(pairs): Parameters<Pairs>,
) -> Result<Json<ChangeList>, Problem> {
    let (after, mut filter) = filter(pairs, who.channels()).map_err(Problem::invalid)?;
    named_channel::exists(&api, &who, filter.channel.as_deref()).await?;
    let place_of_list = api.lists.place(&who).await;
    let bytes = (filter.limit as usize * MOST_BYTES_OF_A_CHANGE).min(MOST_BYTES_OF_A_PAGE);
    let _room = api.room_for_answer(&who, bytes)?;
    let node = api.node.clone();
    let read = async move {
        loop {
            let reach = node.store.journal_is_whole_until().await?;
            filter.after = place(after, reach)?;
            if let Some(read) = node.store.changes(&filter, reach.whole_until).await? {
                break Ok(read);
            }
        }
    };
    page(&place_of_list.run(read).await?, MOST_BYTES_OF_A_PAGE).map(Json)
}

/// The line behind which a page begins.
fn place(after: After, reach: JournalReach) -> Result<i64, Problem> {
    match after {
        After::Oldest => Ok(reach.forgotten_until),
        After::End => Ok(reach.whole_until.max(reach.forgotten_until)),
        After::Cursor(cursor) if cursor < reach.forgotten_until => {
            let detail = format!(
                "the journal has dropped changes behind the cursor `{cursor}`; read the refunds that you follow anew, and go on \
                 from `oldest`"
            );
            Err(gone(detail, reach))
        }
        After::Cursor(cursor) if cursor > reach.last_id => {
            let detail = format!(
                "the journal ends at `{}`, before the cursor `{cursor}`: the cursor is of another database, or this one was \
                 restored to an earlier state; read the refunds that you follow anew, and go on from `oldest`",
                reach.last_id
            );
            Err(gone(detail, reach))
        }
        After::Cursor(cursor) => Ok(cursor),
    }
}

fn gone(detail: String, reach: JournalReach) -> Problem {
    Problem::new(StatusCode::GONE, "cursor-gone", "Cursor gone", detail)
        .with("oldest", reach.forgotten_until.to_string())
}

/// The first of these changes, in at most `most_bytes`.
fn page(read: &ChangePage, most_bytes: usize) -> Result<ChangeList, Problem> {
    let mut page = ChangeList { changes: Vec::new(), next: read.next.to_string(), more: read.more };
    let (mut bytes, mut last): (usize, Option<&Change>) = (0, None);
    for change in &read.changes {
        let json = to_raw_value(change).map_err(|_| Problem::internal())?;
        bytes += json.get().len();
        if let Some(Change { cursor, .. }) = last.filter(|_| bytes > most_bytes) {
            (page.next, page.more) = (cursor.to_string(), true);
            break;
        }
        page.changes.push(json);
        last = Some(change);
    }
    Ok(page)
}

/// Reads the query. The error names every wrong parameter.
fn filter(pairs: Pairs, channels: Names) -> Result<(After, ChangeFilter), Vec<FieldError>> {
    let (mut after, mut filter) =
        (After::Oldest, ChangeFilter { limit: LIMIT, ..ChangeFilter::of(channels) });
    read_each(pairs, |name, text| read(&mut after, &mut filter, name, text))?;
    Ok((after, filter))
}

/// Reads one parameter. Fails with what is wrong with it.
fn read(after: &mut After, filter: &mut ChangeFilter, name: &str, text: &str) -> Result<(), String> {
    match name {
        "after" if text == "end" => *after = After::End,
        "after" => match text.parse::<u64>().ok().and_then(|cursor| i64::try_from(cursor).ok()) {
            Some(cursor) if text.bytes().all(|b| b.is_ascii_digit()) => *after = After::Cursor(cursor),
            _ => {
                let rule = "must be the `next` of a page before, the `cursor` of a change, or `end`";
                return Err(rule.to_owned());
            }
        },
        "channel" => filter.channel = Some(query::channel(text)?),
        "limit" => filter.limit = query::limit(text, MOST)?,
        _ => return Err("is unknown; there are after, channel and limit".to_owned()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    const REACH: JournalReach = JournalReach { forgotten_until: 10, last_id: 50, whole_until: 40 };

    fn parsed(query: &str) -> Result<(After, ChangeFilter), Vec<FieldError>> {
        filter(query::pairs(query), Names::All)
    }

    #[test]
    fn a_query_is_read_into_a_filter_and_every_wrong_parameter_is_named() {
        let (after, filter) = parsed("after=12&channel=acme&limit=5").unwrap();
        assert_eq!((after, filter.channel.as_deref(), filter.limit), (After::Cursor(12), Some("acme"), 5));
        let (after, filter) = parsed("").unwrap();
        assert_eq!((after, filter.channel, filter.limit), (After::Oldest, None, 100));
        assert_eq!(parsed("after=end").unwrap().0, After::End);
        let errors = parsed("after=-1&channel=A%20B&limit=1001&colour=red&after=1").unwrap_err();
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["after", "channel", "limit", "colour", "after"]);
        for bad in ["", "%2B1", "1-2", "9223372036854775808", "END"] {
            assert!(parsed(&format!("after={bad}")).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_cursor_outside_of_the_journal_is_gone_and_names_the_oldest_one() {
        assert_eq!(place(After::Oldest, REACH).unwrap(), 10);
        assert_eq!(place(After::End, REACH).unwrap(), 40);
        for cursor in [10, 40, 50] {
            assert_eq!(place(After::Cursor(cursor), REACH).unwrap(), cursor);
        }
        for (cursor, words) in [(9, "dropped"), (51, "ends at `50`")] {
            let problem = place(After::Cursor(cursor), REACH).unwrap_err();
            assert_eq!(problem.status(), StatusCode::GONE, "{cursor}");
            assert!(problem.detail.contains(words), "{}", problem.detail);
            assert_eq!(problem, problem.clone().with("oldest", "10"));
        }
    }

    #[test]
    fn a_page_is_cut_by_its_bytes_and_goes_on_behind_its_last_change() {
        let change = |cursor| Change {
            cursor,
            refund_id: 1,
            refund_ref: "R-1".to_owned(),
            channel: "acme".to_owned(),
            state: "succeeded".to_owned(),
            code: None,
            reason: Some("x".repeat(100)),
            bank_ref: None,
            at: Timestamp::UNIX_EPOCH,
            at_us: 0,
        };
        let read = ChangePage { changes: vec![change(3), change(5), change(9)], next: 40, more: false };
        let whole = page(&read, 10_000).unwrap();
        assert_eq!((whole.changes.len(), whole.next.as_str(), whole.more), (3, "40", false));
        assert!(whole.changes[0].get().starts_with(r#"{"cursor":"3","refund_id":1,"refund_ref":"R-1""#));
        let cut = page(&read, 700).unwrap();
        assert_eq!((cut.changes.len(), cut.next.as_str(), cut.more), (2, "5", true));
        let one = page(&read, 1).unwrap();
        assert_eq!((one.changes.len(), one.next.as_str(), one.more), (1, "3", true));
    }
}

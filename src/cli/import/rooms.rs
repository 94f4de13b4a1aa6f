//! The room in each channel's backlog, for a dry run: the lines of a file fill a channel, too.
//!
//! The module knows only the lines that it was given. The caller gives those that Postgres would save.

use std::collections::HashMap;

use super::deciding::LineResults;
use crate::store::{SaveResult, Store, StoreError};

/// The channels of the file so far. Each is looked at once, as a count reads up to `max_backlog` rows.
#[derive(Debug, Default)]
pub(super) struct BacklogRooms(HashMap<String, Option<BoundedRoom>>);

/// The room of a channel that has a `max_backlog`.
#[derive(Debug)]
struct BoundedRoom {
    max_backlog: i64,
    /// How many more refunds may wait.
    left: u64,
}

impl BacklogRooms {
    /// Looks at the channels of these lines that no earlier line had.
    pub(super) async fn look(&mut self, lines: &LineResults, store: &Store) -> Result<(), StoreError> {
        let LineResults::Judged(lines) = lines else { return Ok(()) };
        for (_, refund, result) in lines {
            let channel = refund.channel.as_str();
            if !matches!(result, Ok(SaveResult::New)) || self.0.contains_key(channel) {
                continue;
            }
            let target = store.move_target(channel).await?;
            let bounded = target.and_then(|target| {
                Some(BoundedRoom { max_backlog: target.max_backlog?, left: target.room? })
            });
            self.0.insert(channel.to_owned(), bounded);
        }
        Ok(())
    }

    /// Takes the place of one refund. Answers the bound of a channel that has no place left.
    pub(super) fn take(&mut self, channel: &str) -> Option<i64> {
        let room = self.0.get_mut(channel)?.as_mut()?;
        match room.left.checked_sub(1) {
            None => Some(room.max_backlog),
            Some(left) => {
                room.left = left;
                None
            }
        }
    }
}

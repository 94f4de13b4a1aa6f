//! Reads the journal's next changes into the window of those that wait for the receiver.

use std::time::Instant;

use super::window::Window;
use crate::caller::Names;
use crate::store::{ChangeFilter, Store, StoreError};

/// The most changes of one read.
pub(super) const AT_ONCE: u32 = 250;

/// What a read of the journal found.
#[derive(Debug, Clone, Copy)]
pub(super) enum Read {
    /// The next changes; the last ones for now, or not.
    Changes { is_last: bool },
    /// The journal ends before the lines that were read: the database came back older than it was.
    Older,
}

/// Reads the next changes into the window.
pub(super) async fn read_into(window: &mut Window, store: &Store) -> Result<Read, StoreError> {
    loop {
        let reach = store.journal_is_whole_until().await?;
        if window.read_until() > reach.last_id {
            let (read, end) = (window.read_until(), reach.last_id);
            tracing::error!(
                "The journal ends at line {end}, but its changes were read up to line {read}: the database came back older than it \
                 was. Deliveries go on from the line that the database has noted"
            );
            return Ok(Read::Older);
        }
        if window.read_until() < reach.forgotten_until {
            let (from, to) = (window.read_until(), reach.forgotten_until);
            tracing::error!(
                "The journal has dropped its lines from {} to {to} before the receiver of webhooks had taken their changes",
                from + 1
            );
            window.skip_to(to);
        }
        let limit = u32::try_from(window.room()).unwrap_or(u32::MAX).min(AT_ONCE);
        let filter = ChangeFilter { after: window.read_until(), limit, ..ChangeFilter::of(Names::All) };
        if let Some(changes) = store.changes(&filter, reach.whole_until).await? {
            let is_last = !changes.more;
            window.add(changes, Instant::now());
            return Ok(Read::Changes { is_last });
        }
    }
}

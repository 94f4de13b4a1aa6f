//! What fails for single time zones, for the log.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::failing::Failing;
use crate::lock::Lock;

/// Whether something fails at present for each of several time zones.
#[derive(Debug, Default)]
pub(super) struct FailingZones(Mutex<HashMap<String, Failing>>);

impl FailingZones {
    /// Notes a result for a zone, as [`Failing::note`] does.
    pub(super) fn note<T, E>(
        &self,
        zone: &str,
        result: &Result<T, E>,
        first: impl FnOnce(&E),
        recovered: impl FnOnce(),
    ) {
        self.0.locked().entry(zone.to_owned()).or_default().note(result, first, recovered);
    }
}

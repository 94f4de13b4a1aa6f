//! How values fade, so that newer ones count more.

use std::time::Duration;

/// What is this old counts a third.
const FADES_IN: Duration = Duration::from_secs(20);

/// How much of a value is left after this time.
pub(super) fn faded(age: Duration) -> f64 {
    (-age.as_secs_f64() / FADES_IN.as_secs_f64()).exp()
}

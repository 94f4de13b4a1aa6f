//! Findings about the end of certificates.

use std::time::Duration;

use jiff::Timestamp;

use super::finding::Finding;

/// What to say of a certificate that ends at `end`; `None` if it could not be looked at, which is a warning. `whose` names
/// it, and `way_out` says how to renew it.
pub(super) fn finding(
    check: &'static str,
    whose: &str,
    end: Option<Timestamp>,
    (soon, now): (Duration, Timestamp),
    way_out: &str,
) -> Finding {
    let Some(end) = end else {
        let why = "nobody is warned before it ends";
        let way_out = "see whether the server answers, or whether the file has certificates, and run `refundd doctor` again";
        return Finding::warning(check, format!("the end of {whose} cannot be read"), why, way_out);
    };
    let left = end.duration_since(now);
    let days = left.as_hours() / 24;
    if left.is_negative() {
        let why = "who checks the certificate refuses every new connection";
        Finding::broken(check, format!("{whose} ended at {end:.0}"), why, way_out)
    } else if left.unsigned_abs() <= soon {
        let why = "who checks the certificate refuses every new connection from then on";
        Finding::warning(check, format!("{whose} ends in {days} days, at {end:.0}"), why, way_out)
    } else {
        Finding::ok(check, format!("{whose} ends in {days} days, at {end:.0}"))
    }
}

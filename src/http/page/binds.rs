//! What binds a channel: what keeps it from sending faster, in the words of `refundd status`.

use maud::{Markup, html};

use crate::desk::channel::{ChannelStatus, last_seconds};
use crate::node::meter::Binds;

/// The words of `refundd status`: the kind, the limit, and its share of the last minute.
pub(super) fn binds(status: &ChannelStatus) -> Markup {
    let is_unknown_here = status.limits.is_none() && !status.run_by.is_empty();
    html! {
        @match status.binds {
            Binds::Nothing if is_unknown_here => span.none { "another node knows" },
            Binds::Nothing => span.none { "nothing" },
            kind => {
                strong { (kind.as_str()) @if let Some(limit) = &status.binds_limit { " " (limit) } }
                @if let Some(share) = status.binds_share { span.share { " " (percent(share, status.binds_over_seconds)) } }
            }
        }
    }
}

/// The share of the last minute, or of the shorter time that was watched, for which the channel waited. In a narrow place the
/// eye sees a minute's number alone.
pub(super) fn percent(share: f64, over_seconds: Option<u32>) -> Markup {
    let of = format!(" of the {}", last_seconds(over_seconds));
    let is_minute = over_seconds.is_none_or(|over| over >= 60);
    html! {
        (format!("{:.0}\u{a0}%", share * 100.0))
        @if is_minute { span.of { (of) } } @else { (of) }
    }
}

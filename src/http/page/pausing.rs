//! What suspends a channel or everything, each cause with the button that ends it; and the forms that pause.
//!
//! A person's pause and the suspensions by refundd itself are records of their own. Ending one leaves the others. Each form
//! names the suspension that its page showed, and changes no other one.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde_json::Value;

use super::super::named_channel::{ChannelOrAll, known, one_or_all};
use super::super::pauses::{carry_out, has_channels, read_pause, read_resume};
use super::super::{Api, Problem, Who};
use super::form::{Form, FormKey, by_field, reason_field};
use super::notice::Said;
use super::parts::{span, with_times};
use crate::caller::scope::CallerScope;
use crate::desk::channel::SuspensionStatus;
use crate::store::{SuspendedBy, Suspension};

/// The ends of a pause that the form offers: seconds, and the text.
const ENDS: [(u32, &str); 9] = [
    (900, "in 15 minutes"),
    (1800, "in 30 minutes"),
    (3600, "in 1 hour"),
    (7200, "in 2 hours"),
    (14_400, "in 4 hours"),
    (28_800, "in 8 hours"),
    (86_400, "in 24 hours"),
    (172_800, "in 2 days"),
    (604_800, "in 7 days"),
];

/// Whether this viewer may pause everything.
pub(super) fn may_stop_everything(who: &Who) -> bool {
    who.may(CallerScope::Operate) && who.has_all_channels()
}

/// Each cause that suspends a channel, or, without a channel, everything: those by people, and those by refundd itself.
pub(super) fn causes(who: &Who, key: &FormKey, channel: Option<&str>, all: &[Suspension]) -> Markup {
    let (people, own): (Vec<&Suspension>, Vec<_>) =
        all.iter().partition(|one| matches!(one.by, SuspendedBy::All | SuspendedBy::Person));
    html! {
        @for (title, causes) in [("Suspended by a person", people), ("Suspended by refundd itself", own)] {
            @if !causes.is_empty() {
                h2 { (title) }
                ul.causes { @for one in causes { li { (cause(one)) (way_out(who, key, channel, one)) } } }
            }
        }
    }
}

fn cause(one: &Suspension) -> Markup {
    html! {
        p { (with_times(&SuspensionStatus::from(one.clone()).sentence())) }
        @match one.probe_in {
            Some(probe) if probe.is_zero() => p.small { "A probe is due now." },
            Some(probe) => p.small { "The next probe is in " (span(probe)) "." },
            None => {}
        }
    }
}

/// The button that ends a cause.
fn way_out(who: &Who, key: &FormKey, channel: Option<&str>, one: &Suspension) -> Markup {
    let button = |path: String, lift: &str, text: &str| {
        html! {
            form method="post" action=(path) {
                (key.field()) (by_field(who))
                @if !lift.is_empty() { input type="hidden" name="lift" value=(lift); }
                @if let Some(seen) = one.seen_as() { input type="hidden" name="seen" value=(seen); }
                button.primary { (text) }
            }
        }
    };
    let resume = |channel: &str| format!("/channels/{channel}/resume");
    html! {
        @match (one.by, channel) {
            _ if !who.may(CallerScope::Operate) => {}
            (SuspendedBy::All, None) if who.has_all_channels() => { (button("/resume".to_owned(), "", "Resume everything")) }
            (SuspendedBy::All, Some(_)) => { p.small { a href="/" { "Resume everything on the page of all channels" } } }
            (SuspendedBy::Person, Some(channel)) => { (button(resume(channel), "pause", &format!("Resume {channel}"))) }
            (SuspendedBy::Credentials, Some(channel)) => {
                (button(resume(channel), "credentials", "The credentials are right now: resume"))
            }
            (SuspendedBy::Breaker, Some(channel)) => { (button(resume(channel), "breaker", "Lift the breaker")) }
            (SuspendedBy::Cooling, Some(channel)) => { (button(resume(channel), "cooling", "The bank is well: do not wait, full rate")) }
            (_, None) => {}
        }
    }
}

/// The form that pauses one channel; `now` is the pause that a person began.
pub(super) fn pause_form(who: &Who, key: &FormKey, channel: &str, now: Option<&Suspension>) -> Markup {
    let summary = if now.is_some() { "Give the pause another reason or end" } else { "Pause this channel" };
    let hint = "All nodes stop sends and inquiries within a second. Refunds can still be saved. Requests in progress still end.";
    form(who, key, &format!("/channels/{channel}/pause"), now, [summary, hint, &format!("Pause {channel}")])
}

/// The form that pauses everything; `now` is the pause of everything.
pub(super) fn stop_form(who: &Who, key: &FormKey, now: Option<&Suspension>) -> Markup {
    let summary = if now.is_some() { "Give the stop another reason or end" } else { "Stop everything" };
    let hint = "All nodes stop sends and inquiries of all channels within a second, also of channels that come later, and \
                other services get no permits. Refunds can still be saved. Requests in progress still end.";
    form(who, key, "/pause", now, [summary, hint, "Stop everything now"])
}

fn form(
    who: &Who,
    key: &FormKey,
    action: &str,
    now: Option<&Suspension>,
    [summary, hint, button]: [&str; 3],
) -> Markup {
    let since = now.and_then(|now| now.since).map(|since| since.to_string());
    html! {
        details.steer {
            summary { (summary) }
            form.controls method="post" action=(action) {
                (key.field())
                input type="hidden" name="seen" value=(since.as_deref().unwrap_or("none"));
                (reason_field("Reason, for everybody who asks why"))
                label { "Ends"
                    select name="for_seconds" {
                        option value="" selected { "when somebody resumes" }
                        @for (seconds, text) in ENDS { option value=(seconds) { (text) } }
                    }
                }
                (by_field(who))
                p.hint { (hint) }
                button.danger { (button) }
            }
        }
    }
}

/// `POST /channels/{name}/pause`, and `POST /pause`: everything.
pub(in crate::http) async fn pause(
    State(api): State<Api>,
    who: Who,
    name: ChannelOrAll,
    request: Request,
) -> Result<Response, Problem> {
    change(api, who, one_or_all(name)?, true, request).await
}

/// `POST /channels/{name}/resume`; and `POST /resume`: ends the pause of everything. Channels that are suspended on their own
/// stay so.
pub(in crate::http) async fn resume(
    State(api): State<Api>,
    who: Who,
    name: ChannelOrAll,
    request: Request,
) -> Result<Response, Problem> {
    change(api, who, one_or_all(name)?, false, request).await
}

/// Pauses or resumes a channel or everything, and leads back to its page.
async fn change(
    api: Api,
    who: Who,
    channel: Option<String>,
    pauses: bool,
    request: Request,
) -> Result<Response, Problem> {
    if let Some(name) = &channel {
        // A channel that is not there has no form to read.
        known(&who, name)?;
    }
    let (head, body) = request.into_parts();
    let form = Form::read(&api, &head, body).await?;
    let wanted = if pauses {
        let mut object = form.object(&["reason", "by", "seen"]);
        let seconds = form.text("for_seconds");
        if !seconds.is_empty() {
            let seconds = seconds.parse::<u64>().map_or_else(|_| seconds.into(), Value::from);
            object.insert("for_seconds".to_owned(), seconds);
        }
        read_pause(&object, &who)
    } else {
        read_resume(&form.object(&["lift", "by", "seen"]), &who, channel.is_some())
    };
    let wanted = wanted.map_err(Problem::invalid)?;
    has_channels(&who, channel.as_deref())?;
    let back = channel.as_ref().map_or_else(|| "/".to_owned(), |channel| format!("/channels/{channel}"));
    let cause = wanted.cause(channel.is_some());
    let said = match carry_out(api, channel, wanted).await {
        Ok(done) => Said::after(&done, cause),
        // The person reads on the page what is there now.
        Err(problem) if problem.status() == StatusCode::CONFLICT => Said::changed(cause, form.text("seen")),
        Err(problem) => return Err(problem),
    };
    Ok(Redirect::to(&format!("{back}?{}", said.query())).into_response())
}

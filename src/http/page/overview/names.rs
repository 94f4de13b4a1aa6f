//! The overview while the counts or the nodes cannot be read: a person can still stop everything, and find the page of each channel.

use std::collections::HashSet;

use axum::response::Response;
use maud::html;

use super::super::super::{Api, Problem, Who};
use super::super::form::FormKey;
use super::super::notice::{Said, notice};
use super::super::numbered::NumberedPage;
use super::super::parts::foreign;
use super::super::pausing::{may_stop_everything, stop_form};
use super::super::{Page, Tab};
use super::{OverviewQuery, everything};
use crate::store::Suspension;

/// `unknown` says which of them is not known, and why.
pub(super) async fn show_names(
    api: &Api,
    who: &Who,
    key: &FormKey,
    query: &OverviewQuery,
    said: &Said,
    unknown: &str,
) -> Result<Response, Problem> {
    let now = api.census.suspended(&api.whole_node).await?;
    let stops: Vec<Suspension> =
        now.suspensions.iter().filter(|one| one.channel.is_none()).cloned().collect();
    let suspended: HashSet<&str> = now.suspensions.iter().filter_map(|one| one.channel.as_deref()).collect();
    let notice = notice(api, who, said, None, &stops).await?;
    let q = query.q.trim();
    let mut names = api.node.store.channel_names().await?;
    names.retain(|name| who.has_channel(name) && name.contains(q));
    let page = NumberedPage::new(query.page, names.len());
    let body = html! {
        div.title {
            h1 { "Channels" }
            @if may_stop_everything(who) { div #stop data-live { (stop_form(who, key, stops.first())) } }
        }
        div #said data-live { @if let Some(notice) = &notice { (notice) } }
        div #everything data-live { (everything(who, key, &stops)) }
        div #channels data-live {
            p.notice { (foreign(unknown)) }
            p { "Each page of a channel has what suspends it, and pauses and resumes it." }
            @if !q.is_empty() {
                p { "Only channels whose name contains " strong { (foreign(q)) } ". " a href="/" { "All channels" } }
            }
            ul {
                @for name in &names[page.places()] {
                    li {
                        a href={ "/channels/" (name) } { (name) }
                        @if suspended.contains(name.as_str()) { " is suspended" }
                    }
                }
            }
            (page.links("/", "channel", &[("q", q), ("show", "")]))
        }
    };
    Ok(key.keep(Page::new(Tab::Channels, "Channels", who, body).every(5)))
}

//! A list of the entries of one channel or of all, page by page, the lowest id first: its query, and the links to its other pages.

use maud::{Markup, html};
use serde::Deserialize;

/// Entries on one page.
pub(super) const MOST: u32 = 50;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::http) struct ListQuery {
    pub(super) channel: String,
    after: i64,
}

impl ListQuery {
    /// Only entries with a higher id than this belong to the page; `None` for the first page.
    pub(super) fn after(&self) -> Option<i64> {
        (self.after > 0).then_some(self.after)
    }

    /// The links of the page with these ids. `entries` is what the list is of, such as `refunds`.
    pub(super) fn pager(&self, path: &str, entries: &str, ids: impl ExactSizeIterator<Item = i64>) -> Markup {
        let link = |after: i64| {
            let mut query = form_urlencoded::Serializer::new(String::new());
            query.append_pair("channel", &self.channel).append_pair("after", &after.to_string());
            format!("{path}?{}", query.finish())
        };
        let is_full = ids.len() >= MOST as usize;
        let last = ids.last().filter(|_| is_full);
        html! {
            @if self.after().is_some() || last.is_some() {
                nav.pager aria-label={ "Pages of " (entries) } {
                    @if self.after().is_some() { a href=(link(0)) { "To the first " (entries) } }
                    @if let Some(last) = last { a rel="next" href=(link(last)) { "More " (entries) } }
                }
            }
        }
    }
}

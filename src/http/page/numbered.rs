//! One of the numbered pages of a list that is in memory as a whole: its entries, and the links to the pages beside it.

use std::ops::Range;

use maud::{Markup, html};

use super::parts::count;

/// Entries on one page.
const MOST: usize = 100;

#[derive(Debug, Clone, Copy)]
pub(super) struct NumberedPage {
    number: usize,
    /// Of the whole list.
    entries: usize,
}

impl NumberedPage {
    /// The page with this number, or the nearest one that a list with so many entries has.
    pub(super) fn new(wanted: usize, entries: usize) -> Self {
        NumberedPage { number: wanted.clamp(1, entries.div_ceil(MOST).max(1)), entries }
    }

    /// The places of its entries in the list.
    pub(super) fn places(self) -> Range<usize> {
        (self.number - 1) * MOST..self.entries.min(self.number * MOST)
    }

    /// The links. `entry` is what the list is of, such as `channel`; `kept` are the other fields of the query.
    pub(super) fn links(self, path: &str, entry: &str, kept: &[(&str, &str)]) -> Markup {
        let (number, pages) = (self.number, self.entries.div_ceil(MOST));
        let link = |number: usize| {
            let mut query = form_urlencoded::Serializer::new(String::new());
            query.extend_pairs(kept).append_pair("page", &number.to_string());
            format!("{path}?{}", query.finish())
        };
        html! {
            @if pages > 1 {
                nav.pager aria-label={ "Pages of " (entry) "s" } {
                    @if number > 1 { a rel="prev" href=(link(number - 1)) { "Earlier " (entry) "s" } }
                    span { "Page " (number) " of " (pages) ", " (count(self.entries as u64, entry)) }
                    @if number < pages { a rel="next" href=(link(number + 1)) { "More " (entry) "s" } }
                }
            }
        }
    }
}

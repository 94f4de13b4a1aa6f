//! `GET /review`: the refunds that wait for a person, with their evidence.

mod decide;

use std::collections::HashMap;

use axum::extract::State;
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};

use super::super::census::uncounted;
use super::super::named_channel::in_filter;
use super::super::query::Parameters;
use super::super::{Api, Problem, Who};
use super::decision::{TwoPeople, choices, decision_fields};
use super::form::FormKey;
use super::list::{ListQuery, MOST};
use super::parts::{cell, count, foreign, head, news, reason, span, state, time};
use super::story::{self, is_cut};
use super::watch::patience;
use super::{Page, Tab};
use crate::caller::scope::CallerScope;
use crate::refund::{Refund, RefundId, State as RefundState};
use crate::store::{Evidence, ProposalFilter, ReviewFilter, WaitingProposal};
pub(in crate::http) use decide::decide;

const NAMES: [&str; 7] = [
    "Choose",
    "Refund",
    "Amount",
    "Channel",
    "In review for",
    "Why, and the evidence",
    "May have been executed",
];
/// A list with its evidence costs more than another page, so it is read less often.
const EVERY: u32 = 10;

/// `GET /review`.
pub(in crate::http) async fn show(
    State(api): State<Api>,
    who: Who,
    key: FormKey,
    Parameters(query): Parameters<ListQuery>,
) -> Result<Response, Problem> {
    let channel = in_filter(&api, &who, &query.channel).await?;
    let filter =
        ReviewFilter { channel, channels: who.channels(), after: query.after().map(RefundId), most: MOST };
    // The refunds and their forms need no counts.
    let counted = api.census.read(&api.node, patience(api.census.has_value())).await;
    let census = counted.as_ref().map(|census| census.as_slice()).unwrap_or_default();
    let waiting: Vec<(&str, u64)> = census
        .iter()
        .filter(|one| who.has_channel(&one.channel))
        .filter_map(|one| {
            Some((one.channel.as_str(), *one.counts.get(&RefundState::Review).filter(|count| **count > 0)?))
        })
        .collect();
    let (refunds, evidence, proposals, proposed, now) = {
        let (node, channels) = (api.node.clone(), who.channels());
        let read = async move {
            let refunds = node.store.in_review(&filter).await?;
            let ids: Vec<RefundId> = refunds.iter().map(|refund| refund.id).collect();
            let evidence = story::last_lines(&node.store, &ids, &channels).await?;
            let about = ProposalFilter { refunds: Some(ids), limit: MOST, ..ProposalFilter::of(channels) };
            let proposals = node.store.proposals(&about).await?;
            let proposed = node.store.count_proposals().await?;
            let now = node.store.now().await?;
            Ok((refunds, evidence, proposals, proposed, now))
        };
        api.lists.place(&who).await.run(read).await?
    };
    let list = List { refunds: &refunds, evidence, proposals, now };
    let two_people = TwoPeople::read(&api).await?;
    let proposed: u64 =
        proposed.iter().filter(|(channel, _)| who.has_channel(channel)).map(|(_, count)| count).sum();
    let all: u64 = waiting.iter().map(|(_, count)| count).sum();
    let body = html! {
        h1 { "Review" }
        div #waiting-now data-live {
            @if let Err(problem) = &counted { p.notice { (foreign(&uncounted(problem))) } }
            @else { p { strong { (count(all, "refund")) } " in " (count(waiting.len() as u64, "channel")) @if all == 1 { " waits" } @else { " wait" } " for a person." } }
            @if proposed > 0 {
                p.notice {
                    strong { (count(proposed, "decision")) } " wait" @if proposed == 1 { "s" } " for a second person. "
                    a href="/approvals" { "To the approvals" }
                }
            }
        }
        (news("refund"))
        (filter_form(&query.channel, &waiting))
        @if refunds.is_empty() {
            p.empty { @if all == 0 && counted.is_ok() { "Nothing waits for a person." } @else { "No more refunds in this list." } }
        } @else if who.may(CallerScope::Review) {
            // A browser that goes back would choose the refunds at the old places, which may be other refunds by now.
            form #decisions.sides method="post" action="/review" autocomplete="off" {
                (key.field())
                div { (list.table(true)) }
                section.controls aria-labelledby="decide" {
                    h2 #decide { "Decide about the chosen refunds" }
                    (decision_fields(&who, &choices(RefundState::Review), &two_people.in_general()))
                    button.primary { "Write the decision" }
                }
            }
        } @else { (list.table(false)) }
        (query.pager("/review", "refunds", refunds.iter().map(|refund| refund.id.0)))
    };
    Ok(key.keep(Page::new(Tab::Review, "Review", &who, body).every(EVERY)))
}

fn filter_form(channel: &str, waiting: &[(&str, u64)]) -> Markup {
    html! {
        form.filter action="/review" {
            label { "Channel"
                input type="search" name="channel" value=(channel) list="waiting" maxlength="63" placeholder="all" autocomplete="off";
            }
            datalist #waiting {
                @for (name, number) in waiting.iter().take(500) { option value=(name) { (count(*number, "refund")) } }
            }
            button { "Filter" }
        }
    }
}

/// The refunds of one page of the list, with what is known about them.
struct List<'l> {
    refunds: &'l [Refund],
    evidence: HashMap<RefundId, Vec<Evidence>>,
    /// The decisions about them that wait for a second person.
    proposals: Vec<WaitingProposal>,
    now: Timestamp,
}

impl List<'_> {
    fn table(&self, may_decide: bool) -> Markup {
        html! {
            @if may_decide { p.all hidden { label { input #all type="checkbox"; " Choose all refunds of this page" } } }
            table.stack role="table" {
                (head("Refunds that wait for a person, the lowest id first", &NAMES[usize::from(!may_decide)..]))
                tbody role="rowgroup" { @for refund in self.refunds { (self.row(refund, may_decide)) } }
            }
        }
    }

    fn row(&self, refund: &Refund, may_decide: bool) -> Markup {
        let evidence = self.evidence.get(&refund.id).map_or(&[][..], Vec::as_slice);
        let proposal = self.proposals.iter().find(|one| one.proposal.refund_id == refund.id);
        html! {
            tr role="row" data-row={ (refund.id) "@" (refund.version) } {
                @if may_decide {
                    (cell("Choose", &html! {
                        input type="checkbox" name="refund" value={ (refund.id) "@" (refund.version) }
                            aria-label={ "Choose refund " (refund.refund_ref) ", version " (refund.version) };
                    }))
                }
                th scope="row" role="rowheader" {
                    a href={ "/refunds/" (refund.id) } { (foreign(&refund.refund_ref)) } span.at { "version " (refund.version) }
                    @if let Some(WaitingProposal { proposal, .. }) = proposal {
                        span.at { a href="/approvals" { (state(proposal.state)) " was proposed" } " by " (foreign(&proposal.by)) }
                    }
                }
                (cell("Amount", &html! { (refund.money) }))
                (cell("Channel", &html! { a href={ "/channels/" (refund.channel) } { (foreign(&refund.channel)) } }))
                (cell("In review for", &html! {
                    @match (in_review_since(evidence), evidence.first().and_then(ended)) {
                        (Some(since), _) => (span(self.now.duration_since(since).unsigned_abs())),
                        // The line that brought it here is older than those that were read.
                        (None, Some(oldest)) if is_cut(evidence) => {
                            "more than " (span(self.now.duration_since(oldest).unsigned_abs()))
                        },
                        (None, _) => span.none { "not known" },
                    }
                    span.at { "saved " (span(self.now.duration_since(refund.created_at).unsigned_abs())) " ago" }
                }))
                (cell("Why, and the evidence", &html! {
                    (reason(refund.reason.as_deref().unwrap_or("no reason was written")))
                    (story::evidence(evidence, &refund.refund_ref))
                }))
                (cell("May have been executed", &html! {
                    @match refund.uncertain_since {
                        Some(since) => { "since " (time(since)) }
                        None => "no: it is safe to send again",
                    }
                }))
            }
        }
    }
}

/// When the refund last came to a person; `None` if these lines do not go back so far.
fn in_review_since(evidence: &[Evidence]) -> Option<Timestamp> {
    let moved = |one: &&Evidence| one.moved_to.as_deref() == Some(RefundState::Review.as_str());
    evidence.iter().filter(moved).filter_map(ended).max()
}

fn ended(one: &Evidence) -> Option<Timestamp> {
    one.finished_at.or(one.started_at)
}

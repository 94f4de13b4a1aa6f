//! The story of one refund: what happened to it, in order, what it waits for, and when it will probably be sent.

mod journal;
mod kind;

use std::fmt::Write;

use jiff::{Timestamp, Unit};
use serde::Serialize;

pub use kind::HappeningKind;

use self::journal::sentence;
use super::channel::{ChannelStatus, SuspensionStatus};
use super::forecasts::{Measured, Prospects};
use super::fresh::with_backlog;
use crate::caller::Names;
use crate::node::meter::Binds;
use crate::refund::text::counted;
use crate::refund::{ProposalId, Refund, State};
use crate::store::{ChannelCensus, Evidence, EvidenceKind, Proposal, RefundProgress, Store, StoreError};

/// A refund and everything that is known about it.
#[derive(Debug, Serialize)]
pub struct Story {
    pub refund: Refund,
    /// What it waits for; null once it has ended.
    pub waits_for: Option<Awaited>,
    /// Its place in the order of its channel, from 1; null unless it is ready.
    pub place: Option<u64>,
    /// How many refunds of the channel are ready.
    pub of: Option<u64>,
    /// When it will probably be sent; null unless it is ready and its channel has a forecast.
    pub expected_at: Option<Timestamp>,
    pub expected_in_seconds: Option<f64>,
    /// Why a refund that is ready has no forecast.
    pub no_forecast_because: Option<String>,
    pub next_inquiry_at: Option<Timestamp>,
    /// In order of time.
    pub happened: Vec<Happening>,
    /// The journal goes back to this moment only, so earlier events may be missing; null if none can be missing.
    pub forgotten_before: Option<Timestamp>,
    /// Whether a byte of it may have left, as its row says: lines of the journal may be missing.
    #[serde(skip)]
    pub may_have_left: bool,
}

/// What a refund waits for.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Awaited {
    pub what: WaitsFor,
    /// For people.
    pub text: String,
    /// When the wait ends; null if nobody knows.
    pub until: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitsFor {
    /// Its own time, before the first send.
    DueTime,
    /// The time of the next send, after one that was not executed.
    Retry,
    /// A node that runs its channel.
    Node,
    /// The end of a pause or of cooling.
    Suspension,
    /// The refunds before it, and permits.
    Place,
    /// The bank's answer, or the end of the lease.
    Answer,
    /// The next inquiry.
    Inquiry,
    /// A send under the same key.
    Resend,
    /// Recovery, which brings it to a person.
    Recovery,
    Person,
}

/// One event of the story.
#[derive(Debug, Serialize)]
pub struct Happening {
    pub at: Timestamp,
    pub what: HappeningKind,
    /// Which of the kept sends it is, from 1 in order of time: also sends that do not count as an attempt. Only for a send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nth: Option<u32>,
    /// For people.
    pub text: String,
    /// What became of a proposal, for people; the text has it, too. `None` while the proposal waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub became: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
}

impl Story {
    /// Reads the story of a refund. `census` is that of all channels, or says why there is none; `status` is that of the refund's
    /// channel. Only the story of a refund that is ready needs them.
    pub async fn read(
        store: &Store,
        refund: Refund,
        census: Result<&[ChannelCensus], &str>,
        measured: &Measured,
        status: Option<&ChannelStatus>,
    ) -> Result<Option<Story>, StoreError> {
        let Some(progress) = store.progress(refund.id).await? else { return Ok(None) };
        let evidence = store.evidence(refund.id).await?;
        let forgotten_before = store.forgotten_before(&refund).await?;
        let proposed: Vec<ProposalId> = evidence.iter().filter_map(journal::proposal).collect();
        let proposals =
            if proposed.is_empty() { Vec::new() } else { store.proposals_of(refund.id, &proposed).await? };
        let mut expected = None;
        if refund.state == State::Ready {
            let before = store.refunds_before(refund.id).await?;
            expected = Some(match census {
                Ok(census) => {
                    let census = with_backlog(census, &refund, &before);
                    let prospects = Prospects::read(store, &census, measured).await?;
                    let (place, sent) = prospects.of_refund(&refund, &before, progress.now);
                    // What stops the channel is the reason, also where a forecast could be made.
                    let stopped = status.and_then(ChannelStatus::why_stopped);
                    (place, stopped.map_or_else(|| sent.map_err(str::to_owned), Err))
                }
                Err(why) => (1 + before.iter().map(|(_, count)| count).sum::<u64>(), Err(why.to_owned())),
            });
        }
        let uncounted = census.err();
        let mut suspensions = status.map(|status| status.suspensions.clone()).unwrap_or_default();
        // What suspends a channel needs no count.
        if uncounted.is_some() && refund.state == State::Ready {
            let now = store.suspensions_of(Some(&refund.channel)).await?;
            suspensions = now.into_iter().map(SuspensionStatus::from).collect();
        }
        let channel = census.unwrap_or_default().iter().find(|channel| channel.channel == refund.channel);
        let (place, sent) = expected.unzip();
        let (after, why_none) = sent.map_or((None, None), |sent| (sent.clone().ok(), sent.err()));
        let backlog = channel.and_then(|channel| channel.counts.get(&State::Ready).copied());
        Ok(Some(Story {
            waits_for: awaited(&refund, &progress, &evidence, status.ok_or(uncounted), &suspensions, place),
            of: place.map(|place| backlog.unwrap_or(place).max(place)),
            place,
            expected_at: after.and_then(|after| whole_second(progress.now.checked_add(after).ok()?)),
            expected_in_seconds: after.map(|after| after.as_secs_f64()),
            no_forecast_because: why_none,
            next_inquiry_at: progress.next_inquiry_at,
            happened: happened(&refund, evidence, &proposals, progress.now),
            forgotten_before,
            may_have_left: progress.may_have_left,
            refund,
        }))
    }

    /// As a reader with these channels may see it; see [`Evidence::shown_to`].
    #[must_use]
    pub fn shown_to(mut self, channels: &Names) -> Self {
        for one in &mut self.happened {
            if let Some(line) = one.evidence.take_if(|line| !line.is_open_to(channels)) {
                let line = line.shown_to(channels);
                let became = one.became.as_ref().map(|became| format!(" ({became})")).unwrap_or_default();
                let said = sentence(&line, one.nth.unwrap_or_default());
                one.text = format!("{said} (channel {}){became}", line.channel);
                one.evidence = Some(line);
            }
        }
        self
    }
}

/// The nearest whole second. A window ends at one, and a forecast some microseconds before it means its end.
fn whole_second(at: Timestamp) -> Option<Timestamp> {
    at.round(Unit::Second).ok()
}

fn awaited(
    refund: &Refund,
    progress: &RefundProgress,
    evidence: &[Evidence],
    channel: Result<&ChannelStatus, Option<&str>>,
    suspensions: &[SuspensionStatus],
    place: Option<u64>,
) -> Option<Awaited> {
    let step = |what, text: String, until| Some(Awaited { what, text, until });
    let name = &refund.channel;
    match refund.state {
        State::Succeeded | State::Failed | State::Cancelled => None,
        State::Review => step(WaitsFor::Person, "a person decides: `refundd review`".to_owned(), None),
        State::Sending => match &progress.lease {
            Some((node, until)) => {
                let text = format!("the bank's answer to node {node}, whose lease ends at {until:.0}");
                step(WaitsFor::Answer, text, Some(*until))
            }
            None => step(WaitsFor::Answer, "the bank's answer".to_owned(), None),
        },
        State::Unknown | State::Accepted => match progress.next_inquiry_at {
            Some(at) => {
                step(WaitsFor::Inquiry, format!("the bank is asked about it next at {at:.0}"), Some(at))
            }
            None if progress.may_be_resent => {
                let until = Some(refund.due_at);
                step(WaitsFor::Resend, "it is sent again under the same key".to_owned(), until)
            }
            None => step(WaitsFor::Recovery, "recovery brings it to a person".to_owned(), None),
        },
        State::Ready => {
            if refund.due_at > progress.now {
                let was_sent = evidence.iter().any(|line| line.kind == EvidenceKind::Send);
                let (what, why) = if was_sent {
                    (WaitsFor::Retry, "its next send")
                } else {
                    (WaitsFor::DueTime, "its time")
                };
                return step(what, format!("{why} is due at {:.0}", refund.due_at), Some(refund.due_at));
            }
            let channel = match channel {
                Ok(channel) if !channel.run_by.is_empty() => Ok(channel),
                Err(Some(why)) => Err(why),
                _ => return step(WaitsFor::Node, format!("no living node runs channel `{name}`"), None),
            };
            if !suspensions.is_empty() {
                // The refund goes when the last of them ends.
                let ends: Option<Vec<Timestamp>> = suspensions.iter().map(|one| one.until).collect();
                let until = ends.and_then(|ends| ends.into_iter().max());
                let causes: Vec<String> = suspensions.iter().map(SuspensionStatus::sentence).collect();
                return step(WaitsFor::Suspension, causes.join("; "), until);
            }
            let why = match channel.map(|channel| (channel.outage, channel.binds, channel)) {
                Err(why) => format!("; {why}"),
                Ok((Some(outage), ..)) => format!("; {outage}"),
                Ok((None, Binds::Nothing, _)) => String::new(),
                // The share says that this was so of late: a channel that was just resumed is bound by `paused`.
                Ok((None, _, channel)) => format!("; the channel is bound by {}", channel.binds_words()),
            };
            let before = counted(place.map_or(0, |place| place.saturating_sub(1)), "refund");
            step(WaitsFor::Place, format!("{before} of channel `{name}` before it{why}"), None)
        }
    }
}

/// The codes of a move, in the journal of the channel that the refund left, and of the other one.
const MOVED_OUT: &str = "moved_out";
const MOVED_IN: &str = "moved_in";

fn happened(
    refund: &Refund,
    mut evidence: Vec<Evidence>,
    proposals: &[Proposal],
    now: Timestamp,
) -> Vec<Happening> {
    let line = |at, what, text| Happening { at, what, nth: None, text, became: None, evidence: None };
    // Each move has a line in the journal of both channels.
    let first_move = evidence.iter().find(|one| one.code.as_deref() == Some(MOVED_OUT));
    let mut saved = format!("saved for channel `{}`", first_move.map_or(&refund.channel, |one| &one.channel));
    // A send that was not executed moves the due time, and the row keeps the new one alone.
    let keeps_first_due = evidence.iter().all(|one| one.kind != EvidenceKind::Send);
    if refund.due_at > refund.created_at && keeps_first_due {
        saved = format!("{saved}, due at {:.0}", refund.due_at);
    }
    if let Some(deadline) = refund.deadline_at {
        saved = format!("{saved}, with the deadline {deadline:.0}");
    }
    let mut story = vec![line(refund.created_at, HappeningKind::Saved, saved)];
    let last_move = evidence.iter().rev().find_map(|one| one.moved_to.clone());
    let at = |one: &Evidence| one.started_at.or(one.finished_at).unwrap_or(refund.created_at);
    evidence.sort_by_key(at);
    let mut sends = 0;
    for one in evidence.into_iter().filter(|one| one.code.as_deref() != Some(MOVED_IN)) {
        let what = match one.kind {
            EvidenceKind::Manual if one.code.as_deref() == Some(MOVED_OUT) => HappeningKind::Move,
            EvidenceKind::Manual => HappeningKind::Decision,
            EvidenceKind::Inquiry => HappeningKind::Inquiry,
            EvidenceKind::Recovery => HappeningKind::Recovery,
            EvidenceKind::Send => HappeningKind::Send,
        };
        sends += u32::from(what == HappeningKind::Send);
        let mut text = sentence(&one, sends);
        if one.channel != refund.channel && what != HappeningKind::Move {
            let _ = write!(text, " (channel {})", one.channel);
        }
        let nth = (what == HappeningKind::Send).then_some(sends);
        let proposal = journal::proposal(&one).and_then(|id| proposals.iter().find(|other| other.id == id));
        let became = proposal.and_then(|proposal| proposal.became(refund.version, now));
        if let Some(became) = &became {
            let _ = write!(text, " ({became})");
        }
        story.push(Happening { at: at(&one), what, nth, text, became, evidence: Some(one) });
    }
    let is_in_journal = last_move.as_deref() == Some(refund.state.as_str());
    if let Some(at) = refund.settled_at.filter(|_| !is_in_journal) {
        let why = refund.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        story.push(line(at, HappeningKind::Ended, format!("{}{why}", refund.state)));
    }
    story.sort_by_key(|one| one.at);
    story
}

#[cfg(test)]
mod tests;

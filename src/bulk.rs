//! Bulk: cancels or moves many refunds at once, of which no byte ever left. Commands and HTTP use it.
//!
//! Postgres decides about each refund in the commit that changes it, so a refund that a node claims meanwhile is sent and
//! stays. This module says of each refund what became of it, and takes ids out of buckets. It writes no answers.

mod outcome;

use std::collections::{BTreeMap, HashMap, HashSet};

pub use outcome::{BulkOutcome, BulkResult, NamedRef};

use crate::bucket::Bucket;
use crate::caller::Names;
use crate::refund::{ChannelName, Refund, RefundId, State};
use crate::store::{BulkLook, Canceller, Move, Stays, Store, StoreError, Waiting, WaitingSum};

/// How many refunds one commit changes.
pub const AT_ONCE: usize = 1_000;

/// What to do with the refunds.
#[derive(Debug, Clone)]
pub enum BulkAction {
    Cancel(Canceller),
    Move(Move),
}

/// Cancels or moves refunds, or says in a dry run which ones it would.
#[derive(Debug)]
pub struct Bulk {
    store: Store,
    action: BulkAction,
    look: BulkLook,
    is_dry: bool,
    /// How many refunds the other channel still takes in this dry run; `None` without a bound.
    room: Option<u64>,
}

impl Bulk {
    /// `channels` are those whose refunds exist for the one who gives the order.
    pub async fn new(
        store: Store,
        action: BulkAction,
        channels: Names,
        is_dry: bool,
    ) -> Result<Bulk, StoreError> {
        let (moves, room) = match &action {
            BulkAction::Cancel(_) => (None, None),
            BulkAction::Move(Move { from, to, .. }) => (
                Some((from.clone(), to.clone())),
                store.move_target(to).await?.and_then(|target| target.room),
            ),
        };
        Ok(Bulk { store, action, look: BulkLook { moves, channels }, is_dry, room })
    }

    /// Changes the refunds with these refs, at most [`AT_ONCE`], in one commit. A ref that stands there twice counts once, as it
    /// stands there first.
    pub async fn named(&mut self, refs: &[NamedRef]) -> Result<Vec<BulkResult>, StoreError> {
        let mut names = HashSet::new();
        let refs: Vec<&NamedRef> = refs.iter().filter(|one| names.insert(one.refund_ref.as_str())).collect();
        let mut found = self.look_up(&refs).await?;
        let mut may_go: Vec<(&NamedRef, RefundId)> = Vec::new();
        for &one in &refs {
            if let Some(waiting) = found.get(&one.refund_ref)
                && self.outcome_without_change(waiting, one.seen).is_none()
            {
                may_go.push((one, waiting.id));
            }
        }
        let ids: Vec<(RefundId, Option<i32>)> = may_go.iter().map(|(one, id)| (*id, one.seen)).collect();
        let mut done = self.carry_out(&ids).await?;
        // A refund that could go and did not has changed since.
        let left = may_go.iter().filter(|(_, id)| !self.is_dry && !done.contains_key(id));
        let left: Vec<&NamedRef> = left.map(|(one, _)| *one).collect();
        let mut now = if left.is_empty() { HashMap::new() } else { self.look_up(&left).await? };
        let is_full = !left.is_empty() && self.room().await? == Some(0);
        let ids = ids.into_iter().map(|(id, _)| id).collect();
        let would = if self.is_dry { self.would(ids) } else { HashSet::new() };
        let result = |one: &&NamedRef| {
            let (before, since) = (found.remove(&one.refund_ref), now.remove(&one.refund_ref));
            let outcome = match &before {
                None => BulkOutcome::NoSuchRefund,
                Some(waiting) => {
                    match (self.outcome_without_change(waiting, one.seen), done.remove(&waiting.id)) {
                        (Some(outcome), _) => outcome,
                        (None, Some(refund)) => BulkOutcome::Done(Box::new(refund)),
                        (None, None) if would.contains(&waiting.id) => BulkOutcome::WouldBeDone,
                        (None, None) if self.is_dry => BulkOutcome::NoRoom,
                        (None, None) => {
                            let now = since.as_ref();
                            match now.and_then(|waiting| self.outcome_without_change(waiting, one.seen)) {
                                Some(outcome) => outcome,
                                None if is_full => BulkOutcome::NoRoom,
                                None => BulkOutcome::WasInUse,
                            }
                        }
                    }
                }
            };
            BulkResult { refund_ref: one.refund_ref.clone(), refund: since.or(before), outcome }
        };
        Ok(refs.iter().map(result).collect())
    }

    /// Changes the next refunds of a channel that may go, up to the refund `newest`, in one commit: those that are due first come
    /// first. Answers how many may go, at most [`AT_ONCE`], and those that went: nodes may have claimed the others. A dry run
    /// changes none.
    pub async fn next_of(&self, channel: &str, newest: RefundId) -> Result<(usize, Vec<Refund>), StoreError> {
        let most = i64::try_from(AT_ONCE).unwrap_or(i64::MAX);
        let ready = self.store.never_sent(channel, &self.look, newest, most).await?;
        let ids: Vec<RefundId> = ready.iter().map(|waiting| waiting.id).collect();
        let mut done = self.carry_out(&at_any_version(&ids)).await?;
        Ok((ready.len(), ids.iter().filter_map(|id| done.remove(id)).collect()))
    }

    /// Changes those of these refunds, at most [`AT_ONCE`], that are in the channel and may go, in one commit. Answers how many may
    /// go, and those that went.
    pub async fn these_of(
        &self,
        channel: &str,
        ids: &[RefundId],
    ) -> Result<(usize, Vec<Refund>), StoreError> {
        let ready = self.store.still_never_sent(channel, &self.look, ids).await?;
        let gone = self.carry_out(&at_any_version(&ready)).await?;
        Ok((ready.len(), gone.into_values().collect()))
    }

    /// What waits in a channel, by currency, and by whether it may go.
    pub async fn sums(&self, channel: &str) -> Result<Vec<WaitingSum>, StoreError> {
        self.store.waiting_sums(channel, &self.look, None, false).await
    }

    /// The same, up to the refund `newest`.
    pub async fn sums_up_to(&self, channel: &str, newest: RefundId) -> Result<Vec<WaitingSum>, StoreError> {
        self.store.waiting_sums(channel, &self.look, Some(newest), false).await
    }

    /// The same of all, with the ids of the refunds that go: a change of these refunds alone changes what the sums say, or less.
    pub async fn sums_with_ids(&self, channel: &str) -> Result<Vec<WaitingSum>, StoreError> {
        self.store.waiting_sums(channel, &self.look, None, true).await
    }

    /// The refunds of a channel that have not ended and may not go, up to the refund `newest`; at most `most`.
    pub async fn staying(
        &self,
        channel: &str,
        newest: RefundId,
        most: usize,
    ) -> Result<Vec<BulkResult>, StoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let staying = self.store.staying(channel, &self.look, newest, most).await?;
        let result = |waiting: Waiting| {
            let outcome = waiting.stays.map_or(BulkOutcome::WasInUse, BulkOutcome::Stays);
            BulkResult { refund_ref: waiting.refund_ref.clone(), refund: Some(waiting), outcome }
        };
        Ok(staying.into_iter().map(result).collect())
    }

    /// How many more refunds the other channel takes; `None` without a bound.
    pub async fn room(&self) -> Result<Option<u64>, StoreError> {
        match &self.action {
            BulkAction::Cancel(_) => Ok(None),
            BulkAction::Move(order) => {
                Ok(self.store.move_target(&order.to).await?.and_then(|target| target.room))
            }
        }
    }

    /// Takes the ids of changed refunds out of the buckets that they were in. A failure does no harm: claims drop the ids.
    pub async fn withdraw(&self, bucket: &Bucket, gone: impl IntoIterator<Item = &Refund>) {
        let mut by_channel: BTreeMap<&str, Vec<RefundId>> = BTreeMap::new();
        for refund in gone {
            let channel = match &self.action {
                BulkAction::Cancel(_) => refund.channel.as_str(),
                BulkAction::Move(order) => order.from.as_str(),
            };
            by_channel.entry(channel).or_default().push(refund.id);
        }
        for (channel, ids) in by_channel {
            if let Ok(channel) = ChannelName::new(channel) {
                let _ = bucket.withdraw(&channel, &ids).await;
            }
        }
    }

    /// Why a refund stays, for people. `None` if it does not stay.
    #[must_use]
    pub fn why(&self, result: &BulkResult) -> Option<String> {
        let (from, to) = match &self.action {
            BulkAction::Cancel(_) => ("", None),
            BulkAction::Move(order) => (order.from.as_str(), Some(order.to.as_str())),
        };
        let target = to.unwrap_or_default();
        let Some(refund) = &result.refund else {
            return result.stays().then(|| result.unknown());
        };
        let Waiting { id, channel, version, money, .. } = refund;
        Some(match result.outcome {
            BulkOutcome::Done(_) | BulkOutcome::WouldBeDone | BulkOutcome::DoneBefore => return None,
            BulkOutcome::NoSuchRefund => result.unknown(),
            BulkOutcome::NoRoom => {
                format!("channel `{target}` has as many refunds waiting as its max_backlog allows")
            }
            BulkOutcome::WasInUse => "a node claimed it meanwhile and gave it back; try it again".to_owned(),
            BulkOutcome::Changed => format!(
                "it has changed since that version: it is in channel `{channel}` at version {version} now; look at it again, and name \
                 version {version} if you want it all the same"
            ),
            BulkOutcome::Stays(Stays::SentBefore) if to.is_none() => format!(
                "it was sent before, and the bank did not execute it; cancel it by POST /v1/refunds/{id}/cancel: \
                 its page, /refunds/{id}, shows the command"
            ),
            BulkOutcome::Stays(Stays::SentBefore) => {
                "it was sent before, so its bank may know its key; it is sent by its own channel alone"
                    .to_owned()
            }
            BulkOutcome::Stays(Stays::OtherChannel) => {
                format!("it is in channel `{channel}`, and not in `{from}`; to move it, name that one")
            }
            BulkOutcome::Stays(Stays::DeadlinePassed) => "its deadline has passed".to_owned(),
            BulkOutcome::Stays(Stays::AmountTooHigh) => format!(
                "channel `{target}` does not take {money}: its max_amount_minor is lower, or does not name the currency"
            ),
            BulkOutcome::Stays(Stays::CardNumber) => format!(
                "it holds what looks like a card number, and channel `{target}` does not have card_numbers = \"accepted\""
            ),
            BulkOutcome::Stays(Stays::State(state)) => match state {
                State::Ready => "a node claimed it meanwhile, so it may be sent".to_owned(),
                State::Review => format!("it is in review; decide it: refundd review show {id}"),
                State::Sending | State::Accepted | State::Unknown => {
                    format!("it is {state}, so it may have been sent")
                }
                State::Succeeded | State::Failed | State::Cancelled => format!("it is {state} already"),
            },
        })
    }

    async fn look_up(&self, refs: &[&NamedRef]) -> Result<HashMap<String, Waiting>, StoreError> {
        let refs: Vec<String> = refs.iter().map(|one| one.refund_ref.clone()).collect();
        let found = self.store.refunds_by_ref(&refs, &self.look).await?;
        Ok(found.into_iter().map(|waiting| (waiting.refund_ref.clone(), waiting)).collect())
    }

    /// What becomes of a refund that is not changed; `None` if it may go. `seen` is the version that the person saw.
    fn outcome_without_change(&self, waiting: &Waiting, seen: Option<i32>) -> Option<BulkOutcome> {
        let is_done = match &self.action {
            BulkAction::Cancel(_) => waiting.state == State::Cancelled,
            BulkAction::Move(order) => waiting.channel == order.to,
        };
        match waiting.stays {
            _ if is_done => Some(BulkOutcome::DoneBefore),
            Some(why) => Some(BulkOutcome::Stays(why)),
            None => seen.is_some_and(|seen| seen != waiting.version).then_some(BulkOutcome::Changed),
        }
    }

    /// Those of these refunds for which the other channel has room. `refundd.move` takes the first ids, too.
    fn would(&mut self, mut ids: Vec<RefundId>) -> HashSet<RefundId> {
        ids.sort_unstable();
        if let Some(room) = &mut self.room {
            ids.truncate(usize::try_from(*room).unwrap_or(usize::MAX));
            *room = room.saturating_sub(u64::try_from(ids.len()).unwrap_or(u64::MAX));
        }
        ids.into_iter().collect()
    }

    /// Changes those of these refunds that may go and have the version that the person saw, if one is named.
    async fn carry_out(
        &self,
        refunds: &[(RefundId, Option<i32>)],
    ) -> Result<HashMap<RefundId, Refund>, StoreError> {
        if refunds.is_empty() || self.is_dry {
            return Ok(HashMap::new());
        }
        let mut done = self.try_once(refunds).await;
        // A claim takes some of the rows in another order. It ends soon.
        for _ in 0..3 {
            if done.as_ref().is_err_and(StoreError::is_a_lock) {
                done = self.try_once(refunds).await;
            }
        }
        Ok(done?.into_iter().map(|refund| (refund.id, refund)).collect())
    }

    async fn try_once(&self, refunds: &[(RefundId, Option<i32>)]) -> Result<Vec<Refund>, StoreError> {
        match &self.action {
            BulkAction::Cancel(canceller) => self.store.cancel_never_sent(refunds, canceller).await,
            BulkAction::Move(order) => self.store.move_never_sent(refunds, order).await,
        }
    }
}

fn at_any_version(ids: &[RefundId]) -> Vec<(RefundId, Option<i32>)> {
    ids.iter().map(|id| (*id, None)).collect()
}

#[cfg(test)]
mod tests;

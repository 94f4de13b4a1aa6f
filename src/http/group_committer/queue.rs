//! The single refunds that wait for their commit. Their number and their bytes are bounded.
//!
//! A refund whose caller hangs up before its commit begins is dropped. Nobody waits for its answer, and its caller must repeat
//! it: otherwise callers with short time-outs would fill the queue of a slow Postgres with refunds that are saved in vain.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::http::budget::{Budget, ReservedBytes};
use crate::refund::{CallerName, NewRefund};
use crate::store::{Saved, StoreError};

/// The answer to the caller of one refund.
pub(super) type SaveAnswer = Result<Saved, Arc<StoreError>>;

/// Refunds that wait for their commit, and the writers that make the commits.
pub(super) struct SaveQueue {
    waiting: Vec<WaitingSave>,
    writers: usize,
    room: Budget,
}

/// A refund that waits.
pub(super) struct WaitingSave {
    pub refund: NewRefund,
    pub reply: SaveReply,
}

/// The way back to a caller. The bytes of its refund stay reserved until it is answered.
pub(super) struct SaveReply {
    to: oneshot::Sender<SaveAnswer>,
    _reserved: ReservedBytes,
}

impl SaveReply {
    /// Answers the caller, who may have hung up.
    pub fn send(self, answer: SaveAnswer) {
        let _ = self.to.send(answer);
    }
}

impl SaveQueue {
    /// The most groups being written at the same time. The second writer starts only while a full group waits: one
    /// commit for all waiting refunds costs less than two commits for half of them each.
    const WRITERS: usize = 2;
    const MOST_IN_A_GROUP: usize = 100;
    /// The most refunds that wait for their commit. Postgres saves about so many in a second, so in a longer queue callers
    /// would wait in vain.
    const MOST_WAITING: usize = 10_000;
    /// The most bytes of refunds that are not answered. Fewer than 10,000 refunds with the largest payloads reach it.
    const MOST_BYTES: usize = 32 * 1024 * 1024;
    /// The most of them that are one caller's.
    const MOST_BYTES_OF_A_CALLER: usize = Self::MOST_BYTES / 2;

    pub fn new() -> Self {
        let room = Budget::new(Self::MOST_BYTES, Self::MOST_BYTES_OF_A_CALLER);
        SaveQueue { waiting: Vec::new(), writers: 0, room }
    }

    /// Adds a refund. Returns where its answer comes; `None` if too many wait.
    pub fn add(
        &mut self,
        caller: Option<&CallerName>,
        refund: NewRefund,
    ) -> Option<oneshot::Receiver<SaveAnswer>> {
        let bytes = bytes_of(&refund);
        let mut reserved = self.room.try_reserve(caller, bytes).ok();
        if reserved.is_none() || self.waiting.len() >= Self::MOST_WAITING {
            self.drop_hung_up();
            reserved = reserved.or_else(|| self.room.try_reserve(caller, bytes).ok());
        }
        let reserved = reserved.filter(|_| self.waiting.len() < Self::MOST_WAITING)?;
        let (to, answered) = oneshot::channel();
        self.waiting.push(WaitingSave { refund, reply: SaveReply { to, _reserved: reserved } });
        Some(answered)
    }

    /// Whether there is work for one more writer. Counts it as begun, so it must begin.
    pub fn begins_writer(&mut self) -> bool {
        let begins = self.has_work_for(self.writers + 1);
        self.writers += usize::from(begins);
        begins
    }

    /// The refunds that wait longest. `None` counts the writer as ended, so it must end.
    pub fn next_group(&mut self) -> Option<Vec<WaitingSave>> {
        self.drop_hung_up();
        if !self.has_work_for(self.writers) {
            self.writers -= 1;
            return None;
        }
        let most = self.waiting.len().min(Self::MOST_IN_A_GROUP);
        Some(self.waiting.drain(..most).collect())
    }

    /// Whether there is work for this many writers.
    fn has_work_for(&self, writers: usize) -> bool {
        match writers {
            0 | 1 => !self.waiting.is_empty(),
            _ => writers <= Self::WRITERS && self.waiting.len() >= Self::MOST_IN_A_GROUP,
        }
    }

    fn drop_hung_up(&mut self) {
        self.waiting.retain(|waiting| !waiting.reply.to.is_closed());
    }
}

/// About how many bytes a refund keeps while it waits.
fn bytes_of(refund: &NewRefund) -> usize {
    let payload = refund.payload.as_ref().map_or(0, |payload| payload.as_str().len());
    size_of::<WaitingSave>() + refund.refund_ref.len() + refund.payment_ref.len() + payload
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::refund::{ChannelName, Money, Payload};

    fn refund(refund_ref: &str, payload_bytes: usize) -> NewRefund {
        NewRefund {
            refund_ref: refund_ref.to_owned(),
            channel: ChannelName::new("acme").unwrap(),
            payment_ref: "P-1".to_owned(),
            money: Money { amount_minor: 1250, currency: "EUR".to_owned() },
            payload: Some(Payload::from(&json!("x".repeat(payload_bytes)))),
            due_at: None,
            deadline_at: None,
            traceparent: None,
        }
    }

    #[test]
    fn a_refund_whose_caller_hung_up_before_its_commit_is_in_no_group() {
        let mut queue = SaveQueue::new();
        let _first = queue.add(None, refund("R-1", 1)).unwrap();
        drop(queue.add(None, refund("R-2", 1)));
        let _third = queue.add(None, refund("R-3", 1)).unwrap();
        assert!(queue.begins_writer() && !queue.begins_writer(), "one writer is enough");
        let group = queue.next_group().unwrap();
        let refs: Vec<_> = group.iter().map(|waiting| waiting.refund.refund_ref.as_str()).collect();
        assert_eq!(refs, ["R-1", "R-3"]);
        drop(queue.add(None, refund("R-4", 1)));
        assert!(queue.next_group().is_none(), "nobody waits for the last one");
    }

    #[test]
    fn a_queue_with_too_many_refunds_takes_one_when_the_caller_of_another_hung_up() {
        let mut queue = SaveQueue::new();
        let mut answers: Vec<_> = (0..SaveQueue::MOST_WAITING)
            .map(|n| queue.add(None, refund(&format!("R-{n}"), 1)).unwrap())
            .collect();
        assert!(queue.add(None, refund("R-more", 1)).is_none());
        answers.pop();
        let _more = queue.add(None, refund("R-more", 1)).expect("one has hung up");
        assert!(queue.add(None, refund("R-even-more", 1)).is_none());
    }

    #[test]
    fn a_caller_whose_refunds_take_its_share_of_the_bytes_leaves_room_to_others_until_it_is_answered() {
        let mut queue = SaveQueue::new();
        let [shop, desk] = ["shop", "desk"].map(|name| CallerName::new(name).unwrap());
        let large = || refund("R-1", 1024 * 1024);
        let mut answers = Vec::new();
        while let Some(answer) = queue.add(Some(&shop), large()) {
            answers.push(answer);
        }
        assert_eq!(answers.len(), 15, "each takes a little more than a MiB of 16");
        let _other = queue.add(Some(&desk), large()).expect("another caller has a share of its own");
        assert!(queue.begins_writer());
        let group = queue.next_group().unwrap();
        assert!(queue.add(Some(&shop), large()).is_none(), "they are being saved");
        drop(group);
        assert!(queue.add(Some(&shop), large()).is_some());
    }
}

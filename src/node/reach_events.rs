//! The events that this node cannot reach a channel's bank, and that it reaches it again.
//!
//! The database has no other record of that: without a connection this node takes nothing, and other nodes may have one.
//! What was written is kept for each channel, not for each worker: a reload, the usual repair, replaces the workers. A node
//! that starts does not know what the node before it wrote.

use std::collections::HashMap;
use std::sync::Mutex;

use super::{Node, jittered};
use crate::lock::Lock;
use crate::logs::chain;
use crate::refund::ChannelName;

/// What the events of each channel say, and what they should say. A channel whose bank is reached, and whose last event does
/// not deny it, has no entry.
#[derive(Debug, Default)]
pub struct ReachEvents(Mutex<HashMap<ChannelName, ReachEvent>>);

#[derive(Debug, Default)]
struct ReachEvent {
    /// Why the bank is unreachable now; `None` if it is reached.
    trouble: Option<String>,
    /// The last event says that the bank is unreachable.
    is_written: bool,
    /// A task writes what is to be written.
    is_writing: bool,
}

/// What an event is to say.
#[derive(Debug, PartialEq, Eq)]
enum ReachChange {
    /// The bank is unreachable, and why.
    Lost(String),
    Found,
}

impl ReachChange {
    fn trouble(&self) -> Option<&str> {
        match self {
            ReachChange::Lost(trouble) => Some(trouble),
            ReachChange::Found => None,
        }
    }
}

impl ReachEvents {
    /// Notes what holds now. Answers whether to begin a task that writes it.
    fn note(&self, channel: &ChannelName, trouble: Option<&str>) -> bool {
        let mut events = self.0.locked();
        let event = match trouble {
            Some(_) => events.entry(channel.clone()).or_default(),
            None => match events.get_mut(channel) {
                Some(event) => event,
                None => return false,
            },
        };
        if event.trouble.is_some() != trouble.is_some() {
            event.trouble = trouble.map(str::to_owned);
        }
        let begins = !event.is_writing && event.trouble.is_some() != event.is_written;
        event.is_writing |= begins;
        begins
    }

    /// What is to be written; `None` ends the task, because the last event says what holds.
    fn unwritten(&self, channel: &ChannelName) -> Option<ReachChange> {
        let mut events = self.0.locked();
        let event = events.get_mut(channel)?;
        if event.trouble.is_some() != event.is_written {
            return Some(event.trouble.clone().map_or(ReachChange::Found, ReachChange::Lost));
        }
        event.is_writing = false;
        if !event.is_written {
            events.remove(channel);
        }
        None
    }

    /// Notes that the last event says so.
    fn written(&self, channel: &ChannelName, change: &ReachChange) {
        if let Some(event) = self.0.locked().get_mut(channel) {
            event.is_written = change.trouble().is_some();
        }
    }
}

impl Node {
    /// Notes that this node cannot reach the channel's bank, and why, or that it reaches it. One event is written for each
    /// change. Until Postgres takes it, it is written again while it still holds.
    pub(super) fn note_reach(&self, channel: &ChannelName, trouble: Option<&str>) {
        if !self.reach_events.note(channel, trouble) {
            return;
        }
        let (node, channel) = (self.clone(), channel.clone());
        tokio::spawn(async move {
            while let Some(change) = node.reach_events.unwritten(&channel) {
                match node.store.note_reach(&channel, &node.name, change.trouble()).await {
                    Ok(()) => node.reach_events.written(&channel, &change),
                    Err(error) => {
                        tracing::debug!(channel.name = %channel, error = %chain(&error), "Failed to write an event");
                        tokio::select! {
                            () = node.stop.cancelled() => return,
                            () = tokio::time::sleep(jittered(Self::WRITE_AGAIN)) => {}
                        }
                    }
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_written_once_and_what_is_over_before_it_is_written_is_not() {
        let (events, acme) = (ReachEvents::default(), ChannelName::new("acme").unwrap());
        let refused = ReachChange::Lost("refused".to_owned());
        assert!(!events.note(&acme, None), "no event says otherwise");
        assert!(events.note(&acme, Some("refused")));
        assert!(!events.note(&acme, Some("silent")), "a task writes it already");
        for _ in 0..2 {
            assert_eq!(events.unwritten(&acme).as_ref(), Some(&refused), "until it is written");
        }
        events.written(&acme, &refused);
        assert_eq!(events.unwritten(&acme), None);
        assert!(!events.note(&acme, Some("silent")), "the last event says so");
        assert!(events.note(&acme, None));
        assert_eq!(events.unwritten(&acme), Some(ReachChange::Found));
        events.written(&acme, &ReachChange::Found);
        assert_eq!(events.unwritten(&acme), None);
        assert!(events.note(&acme, Some("refused")));
        assert!(!events.note(&acme, None));
        assert_eq!(events.unwritten(&acme), None, "it is over, and no event said it");
        assert!(events.0.locked().is_empty());
    }
}

//! What a reload changed, for the log.

use crate::refund::ChannelName;

/// The result of a reload.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    pub started: Vec<ChannelName>,
    pub changed: Vec<ChannelName>,
    pub stopped: Vec<ChannelName>,
    /// What changed of the other sections, such as `caller.shop added`.
    pub sections: Vec<String>,
    /// Keys that differ from those of the start and take effect only at a restart, such as `redis.url`.
    pub needs_restart: Vec<String>,
}

impl Reloaded {
    /// How many changes the text of [`Reloaded::changes`] names.
    const NAMED: usize = 20;

    /// What changed, for people: `channel.acme changed, caller.shop added`.
    #[must_use]
    pub fn changes(&self) -> String {
        let channels = [(&self.started, "added"), (&self.changed, "changed"), (&self.stopped, "removed")];
        let channels = channels
            .into_iter()
            .flat_map(|(names, change)| names.iter().map(move |name| format!("channel.{name} {change}")));
        let all: Vec<String> = channels.chain(self.sections.iter().cloned()).collect();
        match all.len().checked_sub(Self::NAMED) {
            _ if all.is_empty() => "no section changed".to_owned(),
            None | Some(0) => all.join(", "),
            Some(more) => format!("{}, and {more} more", all[..Self::NAMED].join(", ")),
        }
    }
}

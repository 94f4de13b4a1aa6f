//! A configuration that no node runs yet, as a forecast needs it.

use std::collections::HashMap;

use crate::limiter::Rule;
use crate::store::ChannelOutlook;

/// A configuration for which somebody wants the forecast, as if all living nodes ran it.
#[derive(Debug, Clone, Default)]
pub struct PlannedConfig {
    pub channels: HashMap<String, PlannedChannel>,
    pub limits: HashMap<String, Rule>,
    /// How many nodes would run it.
    pub nodes: u32,
}

/// One channel of a [`PlannedConfig`].
#[derive(Debug, Clone, Default)]
pub struct PlannedChannel {
    pub limits: Vec<String>,
    /// Whether inquiries spend permits of these limits, too.
    pub inquiries_share: bool,
    pub max_in_flight: u32,
}

impl PlannedConfig {
    /// The channel as the plan has it. Nobody runs a channel that the plan does not name.
    pub(super) fn replaces(&self, channel: &mut ChannelOutlook) {
        let Some(planned) = self.channels.get(&channel.channel) else {
            (channel.nodes, channel.limits) = (0, Vec::new());
            return;
        };
        channel.limits.clone_from(&planned.limits);
        channel.inquiries_share = planned.inquiries_share;
        channel.max_in_flight = Some(planned.max_in_flight);
        channel.nodes = self.nodes.max(1);
    }

    /// The rules of these limits, as far as the plan has them.
    pub(super) fn rules(&self, limits: &[String]) -> HashMap<String, Rule> {
        let rule = |name: &String| Some((name.clone(), self.limits.get(name)?.clone()));
        limits.iter().filter_map(rule).collect()
    }
}

//! What connections to one address need.

use std::time::Duration;

use crate::channel::{Channel, ClientIdentity, Networks, Roots};

/// What the connections to one address need: from a channel, or from `[notify]`.
#[derive(Debug, Clone)]
pub struct ConnectionSettings {
    /// For errors, such as "channel `acme`".
    pub owner: String,
    pub roots: Option<Roots>,
    pub client_identity: Option<ClientIdentity>,
    pub networks: Networks,
    pub connect_timeout: Duration,
    pub idle_timeout: Duration,
    /// From the first byte of a request to the last byte of its answer.
    pub timeout: Duration,
    /// The most connections at one time.
    pub most: usize,
}

impl ConnectionSettings {
    /// Those of a channel.
    pub fn of(channel: &Channel) -> Self {
        ConnectionSettings {
            owner: format!("channel `{}`", channel.name),
            roots: channel.roots.clone(),
            client_identity: channel.client_identity.clone(),
            networks: channel.networks.clone(),
            connect_timeout: channel.connect_timeout,
            idle_timeout: channel.idle_timeout,
            timeout: channel.timeout,
            most: channel.max_in_flight as usize,
        }
    }
}

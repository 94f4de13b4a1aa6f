//! What a worker waits for before it takes: the time of the next take, slots, connections, and the grant.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::resources::Resources;
use super::{ChannelWorker, Next, Work};
use crate::bank::Reserved;
use crate::node::meter::Binds;
use crate::node::slots::Slot;

/// What ends a worker's waits early.
#[derive(Debug)]
pub(super) struct Signals {
    pub stop: CancellationToken,
    /// The channel's bucket was filled.
    pub filled: Arc<Notify>,
    /// A node departed.
    pub departures: watch::Receiver<u64>,
}

/// Why a worker does not come to its take.
#[derive(Debug, Clone, Copy)]
pub(super) enum NotReady {
    /// It begins again, and takes then.
    Again(Next),
    Stopped,
}

impl<W: Work> ChannelWorker<W> {
    /// Sleeps until the worker should prepare the next take. The answer is the moment of the expected grant, if there is
    /// one.
    pub(super) async fn sleep(
        &mut self,
        next: Next,
        signals: &mut Signals,
    ) -> Result<Option<Instant>, NotReady> {
        if !matches!(next, Next::Now) {
            self.put_prefetched_back().await;
        }
        match next {
            Next::Now => {}
            Next::Grant(at) => {
                self.waits.on_limit();
                self.is_rare = at.saturating_duration_since(Instant::now()) > self.connections.set_up();
                let begin = at.checked_sub(self.dials_before(at)).unwrap_or(at);
                tokio::select! {
                    () = signals.stop.cancelled() => return Err(NotReady::Stopped),
                    // The permit that the departed node had reserved may be free now.
                    _ = signals.departures.changed() => self.notices.departed = true,
                    () = tokio::time::sleep_until(begin.into()) => return Ok(Some(at)),
                }
            }
            Next::Later(at) => tokio::select! {
                () = signals.stop.cancelled() => return Err(NotReady::Stopped),
                _ = signals.departures.changed() => self.notices.departed = true,
                () = tokio::time::sleep_until(at.into()) => {}
            },
            Next::WhenFilled { not_before } => {
                self.waits.on(Binds::Nothing);
                let asleep = self.wake_ups.sleep(&self.channel.name);
                tokio::select! {
                    () = signals.stop.cancelled() => {
                        // A successor may wait for the same signal: pass the signal on.
                        signals.filled.notify_one();
                        return Err(NotReady::Stopped);
                    }
                    () = signals.filled.notified() => self.depth = None,
                    _ = signals.departures.changed() => {
                        self.notices.departed = true;
                        return Err(NotReady::Again(next));
                    }
                }
                drop(asleep);
                // A filled bucket ends the wait for ids. It does not end the wait after a denial.
                if not_before > Instant::now() && !self.notices.departed {
                    return Err(NotReady::Again(Next::Grant(not_before)));
                }
            }
        }
        Ok(None)
    }

    /// Waits while the channel is suspended, and then for slots.
    pub(super) async fn wait_for_slots(&mut self, signals: &Signals) -> Result<Vec<Slot>, NotReady> {
        let ready = async {
            self.waits.on_suspension(&self.node, &self.channel);
            self.node.suspensions.wait_until_free(&self.channel.name, W::PURPOSE).await;
            self.waits.on(Binds::InFlight);
            self.free_slots().await
        };
        tokio::select! {
            biased;
            () = signals.stop.cancelled() => Err(NotReady::Stopped),
            slots = ready => Ok(slots),
            () = tokio::time::sleep(Self::KEEPS_PREFETCHED), if !self.prefetched.is_empty() => {
                self.put_prefetched_back().await;
                Err(NotReady::Again(Next::Now))
            }
        }
    }

    /// Waits for a connection for each of so many slots, for a grant that `opens` then.
    pub(super) async fn wait_for_connections(
        &mut self,
        slots: usize,
        opens: Option<Instant>,
        signals: &Signals,
    ) -> Result<Vec<Reserved>, NotReady> {
        self.waits.on_limit();
        let began = Instant::now();
        let keeps_ids = !self.prefetched.is_empty();
        let connections = tokio::select! {
            biased;
            () = signals.stop.cancelled() => return Err(NotReady::Stopped),
            connections = self.connect(slots, opens) => Some(connections),
            () = tokio::time::sleep(Self::KEEPS_PREFETCHED), if keeps_ids => None,
        };
        let Some(connections) = connections else {
            self.put_prefetched_back().await;
            return Err(NotReady::Again(Next::Now));
        };
        self.waits.connected(began, opens);
        connections.map_err(|retry_in| {
            self.waits.on(Binds::Bank);
            NotReady::Again(Next::later(retry_in.max(Self::LEAST_REST)))
        })
    }

    /// Waits until the grant `opens`, and then does without the connections that were closed meanwhile.
    pub(super) async fn wait_for_grant(
        &mut self,
        resources: &mut Resources,
        opens: Option<Instant>,
        signals: &mut Signals,
    ) -> Result<(), NotReady> {
        let Resources { slots, connections } = resources;
        if let Some(opens) = opens.filter(|opens| *opens > Instant::now()) {
            self.waits.on_limit();
            tokio::select! {
                () = signals.stop.cancelled() => return Err(NotReady::Stopped),
                _ = signals.departures.changed() => self.notices.departed = true,
                () = tokio::time::sleep_until(opens.into()) => {}
            }
            connections.retain(Reserved::is_open);
            let more = slots.len().saturating_sub(connections.len());
            connections.extend(self.connections.reserve_more(more, Instant::now()));
        }
        if connections.is_empty() { Err(NotReady::Again(Next::Now)) } else { Ok(()) }
    }
}

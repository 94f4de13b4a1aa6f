//! Looks for refunds that are to be asked about, and puts them in their channels' lines of inquiries.
//!
//! The leading node looks into the rows on behalf of all, once a second; every node looks at the lines
//! its own inquirers sleep on. Both are harmless when done twice: an id in line is ignored.

use std::time::{Duration, Instant};

use crate::bucket::{End, Errand};
use crate::node::failing::Failing;
use crate::node::reminding::ServerError;
use crate::node::{Node, jittered};
use crate::refund::ChannelName;
use crate::telemetry::chain;
use crate::wake_up::Desk;

/// The loop.
#[derive(Debug)]
pub struct Lookout {
    node: Node,
    desk: Desk,
}

impl Lookout {
    const PERIOD: Duration = Duration::from_secs(1);
    /// The ids a line of inquiries may hold.
    const CAPACITY: u32 = 100;

    pub fn new(node: Node, desk: Desk) -> Self {
        Lookout { node, desk }
    }

    pub async fn run(self) {
        let mut failing = Failing::default();
        let mut looked: Option<Instant> = None;
        loop {
            let started = Instant::now();
            let pass = self.node.progress.pass("inquiries");
            let fed = if self.node.leads() { self.feed().await } else { Ok(()) };
            let idle = self.desk.idle();
            // A thousand channels are looked at every two seconds, not every one.
            let every = Duration::from_millis(2) * u32::try_from(idle.len()).unwrap_or(u32::MAX);
            // Whatever became of the first: the trouble of one channel's server is not the others'.
            let woken = if looked.is_none_or(|at| at.elapsed() >= every) {
                looked = Some(Instant::now());
                self.wake(&idle).await
            } else {
                Ok(())
            };
            drop(pass);
            failing.note(
                &fed.and(woken),
                |error| {
                    tracing::warn!(error = %chain(error), "Failed to look for due inquiries, will try again");
                },
                || tracing::info!("Looking for due inquiries works again"),
            );
            // Never busy for more than a tenth of the time.
            let wait = jittered(Self::PERIOD).max(started.elapsed() * 9).min(Duration::from_secs(10));
            tokio::select! {
                () = self.node.stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Fills the lines that run low.
    async fn feed(&self) -> Result<(), ServerError> {
        let due = self.node.store.channels_with_due_inquiries().await?;
        let due: Vec<ChannelName> = due.iter().filter_map(|name| ChannelName::new(name).ok()).collect();
        let mut away = Ok(());
        let lines = self.node.bucket.survey(Errand::Inquire, &due).await;
        for (channel, line) in due.iter().zip(lines) {
            match line {
                Ok(line) if line.depth >= u64::from(Self::CAPACITY / 2) => continue,
                Ok(_) => {}
                Err(error) => {
                    away = Err(error.into());
                    continue;
                }
            }
            let ids = self.node.store.due_inquiries(channel, Self::CAPACITY).await?;
            let filled =
                self.node.bucket.fill_for(Errand::Inquire, channel, &ids, End::Back, Self::CAPACITY).await;
            if let Err(error) = filled {
                away = Err(error.into());
            }
        }
        away
    }

    /// Wakes the inquirers whose line was fed.
    async fn wake(&self, channels: &[ChannelName]) -> Result<(), ServerError> {
        let mut away = Ok(());
        let lines = self.node.bucket.survey(Errand::Inquire, channels).await;
        for (channel, line) in channels.iter().zip(lines) {
            match line {
                Ok(line) if line.depth > 0 => self.desk.fed(channel).notify_one(),
                Ok(_) => {}
                Err(error) => away = Err(error.into()),
            }
        }
        away
    }
}

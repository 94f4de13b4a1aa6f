//! One take, and what the worker does with each reply.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::blocked::Obstacle;
use super::resources::Resources;
use super::{ChannelWorker, Next, Work};
use crate::bank::Slept;
use crate::bucket::{BucketError, LimitWait, Purpose, StricterRule, Take};
use crate::channel::Channel;
use crate::limiter::Permit;
use crate::node::jittered;
use crate::refund::RefundId;

impl<W: Work> ChannelWorker<W> {
    /// The wait after a second restore or refused claim in a row, and after a take of which no refund is left.
    pub(super) const RESTORE_AGAIN: Duration = Duration::from_millis(50);

    /// One take, and the claim and the requests that follow.
    pub(super) async fn round(
        &mut self,
        channel: &Arc<Channel>,
        resources: Resources,
    ) -> Result<Next, Obstacle> {
        let name = &channel.name;
        let want = resources.slots.len().min(resources.connections.len());
        let want = u32::try_from(want).unwrap_or(u32::MAX).min(self.most_wanted);
        if self.blocked.is_by_postgres() {
            // A take would spend permits that no claim can use, and that other nodes can.
            self.node.store.ping().await?;
        }
        self.effective_limits.write_down().await?;
        if self.notices.departed {
            self.node.bucket.free_reservations(&channel.limits).await?;
            self.notices.departed = false;
        }
        if self.notices.wasted {
            self.node.bucket.forget_long_windows(&channel.limits).await?;
            self.notices.wasted = false;
        }
        let (began, slept) = (Instant::now(), Slept::now());
        let taken = self.take(channel, want).await;
        if matches!(taken, Ok(Take::Granted { .. } | Take::Denied { .. })) {
            self.forgot = false;
        }
        match taken {
            Ok(Take::Granted { taken, unused, .. }) if self.effective_limits.are_too_old() => {
                self.count_unspent(unused);
                self.give_back(&taken).await;
                Ok(Next::Now)
            }
            Ok(Take::Granted { taken, depth, is_low, again, stricter_rules, unused }) => {
                self.note_depth(depth);
                let longest = self.effective_limits.longest_wait(&stricter_rules);
                self.note_most_wanted(channel, &stricter_rules);
                self.waits.note_limit(channel, again.as_ref());
                self.note_status(channel, again.as_ref(), stricter_rules);
                if is_low {
                    self.wake_ups.nudge(name);
                }
                self.count_unspent(unused);
                if taken.is_empty() {
                    return Ok(Next::later(jittered(Self::RESTORE_AGAIN)));
                }
                let prefetch = self.prefetch(channel, taken.len());
                let (next, prefetched) =
                    tokio::join!(self.claim_and_start(channel, taken, slept, resources), prefetch);
                self.note_prefetched(prefetched);
                let next = next?;
                self.blocked.note_claim();
                let again = again.map(|again| began + again.span.min(longest));
                Ok(match (next, again) {
                    // If Redis forgot the bucket, rows may be due although the bucket is empty.
                    (Next::Now, again) if depth == 0 && self.prefetched.is_empty() => {
                        self.wake_ups.nudge(name);
                        Next::WhenFilled { not_before: again.unwrap_or(began) }
                    }
                    // The wait counts from before the claim.
                    (Next::Now, Some(again)) => Next::Grant(again),
                    (next, _) => next,
                })
            }
            Ok(Take::Denied { wait, depth, is_low, stricter_rules }) => {
                let longest = self.effective_limits.longest_wait(&stricter_rules);
                if let Some(depth) = depth {
                    self.note_depth(depth);
                }
                // While another node restores a count, the reply knows neither the depth nor the rules. A share knows the rules alone.
                if depth.is_some() || !stricter_rules.is_empty() {
                    self.note_most_wanted(channel, &stricter_rules);
                }
                self.waits.note_limit(channel, Some(&wait));
                self.note_status(channel, Some(&wait), stricter_rules);
                if is_low {
                    self.wake_ups.nudge(name);
                }
                Ok(Next::Grant(Instant::now() + wait.span.clamp(Duration::from_millis(1), longest)))
            }
            Ok(Take::Empty) => {
                self.note_depth(0);
                // If Redis forgot the bucket, rows may be due although the bucket is empty.
                self.wake_ups.nudge(name);
                Ok(Next::WhenFilled { not_before: began })
            }
            Ok(Take::Forgot(forgotten)) => {
                // While the clocks are apart, each try makes Redis forget the permits that the claim refuses.
                self.node.restore(&forgotten, self.blocked.is_by_clocks()).await?;
                // One restore is enough, unless another node has to restore as well.
                Ok(if std::mem::replace(&mut self.forgot, true) {
                    Next::later(jittered(Self::RESTORE_AGAIN))
                } else {
                    Next::Now
                })
            }
            Ok(Take::ClockStepped { by_us }) => {
                self.note_clock_step(by_us);
                Ok(Next::Now)
            }
            Err(error) => {
                // The script may have run although the call failed.
                self.notices.wasted = true;
                Err(error.into())
            }
        }
    }

    /// Notes how many permits the next take wants at most. Under a stricter rule of another node, the claim refuses more than this
    /// node's own rules allow in their `per`. Without one there is no bound: a take that gets all that it wants learns no time to come back.
    fn note_most_wanted(&mut self, channel: &Channel, stricter_rules: &[StricterRule]) {
        let own = channel.limits.iter().map(|limit| limit.rule.most());
        self.most_wanted = own.min().filter(|_| !stricter_rules.is_empty()).unwrap_or(u32::MAX);
    }

    /// Gives back what was taken too long after the look at this node's shares. The permits stay unused.
    pub(super) async fn give_back(&mut self, taken: &[(RefundId, Permit)]) {
        self.count_unspent(taken.len());
        let ids: Vec<RefundId> = taken.iter().map(|(id, _)| *id).collect();
        self.put_back(&ids).await;
        tracing::warn!(
            channel.name = %self.channel.name, refunds = taken.len(),
            "Channel `{}` gave {} refunds back: they were taken too long after this node had looked at its share of a limit",
            self.channel.name, taken.len(),
        );
    }

    /// Notes that Redis's clock was set, by so much if this node has just reported it.
    pub(super) fn note_clock_step(&mut self, by_us: i64) {
        self.notices.wasted = true;
        if by_us != 0 {
            tracing::warn!(
                channel.name = %self.channel.name, by_ms = by_us / 1000,
                "Redis's clock was set by {} ms; the limits rest until old permits expire",
                by_us / 1000,
            );
        }
    }

    /// Takes up to `want` ids: prefetched ones, or ids from the bucket.
    async fn take(&mut self, channel: &Channel, want: u32) -> Result<Take, BucketError> {
        if let Some(taken) = self.take_prefetched(want) {
            let depth = self.depth.unwrap_or(1);
            let stricter_rules = Vec::new();
            return Ok(Take::Granted { taken, depth, is_low: false, again: None, stricter_rules, unused: 0 });
        }
        let until = self.effective_limits.good_until();
        let taken = self.work.take(&self.node, &self.wake_ups, channel, want, until).await;
        self.node.metrics.take(&channel.name, W::PURPOSE, answer_of(&taken));
        taken
    }

    /// Notes the bucket's depth. Other loops and people see the depth of the buckets for sends only.
    pub(super) fn note_depth(&mut self, depth: u64) {
        self.depth = Some(depth);
        if W::PURPOSE == Purpose::Send {
            self.node.note_depth(&self.channel.name, depth);
        }
    }

    /// Notes for people which limit makes this channel's refunds wait, and which stricter rules of other nodes count.
    fn note_status(&self, channel: &Channel, wait: Option<&LimitWait>, stricter_rules: Vec<StricterRule>) {
        let limits = channel.limits.iter().map(|limit| &limit.name);
        if W::PURPOSE == Purpose::Send
            && self.node.status_report.note(&channel.name, limits, wait, &stricter_rules)
        {
            for limit in &channel.limits {
                let is = stricter_rules.iter().any(|o| o.limit == limit.name);
                self.node.metrics.limit_has_stricter_rule(&limit.name, is);
            }
            // If all nodes have the same file, the stricter rule is this node's own rule before a reload.
            let others = self.node.differs.load(Ordering::Relaxed);
            for StricterRule { limit, by } in stricter_rules.into_iter().filter(|_| others) {
                tracing::warn!(
                    limit.name = %limit, rule = by,
                    "Limit `{limit}`: using the stricter rule `{by}` of another node; reload all nodes from one file",
                );
            }
        }
    }
}

/// The metric's label for the result of a take.
pub(super) fn answer_of(taken: &Result<Take, BucketError>) -> &'static str {
    match taken {
        Ok(Take::Granted { .. }) => "granted",
        Ok(Take::Denied { .. }) => "denied",
        Ok(Take::Empty) => "empty",
        Ok(Take::Forgot(_)) => "forgot",
        Ok(Take::ClockStepped { .. }) => "clock_stepped",
        Err(_) => "failed",
    }
}

//! Draws the next step of something that a node has begun.

use refundd::bucket::Purpose;

use crate::plan::step::{Step, WEIGHTS};
use crate::world::World;

impl World<'_> {
    /// Draws one of all steps that nodes could go on with: the step, the node and the channel. A sluggish node seldom
    /// goes on.
    pub(super) fn next_of_a_node(&mut self) -> Option<(Step, usize, usize)> {
        let (now, instant) = (self.now(), self.stage.clock.instant());
        let mut choices = Vec::new();
        for (n, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.alive) {
            let slow = self.plan.sluggish == Some(n);
            let mut can = |step: Step, channel_index: usize| {
                let often =
                    WEIGHTS.iter().position(|(other, _)| *other == step).map_or(3, |at| self.plan.often[at]);
                choices.push(((step, n, channel_index), if slow { often } else { often * 8 }));
            };
            if !node.knows_postgres_clock {
                can(Step::Heartbeat, 0);
            }
            for (channel_index, worker) in node.send_workers.iter().enumerate() {
                if !worker.chores.is_empty() {
                    if worker.chores_at <= now {
                        can(Step::Chore, channel_index);
                    }
                } else if worker.taken.is_some() {
                    can(Step::Claim, channel_index);
                } else if worker.not_before <= now && node.may_take(Purpose::Send, channel_index, now) {
                    can(Step::Take, channel_index);
                }
                if node.to_feed.contains(&channel_index) {
                    can(Step::Feed, channel_index);
                }
            }
            for (channel_index, worker) in node.inquiry_workers.iter().enumerate() {
                if !worker.chores.is_empty() {
                    if worker.chores_at <= now {
                        can(Step::ChoreToAsk, channel_index);
                    }
                } else if worker.taken.is_some() {
                    can(Step::ClaimToAsk, channel_index);
                } else if worker.not_before <= now
                    && self.wants_to_ask(channel_index)
                    && node.may_take(Purpose::Inquire, channel_index, now)
                {
                    can(Step::TakeToAsk, channel_index);
                }
                if worker.next_inquiry_poll <= now && self.wants_to_ask(channel_index) {
                    can(Step::PollInquiries, channel_index);
                }
            }
            if node.asks.iter().any(|ask| ask.permit.span.is_none_or(|span| span.opens <= instant)) {
                can(Step::Ask, 0);
            }
            if node.inquiry_flights.iter().any(|flight| self.bank.questions[flight.place].ends <= now) {
                can(Step::ReadReply, 0);
            }
            if !node.unsettled_inquiries.is_empty() {
                can(Step::SettleInquiry, 0);
            }
            if !node.acquired.is_empty() {
                can(Step::Spend, 0);
            }
            if !node.fills.is_empty() {
                can(Step::Fill, 0);
            }
            if node.sends.iter().any(|send| send.permit.span.is_none_or(|span| span.opens <= instant)) {
                can(Step::Send, 0);
            }
            if node.flights.iter().any(|flight| self.bank.calls[flight.call].ends <= now) {
                can(Step::Land, 0);
            }
            if !node.outbox.is_empty() || !node.again.is_empty() {
                can(Step::Settle, 0);
            }
            if node.lost_claims.iter().any(|lost| lost.next <= now) {
                can(Step::TakeBack, 0);
            }
        }
        let mut left = self.rng.u32(0..choices.iter().map(|(_, often)| often).sum::<u32>().max(1));
        choices.into_iter().find_map(|(what, often)| {
            if left < often {
                return Some(what);
            }
            left -= often;
            None
        })
    }
}

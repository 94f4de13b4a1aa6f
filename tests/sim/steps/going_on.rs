//! What nodes have begun, and could go on with.

use refundd::bucket::Errand as Line;

use super::{Step, WEIGHTS};
use crate::world::World;

impl World<'_> {
    /// Of all that nodes could go on with, one thing; a sluggish node seldom goes on.
    pub(super) fn next_of_a_node(&mut self) -> Option<(Step, usize, usize)> {
        let (now, instant) = (self.now(), self.stage.clock.instant());
        let mut found = Vec::new();
        for (n, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.alive) {
            let slow = self.plan.sluggish == Some(n);
            let mut can = |step: Step, lane: usize| {
                let often =
                    WEIGHTS.iter().position(|(other, _)| *other == step).map_or(3, |at| self.plan.often[at]);
                found.push(((step, n, lane), if slow { often } else { often * 8 }));
            };
            if !node.has_beaten {
                can(Step::Beat, 0);
            }
            for (lane, of) in node.lanes.iter().enumerate() {
                if !of.errands.is_empty() {
                    can(Step::Errand, lane);
                } else if of.taken.is_some() {
                    can(Step::Claim, lane);
                } else if of.not_before <= now && node.may_take(Line::Send, lane, now) {
                    can(Step::Take, lane);
                }
                if node.hungry.contains(&lane) {
                    can(Step::Feed, lane);
                }
            }
            for (lane, of) in node.desks.iter().enumerate() {
                if !of.errands.is_empty() {
                    can(Step::RemindToAsk, lane);
                } else if of.taken.is_some() {
                    can(Step::ClaimToAsk, lane);
                } else if of.not_before <= now
                    && self.wants_to_ask(lane)
                    && node.may_take(Line::Inquire, lane, now)
                {
                    can(Step::TakeToAsk, lane);
                }
                if of.look_out <= now && self.wants_to_ask(lane) {
                    can(Step::LookOut, lane);
                }
            }
            if node.asks.iter().any(|ask| ask.permit.span.is_none_or(|span| span.opens <= instant)) {
                can(Step::Ask, 0);
            }
            if node.questions.iter().any(|question| self.bank.questions[question.place].ends <= now) {
                can(Step::Listen, 0);
            }
            if !node.words.is_empty() {
                can(Step::Believe, 0);
            }
            if !node.wishes.is_empty() {
                can(Step::Spend, 0);
            }
            if !node.food.is_empty() {
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
            if node.backs.iter().any(|back| back.next <= now) {
                can(Step::TakeBack, 0);
            }
        }
        let mut left = self.rng.u32(0..found.iter().map(|(_, often)| often).sum::<u32>().max(1));
        found.into_iter().find_map(|(what, often)| {
            if left < often {
                return Some(what);
            }
            left -= often;
            None
        })
    }
}

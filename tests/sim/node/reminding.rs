//! `Node::remind` and `Node::catch_up`: what a channel worker does before it takes again.

use std::sync::Arc;

use refundd::bucket::Errand as Line;

use super::{Errand, Node};
use crate::laws::{Lawful, taken};
use crate::world::{TOLERANCE, World, note};

impl World<'_> {
    pub(super) fn stumble(&mut self, n: usize, line: Line, lane: usize, what: &str) {
        let now = self.now();
        let lane_of = self.nodes[n].of(line, lane);
        lane_of.not_before = now + Node::TRY_AGAIN;
        lane_of.errands.clear();
        note!(
            self,
            "node {n} fails to {what} on c{lane}{}",
            if line == Line::Inquire { ", to ask" } else { "" }
        );
    }

    /// `Node::remind` and `Node::catch_up`, one await at a time.
    pub async fn errand(&mut self, n: usize, line: Line, lane: usize) -> Lawful<bool> {
        let Some(errand) = self.nodes[n].of(line, lane).errands.pop_front() else { return Ok(false) };
        let fate = self.fate();
        self.nodes[n].link.fares(fate);
        let (bucket, store) = (self.nodes[n].bucket.clone(), self.nodes[n].store.clone());
        let name = self.nodes[n].name.clone();
        match errand {
            Errand::Adopt(forgotten) => {
                self.travel();
                if self.troubled() {
                    self.stumble(n, line, lane, "adopt");
                    return Ok(true);
                }
                self.stage.tell_time().await;
                let told = taken(store.adopt(&forgotten, &name, TOLERANCE).await)?;
                note!(self, "node {n} asks the ledger about {}: {told:?}", forgotten.limit.name);
                if self.troubled() {
                    self.stumble(n, line, lane, "hear what was adopted");
                    return Ok(true);
                }
                let remind = Errand::Remind(Arc::clone(&forgotten.limit), told);
                self.nodes[n].of(line, lane).errands.push_front(remind);
            }
            Errand::Remind(limit, told) => {
                if bucket.remind(&limit, &told).await.is_err() {
                    self.stumble(n, line, lane, "remind");
                } else {
                    self.asked_under(std::slice::from_ref(&limit), false);
                    note!(self, "node {n} tells Redis about {}", limit.name);
                }
            }
            Errand::CatchUp(limit, permit) => {
                let Some(number) = permit.numbers.iter().rfind(|number| number.limit == limit.name) else {
                    return Ok(true);
                };
                self.travel();
                if self.troubled() {
                    self.stumble(n, line, lane, "catch up");
                    return Ok(true);
                }
                self.stage.tell_time().await;
                let generation = taken(store.generation(&limit.name).await)?;
                let next = if generation != number.generation {
                    Errand::Forget(limit, generation.max(number.generation.saturating_add(1)))
                } else if limit.rule.algorithm.is_numbered() {
                    let window = (number.window_start_us, number.window_start_us + 1);
                    let told =
                        taken(store.recollect(&limit, number.window_start_us, window, TOLERANCE).await)?;
                    Errand::Remind(limit, told)
                } else {
                    return Ok(true);
                };
                note!(self, "node {n} catches up: {next:?}");
                self.nodes[n].of(line, lane).errands.push_front(next);
            }
            Errand::Forget(limit, generation) => {
                if bucket.forget(&limit, generation).await.is_err() {
                    self.stumble(n, line, lane, "make Redis forget");
                }
            }
        }
        Ok(true)
    }
}

//! `Node::restore` and `Node::catch_up`: a channel worker restores Redis, or catches up with the ledger, before it
//! takes again.

use std::sync::Arc;

use refundd::bucket::{Bucket, Purpose};

use crate::redis::Fate;
use crate::violation::{Checked, broken, taken};
use crate::world::node::{Chore, Node, TOLERANCE};
use crate::world::{World, note};

impl World<'_> {
    /// Nobody makes Redis forget any more. Workers that wasted permits make it forget long windows now and then.
    const MOST_RESTORES_IN_CALM: u32 = 40;

    /// A call failed: the worker gives its chores up and tries again after [`Node::TRY_AGAIN`].
    pub(super) fn stumble(&mut self, n: usize, purpose: Purpose, channel_index: usize, what: &str) {
        let now = self.now();
        let worker = self.nodes[n].worker(purpose, channel_index);
        worker.not_before = now + Node::TRY_AGAIN;
        worker.chores.clear();
        note!(
            self,
            "node {n} fails to {what} on c{channel_index}{}",
            if purpose == Purpose::Inquire { ", to ask" } else { "" }
        );
    }

    /// `Bucket::while_restoring`: each living node that restores a count has said so a moment ago. Redis takes it for silent
    /// when ten such calls are missing, so none of them is lost here.
    pub(super) async fn say_still(&self) {
        for node in self.nodes.iter().filter(|node| node.alive) {
            for forgotten in node.restores() {
                node.link.fares(Fate { rng: self.rng.clone(), refused: 0, lost: 0, slow: 0 });
                let _ = node.bucket.still(&forgotten).await;
            }
        }
    }

    /// `Node::restore` and `Node::catch_up`, one await at a time.
    pub async fn chore(&mut self, n: usize, purpose: Purpose, channel_index: usize) -> Checked<bool> {
        if self.nodes[n].worker(purpose, channel_index).chores_at > self.now() {
            return Ok(false);
        }
        let Some(chore) = self.nodes[n].worker(purpose, channel_index).chores.pop_front() else {
            return Ok(false);
        };
        self.nodes[n].worker(purpose, channel_index).reads_for = None;
        let fate = self.fate();
        self.nodes[n].link.fares(fate);
        let (bucket, store) = (self.nodes[n].bucket.clone(), self.nodes[n].store.clone());
        let name = self.nodes[n].name.clone();
        match chore {
            Chore::Adopt(forgotten) => {
                self.travel();
                if self.troubled() {
                    let _ = bucket.give_up(&forgotten).await;
                    self.stumble(n, purpose, channel_index, "adopt");
                    return Ok(true);
                }
                self.stage.tell_time().await;
                let count = taken(store.adopt(&forgotten, &name, TOLERANCE).await)?;
                note!(self, "node {n} asks the ledger about {}: {count:?}", forgotten.limit.name);
                self.restores_in_calm += u32::from(self.calm);
                if self.restores_in_calm > World::MOST_RESTORES_IN_CALM {
                    let limit = &forgotten.limit.name;
                    return broken(
                        "a lost count is restored and stays",
                        format!("limit {limit} is lost once more"),
                    );
                }
                if self.troubled() {
                    let _ = bucket.give_up(&forgotten).await;
                    self.stumble(n, purpose, channel_index, "hear what was adopted");
                    return Ok(true);
                }
                let is_newer = forgotten.generation > count.generation;
                let restore = Chore::Restore(Arc::clone(&forgotten.limit), count);
                let longest = self.plan.ledger;
                let takes = if longest > 0 { self.rng.i64(longest / 3..=longest) } else { 0 };
                let now = self.now();
                let worker = self.nodes[n].worker(purpose, channel_index);
                worker.chores.push_front(restore);
                if is_newer {
                    let next = forgotten.generation.saturating_add(1);
                    worker.chores.push_front(Chore::Forget(Arc::clone(&forgotten.limit), next));
                }
                worker.chores_at = now + takes;
                worker.reads_for = Some(forgotten);
            }
            Chore::Restore(limit, count) => match bucket.restore(&limit, &count).await {
                Ok(true) => {
                    self.note_rule_use(std::slice::from_ref(&limit), false);
                    note!(self, "node {n} tells Redis about {}", limit.name);
                }
                Ok(false) => note!(self, "Redis knows {} better than node {n}", limit.name),
                Err(_) => self.stumble(n, purpose, channel_index, "restore"),
            },
            Chore::CatchUp(limit, permit) => {
                let Some(number) = permit.numbers.iter().rfind(|number| number.limit == limit.name) else {
                    return Ok(true);
                };
                self.travel();
                if self.troubled() {
                    self.stumble(n, purpose, channel_index, "catch up");
                    return Ok(true);
                }
                self.stage.tell_time().await;
                let generation = taken(store.generation(&limit.name).await)?;
                let next = if generation != number.generation {
                    Chore::Forget(limit, generation.max(number.generation.saturating_add(1)))
                } else if limit.rule.algorithm.is_numbered() {
                    let window = (number.window_start_us, number.window_start_us + 1);
                    let count =
                        taken(store.count_spent(&limit, number.window_start_us, window, TOLERANCE).await)?;
                    if limit.rule.per >= Bucket::LONG_WINDOW && i64::from(number.ordinal) > count.used {
                        Chore::Forget(limit, i64::MAX)
                    } else {
                        Chore::Restore(limit, count)
                    }
                } else {
                    return Ok(true);
                };
                note!(self, "node {n} catches up: {next:?}");
                self.nodes[n].worker(purpose, channel_index).chores.push_front(next);
            }
            Chore::Forget(limit, generation) => {
                if bucket.forget(&limit, generation).await.is_err() {
                    self.stumble(n, purpose, channel_index, "make Redis forget");
                }
            }
        }
        Ok(true)
    }
}

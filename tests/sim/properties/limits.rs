//! The property that no limit is ever exceeded.

use std::collections::BTreeMap;

use refundd::limiter::Limit;

use crate::clock::{BEGAN_US, micros};
use crate::violation::{Checked, broken};
use crate::world::World;
use crate::world::effective_limits::EffectiveLimits;

impl World<'_> {
    /// Checks that no more requests arrived under a limit than it allows. Sends, inquiries and requests of other
    /// services count.
    pub fn keeps(&self, limit: &Limit) -> Checked<()> {
        let uses =
            |channel: usize| self.plan.files[0][channel].limits.iter().any(|other| other.name == limit.name);
        let inquiries = self.bank.questions.iter().filter(|question| question.limits.contains(&limit.name));
        let others = self.bank.others.iter().filter(|other| other.limit == limit.name);
        let mut arrived: Vec<i64> = self
            .bank
            .calls
            .iter()
            .filter(|call| call.in_time && uses(call.channel))
            .filter_map(|call| call.arrives)
            .chain(inquiries.map(|question| question.arrives))
            .chain(others.map(|other| other.arrives))
            .collect();
        arrived.sort_unstable();
        let per = micros(limit.rule.per);
        let fixed = limit.rule.algorithm.is_numbered();
        let broken = |count: usize, most: usize, what: String| {
            let Limit { name, rule, .. } = limit;
            broken(
                "no limit is ever exceeded",
                format!("{count} arrivals {what} under {name} ({rule}), {most} at most"),
            )
        };
        if fixed && !self.stepped {
            let mut windows: BTreeMap<i64, usize> = BTreeMap::new();
            for at in &arrived {
                *windows.entry((BEGAN_US + at).div_euclid(per)).or_default() += 1;
            }
            for (window, count) in windows {
                let start = window * per - BEGAN_US;
                let (most, _) = self.loosest(limit, start, start + per);
                if count > most {
                    return broken(count, most, format!("in the window from {start}"));
                }
            }
            return Ok(());
        }
        for (nth, at) in arrived.iter().enumerate() {
            let count = arrived[nth..].partition_point(|other| *other < at + per);
            let (permits, burst) = self.loosest(limit, *at, at + per);
            let most = if fixed { 2 * permits } else { permits + burst };
            if count > most {
                return broken(count, most, format!("in the span from {at}"));
            }
        }
        Ok(())
    }

    /// The most permits and the greatest burst of the rules that may have been in force when the arrivals of a span
    /// were granted.
    fn loosest(&self, limit: &Limit, from: i64, until: i64) -> (usize, usize) {
        if self.plan.files.len() == 1 {
            return EffectiveLimits::of(limit);
        }
        // The longest time from a grant to its arrival: how far ahead a node may ask, and the way to the bank.
        let algorithm = &limit.rule.algorithm;
        let ahead = if algorithm.is_numbered() && self.stepped {
            10_000_000
        } else if algorithm.is_paced() {
            1_000_000
        } else {
            0
        };
        let lead = ahead + micros(limit.ahead) + 100_000 + micros(limit.rule.lateness);
        self.effective_limits
            .loosest(&limit.name, from - lead, until)
            .unwrap_or_else(|| EffectiveLimits::of(limit))
    }

    /// Records that a node asked under these limits.
    pub fn note_rule_use(&mut self, limits: &[std::sync::Arc<Limit>], sure: bool) {
        if self.plan.files.len() == 1 {
            return;
        }
        // Of two primaries, each gets only some of the questions.
        let (now, sure) = (self.now(), sure && !self.stage.redis.is_forked());
        for limit in limits {
            self.effective_limits.note_use(limit, now, sure);
        }
    }

    /// Records that Redis may have forgotten which rules nodes asked under.
    pub fn forget_rule_uses(&mut self) {
        let now = self.now();
        let limits = self.plan.files.iter().flatten().flat_map(|channel| &channel.limits);
        self.effective_limits.forget_uses(limits.map(AsRef::as_ref), now);
    }
}

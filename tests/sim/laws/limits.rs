//! No limit is ever exceeded.

use std::collections::BTreeMap;

use refundd::limiter::{Algorithm, Limit};

use super::{Lawful, broken};
use crate::clock::{BEGAN_US, micros};
use crate::world::World;

impl World<'_> {
    /// Whatever arrived under a limit, refunds and inquiries, is no more than it lets through.
    pub fn keeps(&self, limit: &Limit) -> Lawful<()> {
        let uses =
            |channel: usize| self.plan.files[0][channel].limits.iter().any(|other| other.name == limit.name);
        let asked = self.bank.questions.iter().filter(|question| question.limits.contains(&limit.name));
        let mut arrived: Vec<i64> = self
            .bank
            .calls
            .iter()
            .filter(|call| call.in_time && uses(call.channel))
            .filter_map(|call| call.arrives)
            .chain(asked.map(|question| question.arrives))
            .collect();
        arrived.sort_unstable();
        let per = micros(limit.rule.per);
        // Of several files the loosest counts: which is in force is not the bank's to know.
        let same =
            || self.plan.files.iter().flatten().flat_map(|c| &c.limits).filter(|l| l.name == limit.name);
        let permits = same().map(|limit| limit.rule.permits as usize).max().unwrap_or(0);
        let burst = same()
            .map(|limit| match limit.rule.algorithm {
                Algorithm::TokenBucket { burst } => burst as usize,
                _ => 0,
            })
            .max()
            .unwrap_or(0);
        let fixed = matches!(limit.rule.algorithm, Algorithm::FixedWindow { .. });
        if fixed && !self.stepped {
            let mut windows: BTreeMap<i64, usize> = BTreeMap::new();
            for at in &arrived {
                *windows.entry((BEGAN_US + at).div_euclid(per)).or_default() += 1;
            }
            return match windows.iter().find(|(_, count)| **count > permits) {
                Some((window, count)) => broken(
                    "no limit is ever exceeded",
                    format!(
                        "{count} arrivals in the window from {} under {} ({})",
                        window * per - BEGAN_US,
                        limit.name,
                        limit.rule
                    ),
                ),
                None => Ok(()),
            };
        }
        let most = if fixed { 2 * permits } else { permits + burst };
        for (nth, at) in arrived.iter().enumerate() {
            let count = arrived[nth..].partition_point(|other| *other < at + per);
            if count > most {
                return broken(
                    "no limit is ever exceeded",
                    format!("{count} arrivals in the span from {at} under {} ({})", limit.name, limit.rule),
                );
            }
        }
        Ok(())
    }
}

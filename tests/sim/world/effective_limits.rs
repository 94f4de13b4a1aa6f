//! Which of the rules of several files may be in force, and when: docs/limits.md, "While files differ".
//!
//! The stricter rule is in force. A looser rule takes over only when no node has asked under the stricter one for
//! 3 s. Redis may learn of the last such question up to 1 s late. When Redis forgets a limit, it also forgets these
//! questions.

use refundd::limiter::{Limit, Rule};
use refundd::refund::LimitName;

/// How long a question under a stricter rule keeps looser rules out, less the time that a call may take. In us.
const KEEPS_OUT: i64 = 1_900_000;

/// A time in which a rule of a limit may have been in force.
#[derive(Debug)]
struct Spell {
    limit: LimitName,
    rule: Rule,
    from: i64,
    until: i64,
    /// When Redis last certainly answered a node under this rule.
    last_used: i64,
}

/// The times in which each rule may have been in force.
#[derive(Debug, Default)]
pub struct EffectiveLimits(Vec<Spell>);

fn burst(rule: &Rule) -> usize {
    rule.algorithm.burst().unwrap_or(0) as usize
}

fn is_stricter(a: &Rule, b: &Rule) -> bool {
    (a.permits, a.at_once(), a.to_string()) < (b.permits, b.at_once(), b.to_string())
}

impl EffectiveLimits {
    /// A node asked under a rule. `sure` says that Redis certainly read the rule.
    pub fn note_use(&mut self, limit: &Limit, now: i64, sure: bool) {
        let of = |spell: &&mut Spell| spell.limit == limit.name;
        let kept_out = self.0.iter_mut().filter(of).any(|spell| {
            is_stricter(&spell.rule, &limit.rule) && spell.last_used.saturating_add(KEEPS_OUT) > now
        });
        if sure {
            for looser in self.0.iter_mut().filter(of).filter(|spell| is_stricter(&limit.rule, &spell.rule)) {
                looser.until = looser.until.min(now);
            }
        }
        let open = self.0.iter_mut().filter(of).find(|spell| spell.rule == limit.rule && spell.until > now);
        if let Some(spell) = open {
            if sure {
                spell.last_used = now;
            }
        } else if !kept_out {
            let (limit, rule) = (limit.name.clone(), limit.rule.clone());
            let last_used = if sure { now } else { i64::MIN };
            self.0.push(Spell { limit, rule, from: now, until: i64::MAX, last_used });
        }
    }

    /// Redis lost its data, or another server took over. Any of these rules may be in force until a node asks again.
    pub fn forget_uses<'a>(&mut self, limits: impl Iterator<Item = &'a Limit>, now: i64) {
        for spell in &mut self.0 {
            spell.last_used = i64::MIN;
        }
        for limit in limits {
            self.note_use(limit, now, false);
        }
    }

    /// The most permits and the greatest burst of all rules that may have been in force between `from` and `until`.
    pub fn loosest(&self, limit: &LimitName, from: i64, until: i64) -> Option<(usize, usize)> {
        self.0
            .iter()
            .filter(|spell| spell.limit == *limit && spell.from <= until && spell.until >= from)
            .map(|spell| (spell.rule.permits as usize, burst(&spell.rule)))
            .reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)))
    }

    /// The permits and the burst of a limit's own rule.
    pub fn of(limit: &Limit) -> (usize, usize) {
        (limit.rule.permits as usize, burst(&limit.rule))
    }
}

//! Which of several files' rules may be in force, and when: docs/limits.md, "While files differ".
//!
//! The stricter rule rules. A looser one takes over only when nobody has asked under the stricter for 3 s,
//! of which the last question may be known up to 1 s late. What Redis forgot, it forgot with who asked.

use refundd::limiter::{Algorithm, Limit, Rule};
use refundd::refund::LimitName;

/// For so long a question under the stricter rule keeps looser ones out, less what a call may take.
const KEEPS_OUT: i64 = 1_900_000;

#[derive(Debug)]
struct Spell {
    limit: LimitName,
    rule: Rule,
    from: i64,
    until: i64,
    /// When somebody was last answered under it for certain.
    asked: i64,
}

/// The spells in which each rule may have been in force.
#[derive(Debug, Default)]
pub struct InForce(Vec<Spell>);

fn burst(rule: &Rule) -> usize {
    match rule.algorithm {
        Algorithm::TokenBucket { burst } => burst as usize,
        _ => 0,
    }
}

fn is_stricter(a: &Rule, b: &Rule) -> bool {
    (a.permits, a.at_once(), a.to_string()) < (b.permits, b.at_once(), b.to_string())
}

impl InForce {
    /// Somebody asked under a rule; `sure` is whether Redis answered, and knows it.
    pub fn asked(&mut self, limit: &Limit, now: i64, sure: bool) {
        let of = |spell: &&mut Spell| spell.limit == limit.name;
        let kept_out = self.0.iter_mut().filter(of).any(|spell| {
            is_stricter(&spell.rule, &limit.rule) && spell.asked.saturating_add(KEEPS_OUT) > now
        });
        if sure {
            for looser in self.0.iter_mut().filter(of).filter(|spell| is_stricter(&limit.rule, &spell.rule)) {
                looser.until = looser.until.min(now);
            }
        }
        let open = self.0.iter_mut().filter(of).find(|spell| spell.rule == limit.rule && spell.until > now);
        if let Some(spell) = open {
            if sure {
                spell.asked = now;
            }
        } else if !kept_out {
            let (limit, rule) = (limit.name.clone(), limit.rule.clone());
            let asked = if sure { now } else { i64::MIN };
            self.0.push(Spell { limit, rule, from: now, until: i64::MAX, asked });
        }
    }

    /// Redis lost what it knew, or became another: any of these may be in force until it hears otherwise.
    pub fn forgotten<'a>(&mut self, limits: impl Iterator<Item = &'a Limit>, now: i64) {
        for spell in &mut self.0 {
            spell.asked = i64::MIN;
        }
        for limit in limits {
            self.asked(limit, now, false);
        }
    }

    /// The most permits, and the greatest burst, of all that may have been in force at some moment of it.
    pub fn loosest(&self, limit: &LimitName, from: i64, until: i64) -> Option<(usize, usize)> {
        self.0
            .iter()
            .filter(|spell| spell.limit == *limit && spell.from <= until && spell.until >= from)
            .map(|spell| (spell.rule.permits as usize, burst(&spell.rule)))
            .reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)))
    }

    pub fn of(limit: &Limit) -> (usize, usize) {
        (limit.rule.permits as usize, burst(&limit.rule))
    }
}

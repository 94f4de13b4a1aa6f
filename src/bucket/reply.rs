//! Reads the replies of the scripts. Every function returns `None` when a reply does not have the script's form.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use redis::{FromRedisValue, Value};

use super::clock::ClockReading;
use super::script::{DENIED, EMPTY, FORGOT, GRANTED, RESTORING};
use super::{Acquired, LimitWait, StricterRule, Take, short};
use crate::limiter::{Counted, Forgotten, Limit, Permit, PermitNumber, Rule, ServerId, Span};
use crate::refund::id::RefundId;

/// The places of the parts of each reply, from 0. The headers of the scripts name the same parts.
mod place {
    pub const CODE: usize = 0;
    pub const NOW: usize = 1;

    pub mod take {
        pub const DEPTH: usize = 2;
        pub const IS_LOW: usize = 3;
        pub const WAIT: usize = 4;
        pub const LIMIT: usize = 5;
        pub const EFFECTIVE: usize = 6;
        pub const IDS: usize = 7;
        pub const PERMITS: usize = 8;
    }

    pub mod acquired {
        pub const LEFT: usize = 2;
        pub const EFFECTIVE: usize = 3;
        pub const PERMITS: usize = 4;
    }

    pub mod refused {
        pub const WAIT: usize = 2;
        pub const LEFT: usize = 3;
    }

    pub mod forgot {
        pub const LIMIT: usize = 2;
        pub const GENERATION: usize = 3;
        pub const WINDOW: usize = 4;
        pub const WINDOW_END: usize = 5;
        pub const SERVER: usize = 6;
    }

    pub mod restoring {
        pub const WAIT: usize = 2;
        pub const LIMIT: usize = 3;
    }
}

/// The parts of a reply, by place.
struct Parts<'a>(&'a [Value]);

impl Parts<'_> {
    fn get<T: FromRedisValue>(&self, at: usize) -> Option<T> {
        T::from_redis_value_ref(self.0.get(at)?).ok()
    }

    fn span(&self, at: usize) -> Option<Duration> {
        Some(Duration::from_micros(u64::try_from(self.get::<i64>(at)?).ok()?))
    }

    /// The limit whose number, from 1, is the part at this place.
    fn limit<'l>(&self, at: usize, limits: &'l [Arc<Limit>]) -> Option<&'l Arc<Limit>> {
        limits.get(self.get::<usize>(at)?.checked_sub(1)?)
    }
}

fn parts(reply: &Value) -> Option<Parts<'_>> {
    match reply {
        Value::Array(parts) => Some(Parts(parts)),
        _ => None,
    }
}

/// Redis's time in a reply, if the verb gives it.
pub(super) fn now_us(reply: &Value) -> Option<i64> {
    parts(reply)?.get(place::NOW)
}

/// Reads the reply to a take of at most `most` ids under `limits`. A denial names one of `waits`.
pub(super) fn take(
    limits: &[Arc<Limit>],
    waits: &[Arc<Limit>],
    most: u32,
    reply: &Value,
    read: ClockReading,
) -> Option<Take> {
    use place::{restoring, take as at};
    let parts = parts(reply)?;
    match parts.get::<i64>(place::CODE)? {
        EMPTY => Some(Take::Empty),
        FORGOT => forgotten(&parts, limits).map(Take::Forgot),
        DENIED => Some(Take::Denied {
            depth: Some(parts.get(at::DEPTH)?),
            is_low: parts.get::<i64>(at::IS_LOW)? == 1,
            wait: wait(&parts, at::WAIT, at::LIMIT, waits)?,
            stricter_rules: stricter_rules(&effective(&parts, at::EFFECTIVE, limits, read)?, limits),
        }),
        RESTORING => Some(Take::Denied {
            depth: None,
            is_low: false,
            wait: wait(&parts, restoring::WAIT, restoring::LIMIT, limits)?,
            stricter_rules: Vec::new(),
        }),
        GRANTED => {
            let effective = effective(&parts, at::EFFECTIVE, limits, read)?;
            let stricter_rules = stricter_rules(&effective, limits);
            let ids: Vec<i64> = parts.get(at::IDS)?;
            let permits: Vec<Vec<i64>> = parts.get(at::PERMITS)?;
            if ids.len() > most as usize || (!limits.is_empty() && permits.len() != ids.len()) {
                return None;
            }
            let mut granted = permits.iter().map(|permit| self::permit(permit, limits, &effective, read));
            // An id is twice in a bucket only if another program wrote to it. Both stand for one refund.
            let mut seen = HashSet::new();
            let mut taken = Vec::with_capacity(ids.len());
            for id in ids {
                let permit = if limits.is_empty() {
                    Permit { numbers: Vec::new(), span: None }
                } else {
                    granted.next()??
                };
                if seen.insert(id) {
                    taken.push((RefundId(id), permit));
                }
            }
            let again = match parts.get::<i64>(at::WAIT)? {
                1.. => Some(wait(&parts, at::WAIT, at::LIMIT, limits)?),
                _ => None,
            };
            Some(Take::Granted {
                taken,
                depth: parts.get(at::DEPTH)?,
                is_low: parts.get::<i64>(at::IS_LOW)? == 1,
                again,
                stricter_rules,
                unused: 0,
            })
        }
        _ => None,
    }
}

/// Reads the reply to a call for `want` permits of one limit.
pub(super) fn acquire(limit: &Arc<Limit>, want: u32, reply: &Value, read: ClockReading) -> Option<Acquired> {
    use place::{acquired, refused};
    let limits = std::slice::from_ref(limit);
    let parts = parts(reply)?;
    match parts.get::<i64>(place::CODE)? {
        FORGOT => forgotten(&parts, limits).map(Acquired::Forgot),
        RESTORING => Some(Acquired::Restoring),
        DENIED => Some(Acquired::Denied {
            wait: LimitWait { span: parts.span(refused::WAIT)?, limit: limit.name.clone() },
            left: parts.get(refused::LEFT)?,
        }),
        GRANTED => {
            let effective = effective(&parts, acquired::EFFECTIVE, limits, read)?;
            let permits: Vec<Vec<i64>> = parts.get(acquired::PERMITS)?;
            if permits.len() != want as usize {
                return None;
            }
            let permits: Option<Vec<Permit>> =
                permits.iter().map(|permit| self::permit(permit, limits, &effective, read)).collect();
            Some(Acquired::Granted { permits: permits?, left: parts.get(acquired::LEFT)? })
        }
        _ => None,
    }
}

fn wait(parts: &Parts<'_>, span: usize, limit: usize, limits: &[Arc<Limit>]) -> Option<LimitWait> {
    Some(LimitWait { span: parts.span(span)?, limit: parts.limit(limit, limits)?.name.clone() })
}

fn forgotten(parts: &Parts<'_>, limits: &[Arc<Limit>]) -> Option<Forgotten> {
    use place::forgot as at;
    Some(Forgotten {
        limit: Arc::clone(parts.limit(at::LIMIT, limits)?),
        now_us: parts.get(place::NOW)?,
        generation: parts.get(at::GENERATION)?,
        window: (parts.get(at::WINDOW)?, parts.get(at::WINDOW_END)?),
        server: ServerId(parts.get(at::SERVER)?),
    })
}

/// What a reply says of one limit.
struct Effective {
    generation: i64,
    own_rule: Arc<str>,
    stricter_rule: Option<Arc<str>>,
    /// The rule under which Redis granted; `None` if its text is no rule. The claim refuses such a rule.
    rule: Option<Rule>,
    counted: Counted,
}

/// Reads the part `effective`: each limit's generation, and the stricter rule that is in effect instead of its own.
fn effective(
    parts: &Parts<'_>,
    at: usize,
    limits: &[Arc<Limit>],
    read: ClockReading,
) -> Option<Vec<Effective>> {
    let pairs: Vec<String> = parts.get(at)?;
    let of_limit = |(limit, pair): (&Arc<Limit>, &[String])| {
        let stricter_rule = Some(pair[1].as_str()).filter(|rule| !rule.is_empty()).map(Arc::from);
        Some(Effective {
            generation: pair[0].parse().ok()?,
            rule: stricter_rule
                .as_deref()
                .map_or_else(|| Some(limit.rule.clone()), |text: &str| text.parse().ok()),
            own_rule: limit.rule.to_string().into(),
            counted: Counted {
                is_always: stricter_rule.is_some() || !limit.rule.algorithm.is_numbered(),
                lead: limit.ahead + Permit::LONGEST_LEAD_TIME,
                clock_known: read.without_step,
            },
            stricter_rule,
        })
    };
    limits.iter().zip(pairs.chunks_exact(2)).map(of_limit).collect()
}

fn stricter_rules(effective: &[Effective], limits: &[Arc<Limit>]) -> Vec<StricterRule> {
    let stricter = |(limit, effective): (&Arc<Limit>, &Effective)| {
        let rule = effective.stricter_rule.as_deref()?;
        let by = effective.rule.as_ref().map_or_else(|| short(rule), Rule::describe);
        Some(StricterRule { limit: limit.name.clone(), by })
    };
    limits.iter().zip(effective).filter_map(stricter).collect()
}

fn permit(
    numbers: &[i64],
    limits: &[Arc<Limit>],
    effective: &[Effective],
    read: ClockReading,
) -> Option<Permit> {
    let (span, numbers) = numbers.split_at_checked(2)?;
    if numbers.len() != limits.len() * 2 || effective.len() != limits.len() {
        return None;
    }
    // Postgres checks the names of permits. The span says when a permit leaves, so it must belong to these names.
    let is_foreign = |(number, effective): (&[i64], &Effective)| {
        effective.rule.as_ref().is_some_and(|rule| !rule.is_span_of(number[0], span[0], span[1]))
    };
    if numbers.chunks_exact(2).zip(effective).any(is_foreign) {
        return None;
    }
    let span = Span::translate(span[0], span[1], read.redis_us, read.started, read.answered);
    let numbers: Option<Vec<PermitNumber>> = limits
        .iter()
        .zip(numbers.chunks_exact(2))
        .zip(effective)
        .map(|((limit, number), effective)| {
            Some(PermitNumber {
                limit: limit.name.clone(),
                window_start_us: number[0],
                ordinal: i32::try_from(number[1]).ok()?,
                generation: effective.generation,
                own_rule: Arc::clone(&effective.own_rule),
                stricter_rule: effective.stricter_rule.clone(),
                counted: effective.counted,
            })
        })
        .collect();
    Some(Permit { numbers: numbers?, span: Some(span) })
}

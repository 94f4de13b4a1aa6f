//! Reads what the scripts answer; `None` when it is not of their form.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use redis::{FromRedisValue, Value};

use super::clock::Reading;
use super::script::{DENIED, EMPTY, FORGOT, GRANTED};
use super::{Acquired, Overruled, Take, Wait};
use crate::limiter::{Forgotten, Limit, Permit, PermitNumber, ServerId, Span};
use crate::refund::id::RefundId;

/// The parts of a reply, by place.
struct Parts<'a>(&'a [Value]);

impl Parts<'_> {
    fn get<T: FromRedisValue>(&self, at: usize) -> Option<T> {
        T::from_redis_value_ref(self.0.get(at)?).ok()
    }

    fn span(&self, at: usize) -> Option<Duration> {
        Some(Duration::from_micros(u64::try_from(self.get::<i64>(at)?).ok()?))
    }

    /// The limit that stands there by number, from 1.
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

/// Redis's time in a reply of any verb that tells it.
pub(super) fn now_us(reply: &Value) -> Option<i64> {
    parts(reply)?.get(1)
}

pub(super) fn take(limits: &[Arc<Limit>], reply: &Value, read: Reading) -> Option<Take> {
    let parts = parts(reply)?;
    match parts.get::<i64>(0)? {
        EMPTY => Some(Take::Empty),
        FORGOT => forgotten(&parts, limits).map(Take::Forgot),
        DENIED => Some(Take::Denied {
            depth: Some(parts.get(2)?),
            feed: parts.get::<i64>(3)? == 1,
            wait: wait(&parts, 4, limits)?,
            overruled: standing(&parts, 6, limits)?.1,
        }),
        GRANTED => {
            let (generations, overruled) = standing(&parts, 6, limits)?;
            let ids: Vec<i64> = parts.get(7)?;
            let permits: Vec<Vec<i64>> = parts.get(8)?;
            if !limits.is_empty() && permits.len() != ids.len() {
                return None;
            }
            let mut granted = permits.iter().map(|permit| self::permit(permit, limits, &generations, read));
            // An id can only stand twice in a line that somebody else wrote to; it is one refund.
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
            let again = if parts.get::<i64>(4)? > 0 { Some(wait(&parts, 4, limits)?) } else { None };
            Some(Take::Granted {
                taken,
                depth: parts.get(2)?,
                feed: parts.get::<i64>(3)? == 1,
                again,
                overruled,
            })
        }
        _ => None,
    }
}

pub(super) fn acquire(limit: &Arc<Limit>, reply: &Value, read: Reading) -> Option<Acquired> {
    let limits = std::slice::from_ref(limit);
    let parts = parts(reply)?;
    match parts.get::<i64>(0)? {
        FORGOT => forgotten(&parts, limits).map(Acquired::Forgot),
        // Without a count of what is left: another node asks the ledger.
        DENIED if parts.0.len() < 8 => Some(Acquired::Telling),
        DENIED => Some(Acquired::Denied { wait: wait(&parts, 4, limits)?, left: parts.get(7).unwrap_or(0) }),
        GRANTED => {
            let (generations, _) = standing(&parts, 3, limits)?;
            let permits: Vec<Vec<i64>> = parts.get(4)?;
            let permits: Option<Vec<Permit>> =
                permits.iter().map(|permit| self::permit(permit, limits, &generations, read)).collect();
            Some(Acquired::Granted { permits: permits?, left: parts.get(2)? })
        }
        _ => None,
    }
}

fn wait(parts: &Parts<'_>, at: usize, limits: &[Arc<Limit>]) -> Option<Wait> {
    Some(Wait { span: parts.span(at)?, limit: parts.limit(at + 1, limits)?.name.clone() })
}

fn forgotten(parts: &Parts<'_>, limits: &[Arc<Limit>]) -> Option<Forgotten> {
    Some(Forgotten {
        limit: Arc::clone(parts.limit(2, limits)?),
        now_us: parts.get(1)?,
        window: (parts.get(4)?, parts.get(5)?),
        server: ServerId(parts.get(6)?),
    })
}

/// Each limit's generation, and the rules in force that are not the ones asked for.
fn standing(parts: &Parts<'_>, at: usize, limits: &[Arc<Limit>]) -> Option<(Vec<i64>, Vec<Overruled>)> {
    let told: Vec<String> = parts.get(at)?;
    let mut generations = Vec::new();
    let mut overruled = Vec::new();
    for (limit, pair) in limits.iter().zip(told.chunks_exact(2)) {
        generations.push(pair[0].parse().ok()?);
        if !pair[1].is_empty() {
            overruled.push(Overruled { limit: limit.name.clone(), by: pair[1].clone() });
        }
    }
    Some((generations, overruled))
}

fn permit(numbers: &[i64], limits: &[Arc<Limit>], generations: &[i64], read: Reading) -> Option<Permit> {
    let (span, numbers) = numbers.split_at_checked(2)?;
    if numbers.len() != limits.len() * 2 || generations.len() != limits.len() {
        return None;
    }
    let span = Span::translate(span[0], span[1], read.redis_us, read.asked, read.answered);
    let numbers: Option<Vec<PermitNumber>> = limits
        .iter()
        .zip(numbers.chunks_exact(2))
        .zip(generations)
        .map(|((limit, number), generation)| {
            Some(PermitNumber {
                limit: limit.name.clone(),
                window_start_us: number[0],
                ordinal: i32::try_from(number[1]).ok()?,
                generation: *generation,
            })
        })
        .collect();
    Some(Permit { numbers: numbers?, span: Some(span) })
}

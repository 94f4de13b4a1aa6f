//! The bucket: a channel's bounded waiting line in Redis, and the limits that let ids leave it.
//!
//! Nothing kept here is needed for correctness. An id in line is a hint that a row is due; the claim
//! in Postgres decides, and the permit's number is refused there if Redis ever hands it out again.
//!
//! A call that timed out may have run. Every verb is harmless when repeated: ids that left the line
//! unseen come back from their rows, and permits that were granted unseen are never used.

pub mod keys;
mod script;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{FromRedisValue, IntoConnectionInfo, Value};

use crate::channel::Channel;
use crate::limiter::{Algorithm, Limit, Permit, PermitNumber, Span};
use crate::refund::id::{ChannelName, LimitName, RefundId};
use keys::Keys;
use script::{DENIED, EMPTY, FORGOT, GRANTED, Scripts};

/// What went wrong between us and Redis.
#[derive(Debug, thiserror::Error)]
pub enum BucketError {
    /// The url cannot be understood.
    #[error("read the Redis url")]
    Url(#[source] redis::RedisError),
    /// Redis could not be reached, hung up mid-question, or refused it.
    #[error("ask Redis about `{what}`")]
    Ask { what: String, source: redis::RedisError },
    /// A script's reply, or what stands in a key, is not of our making.
    #[error(
        "understand what Redis holds for `{what}`: {found}; if somebody else wrote there, delete its keys, they are made anew"
    )]
    Reply { what: String, found: String },
}

/// What a bucket answered when a dispatcher asked for work.
#[derive(Debug)]
pub enum Take {
    /// Permits were spent, and these refunds left the bucket under them.
    /// `depth` ids are left; `feed` asks the taker to feed the line.
    Granted { taken: Vec<(RefundId, Permit)>, depth: u64, feed: bool },
    /// A limit is used up; asking sooner than this is pointless.
    Denied { retry_after: Duration, limit: LimitName, depth: u64, feed: bool },
    /// Nobody is waiting, so no permit was spent.
    Empty,
    /// Redis does not know how much of this window is spent. The ledger does: [`Bucket::remind`] it.
    /// `older_us` is the length of the windows it counted in before, if they were others.
    Forgot { limit: Arc<Limit>, window_start_us: i64, older_us: i64 },
}

/// At which end of the line ids are put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Behind everybody; stops when the line is full.
    Back,
    /// Before everybody; the newest leave a full line again.
    Front,
}

/// What stands in one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    pub depth: u64,
    /// The id that leaves next.
    pub head: Option<RefundId>,
}

/// The buckets of all channels, over one multiplexed connection that mends itself.
#[derive(Clone)]
pub struct Bucket {
    connection: ConnectionManager,
    keys: Keys,
    scripts: Arc<Scripts>,
    /// What went wrong with the last call; `None` when it worked.
    trouble: Arc<Mutex<Option<String>>>,
}

impl std::fmt::Debug for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bucket").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl Bucket {
    /// The most ids one take may ask for; bounds the script's time.
    pub const MOST_AT_ONCE: u32 = 500;
    /// How long one node is left alone with feeding a line.
    const FEEDING: Duration = Duration::from_secs(1);
    const LONG_WINDOW: Duration = Duration::from_secs(10);
    /// A call without an answer by then counts as failed; it may have run.
    const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

    /// Prepares the connection; it is made when first used, so a node starts while Redis is away.
    pub fn open(url: &str, key_prefix: &str) -> Result<Self, BucketError> {
        let settings =
            redis::io::tcp::TcpSettings::default().set_nodelay(true).set_user_timeout(Duration::from_secs(2));
        let info = url.into_connection_info().map_err(BucketError::Url)?.set_tcp_settings(settings);
        let client = redis::Client::open(info).map_err(BucketError::Url)?;
        // Callers wait for the whole reconnect ladder, so it is short: the loops try again themselves.
        let config = ConnectionManagerConfig::new()
            .set_response_timeout(Some(Self::RESPONSE_TIMEOUT))
            .set_connection_timeout(Some(Duration::from_secs(1)))
            .set_number_of_retries(1)
            .set_min_delay(Duration::from_millis(50))
            .set_max_delay(Duration::from_millis(200));
        let connection = ConnectionManager::new_lazy_with_config(client, config).map_err(BucketError::Url)?;
        Ok(Bucket {
            connection,
            keys: Keys::new(key_prefix),
            scripts: Arc::new(Scripts::new()),
            trouble: Arc::default(),
        })
    }

    /// Takes up to `want` refunds of a channel, each under one permit of every limit it has.
    /// `low_water` is the depth below which somebody is asked to feed the line.
    pub async fn take(&self, channel: &Channel, want: u32, low_water: u32) -> Result<Take, BucketError> {
        let name = &channel.name;
        let mut call = self.scripts.take.prepare_invoke();
        call.key(self.keys.bucket(name)).key(self.keys.present(name)).key(self.keys.feeding(name));
        call.arg(want.clamp(1, Self::MOST_AT_ONCE)).arg(low_water).arg(millis(Self::FEEDING));
        for limit in &channel.limits {
            call.key(self.keys.limit(&limit.name));
            match limit.algorithm {
                Algorithm::FixedWindow { permits, per } => {
                    call.arg("fixed_window").arg(permits).arg(micros(per));
                }
            }
            call.arg(micros(limit.lateness)).arg(micros(limit.ahead));
        }
        let asked = Instant::now();
        let reply: Value = call
            .invoke_async(&mut self.connection.clone())
            .await
            .map_err(|source| self.failed(name.as_str(), source))?;
        let answered = Instant::now();
        self.worked();
        read_take(channel, &reply, asked, answered)
            .ok_or_else(|| BucketError::Reply { what: name.to_string(), found: format!("{reply:?}") })
    }

    /// Puts ids in line, the oldest first; answers how many were not there yet.
    pub async fn fill(
        &self,
        channel: &ChannelName,
        ids: &[RefundId],
        end: End,
        capacity: u32,
    ) -> Result<u64, BucketError> {
        let mut call = self.scripts.fill.prepare_invoke();
        call.key(self.keys.bucket(channel)).key(self.keys.present(channel)).key(self.keys.feeding(channel));
        call.arg(capacity).arg(match end {
            End::Back => "back",
            End::Front => "front",
        });
        for id in ids {
            call.arg(id.0);
        }
        let (_now, _depth, added): (i64, u64, u64) = call
            .invoke_async(&mut self.connection.clone())
            .await
            .map_err(|source| self.failed(channel.as_str(), source))?;
        self.worked();
        Ok(added)
    }

    /// Looks at several lines in one round trip, without touching them.
    pub async fn look(&self, channels: &[ChannelName]) -> Result<Vec<Line>, BucketError> {
        if channels.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipe = redis::pipe();
        for channel in channels {
            let key = self.keys.bucket(channel);
            pipe.cmd("LLEN").arg(&key).cmd("LINDEX").arg(&key).arg(-1);
        }
        let replies: Vec<Value> = pipe
            .query_async(&mut self.connection.clone())
            .await
            .map_err(|source| self.failed("all lines", source))?;
        self.worked();
        let line = |pair: &[Value]| {
            let depth = u64::from_redis_value_ref(&pair[0]).ok()?;
            let head = Option::<i64>::from_redis_value_ref(&pair[1]).ok().flatten().map(RefundId);
            Some(Line { depth, head })
        };
        replies
            .chunks_exact(2)
            .map(|pair| {
                line(pair).ok_or_else(|| BucketError::Reply {
                    what: "all lines".to_owned(),
                    found: format!("{pair:?}"),
                })
            })
            .collect()
    }

    /// Tells Redis how many permits of a window the ledger has seen spent.
    pub async fn remind(&self, limit: &Limit, window_start_us: i64, used: i32) -> Result<(), BucketError> {
        let Algorithm::FixedWindow { per, .. } = limit.algorithm;
        let mut call = self.scripts.remind.prepare_invoke();
        call.key(self.keys.limit(&limit.name)).arg(window_start_us).arg(used).arg(micros(per));
        call.invoke_async::<i64>(&mut self.connection.clone())
            .await
            .map_err(|source| self.failed(limit.name.as_str(), source))?;
        Ok(())
    }

    /// Makes long windows ask the ledger again: permits that were granted and never claimed would be
    /// missing from them for hours. Short windows are over before that pays. Safe at any time, because
    /// the ledger refuses a number that was spent.
    pub async fn forget_long_windows(&self, limits: &[Arc<Limit>]) -> Result<(), BucketError> {
        for limit in limits {
            let Algorithm::FixedWindow { per, .. } = limit.algorithm;
            if per >= Self::LONG_WINDOW {
                redis::cmd("HDEL")
                    .arg(self.keys.limit(&limit.name))
                    .arg(&["window", "used"])
                    .query_async::<()>(&mut self.connection.clone())
                    .await
                    .map_err(|source| self.failed(limit.name.as_str(), source))?;
            }
        }
        Ok(())
    }

    /// What went wrong with the last call; `None` when it worked.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn failed(&self, what: &str, source: redis::RedisError) -> BucketError {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(source.to_string());
        BucketError::Ask { what: what.to_owned(), source }
    }

    fn worked(&self) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// Reads the reply of the take script; `None` when it is not of the script's form.
fn read_take(channel: &Channel, reply: &Value, asked: Instant, answered: Instant) -> Option<Take> {
    let parts = match reply {
        Value::Array(parts) => parts.as_slice(),
        _ => return None,
    };
    let number = |at: usize| i64::from_redis_value_ref(parts.get(at)?).ok();
    let now_us = number(1)?;
    match number(0)? {
        EMPTY => Some(Take::Empty),
        FORGOT => {
            let limit = channel.limits.get(usize::try_from(number(2)?).ok()?.checked_sub(1)?)?;
            Some(Take::Forgot { limit: Arc::clone(limit), window_start_us: number(3)?, older_us: number(4)? })
        }
        DENIED => {
            let limit = channel.limits.get(usize::try_from(number(5)?).ok()?.checked_sub(1)?)?;
            Some(Take::Denied {
                retry_after: Duration::from_micros(u64::try_from(number(4)?).ok()?),
                limit: limit.name.clone(),
                depth: u64::try_from(number(2)?).ok()?,
                feed: number(3)? == 1,
            })
        }
        GRANTED => {
            let mut ids = Vec::<i64>::from_redis_value_ref(parts.get(4)?).ok()?;
            // An id can only stand twice in a line that somebody else wrote to; it is one refund.
            let mut seen = std::collections::HashSet::new();
            ids.retain(|id| seen.insert(*id));
            let granted = Vec::<(i64, i32, i64, i64)>::from_redis_value_ref(parts.get(5)?).ok()?;
            if granted.len() != channel.limits.len() {
                return None;
            }
            let opens = granted.iter().map(|g| g.2).max();
            let closes = granted.iter().map(|g| g.3).min();
            let span = opens.zip(closes).map(|(o, c)| Span::translate(o, c, now_us, asked, answered));
            let taken = ids.into_iter().zip(0i32..).map(|(id, nth)| {
                let numbers = channel.limits.iter().zip(&granted).map(|(limit, g)| PermitNumber {
                    limit: limit.name.clone(),
                    window_start_us: g.0,
                    ordinal: g.1 + nth,
                });
                (RefundId(id), Permit { numbers: numbers.collect(), span })
            });
            let depth = u64::try_from(number(2)?).ok()?;
            Some(Take::Granted { taken: taken.collect(), depth, feed: number(3)? == 1 })
        }
        _ => None,
    }
}

//! What a lying Redis replies to the scripts: every decoder of replies, and the watch on Redis's clock.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use redis::{ErrorKind, RedisError, Value};

use super::CONFIG;
use crate::bucket::{
    Acquired, Bucket, BucketError, End, Order, Purpose, SimulatedServer, StricterRule, Take, Yield,
};
use crate::channel::Channel;
use crate::limiter::{Limit, Permit};
use crate::lock::Lock;
use crate::refund::{RefundId, text};

const WANT: u32 = 5;
const ORDER: Order = Order { want: WANT, low_water: 10, lead_time: Duration::from_millis(5), until: None };

/// A server that replies what the input says.
struct Liar {
    replies: Mutex<VecDeque<Value>>,
    began: Instant,
}

impl SimulatedServer for Liar {
    fn run(&self, _: &str, _: &[String], _: &[Vec<u8>]) -> Result<Value, RedisError> {
        let reply = self.replies.locked().pop_front();
        reply.ok_or_else(|| RedisError::from((ErrorKind::Io, "it hangs up")))?.extract_error()
    }

    fn now(&self) -> Instant {
        // Without steps of its own, so that an input always does the same.
        self.began
    }
}

/// The input is an array in Redis's protocol: the number of a call, and the replies to it, one after another. No reply
/// makes refundd take more than it wanted, give a refund two permits, or use a permit at another time than its name
/// says. What it says about a reply is short.
pub fn target(input: &[u8]) {
    let Ok(Value::Array(values)) = redis::parse_redis_value(input) else { return };
    let mut replies: VecDeque<Value> = values.into();
    let Some(Value::Int(call)) = replies.pop_front() else { return };
    let calls = replies.len().min(4);
    let server = Arc::new(Liar { replies: Mutex::new(replies), began: Instant::now() });
    let bucket = Bucket::simulated(server, Duration::from_secs(5)).unwrap_or_else(|error| panic!("{error}"));
    for channel in CONFIG.channels.values() {
        for _ in 0..calls {
            let made = make(&bucket, call, channel).now_or_never().expect("this server replies at once");
            if let Err(error) = made {
                let shown = error.to_string();
                assert!(shown.chars().count() <= 1000, "{} characters: {shown}", shown.chars().count());
            }
        }
    }
}

async fn make(bucket: &Bucket, call: i64, channel: &Channel) -> Result<(), BucketError> {
    let (name, ids) = (&channel.name, [RefundId(1), RefundId(2)]);
    match call {
        0 => check_take(bucket.take(channel, ORDER).await?, channel),
        1 => check_take(bucket.take_inquiries(channel, ORDER, Yield::ToSends).await?, channel),
        2 => {
            for limit in &channel.limits {
                check_acquired(&bucket.acquire(limit, WANT, None).await?, limit);
            }
        }
        3 => {
            let (more, _) = bucket.more(name, WANT).await?;
            assert!(more.len() <= WANT as usize, "{} ids", more.len());
        }
        4 => bucket.put_back(name, &ids).await.map(|_| ())?,
        5 => bucket.fill(name, &ids, End::Back, 100).await.map(|_| ())?,
        6 => bucket.withdraw(name, &ids).await.map(|_| ())?,
        7 => {
            for depth in bucket.survey(Purpose::Send, std::slice::from_ref(name)).await {
                depth?;
            }
        }
        8 => bucket.time().await.map(|_| ())?,
        9 => {
            bucket.watch_clock(channel).await?;
            bucket.watch_clocks().await?;
        }
        10 => bucket.forget_long_windows(&channel.limits).await?,
        11 => bucket.left_late(name, &channel.limits, &Permit { numbers: Vec::new(), span: None }).await?,
        _ => {}
    }
    Ok(())
}

fn check_take(take: Take, channel: &Channel) {
    match take {
        Take::Granted { taken, again, stricter_rules, .. } => {
            assert!(taken.len() <= WANT as usize, "{} ids", taken.len());
            let ids: BTreeSet<RefundId> = taken.iter().map(|(id, _)| *id).collect();
            assert_eq!(ids.len(), taken.len(), "a refund stands twice");
            for (_, permit) in &taken {
                check_permit(permit, &channel.limits);
            }
            assert!(again.is_none_or(|wait| channel.limits.iter().any(|limit| limit.name == wait.limit)));
            check_rules(&stricter_rules, channel);
        }
        Take::Denied { wait, stricter_rules, .. } => {
            assert!(channel.limits.iter().any(|limit| limit.name == wait.limit), "{wait:?}");
            check_rules(&stricter_rules, channel);
        }
        Take::Forgot(forgotten) => assert!(channel.limits.contains(&forgotten.limit), "{forgotten:?}"),
        Take::Empty | Take::ClockStepped { .. } => {}
    }
}

fn check_acquired(acquired: &Acquired, limit: &Arc<Limit>) {
    match acquired {
        Acquired::Granted { permits, .. } => {
            assert_eq!(permits.len(), WANT as usize, "it asked for all or none");
            for permit in permits {
                check_permit(permit, std::slice::from_ref(limit));
            }
        }
        Acquired::Denied { wait, .. } => assert_eq!(wait.limit, limit.name),
        Acquired::Forgot(forgotten) => assert_eq!(forgotten.limit, *limit),
        Acquired::Restoring | Acquired::ClockStepped { .. } => {}
    }
}

/// A permit has one number of each limit, in their order.
fn check_permit(permit: &Permit, limits: &[Arc<Limit>]) {
    let numbers = permit.numbers.iter().map(|number| &number.limit);
    assert!(numbers.eq(limits.iter().map(|limit| &limit.name)), "{permit:?}");
    assert_eq!(permit.span.is_some(), !limits.is_empty(), "{permit:?}");
    let own = permit.numbers.iter().zip(limits).filter(|(number, _)| number.stricter_rule.is_none());
    for ((number, limit), span) in own.zip(permit.span.iter().cycle()) {
        let (opens_us, closes_us) = (span.opens_us, span.closes_us);
        assert!(limit.rule.is_span_of(number.window_start_us, opens_us, closes_us), "{permit:?}");
    }
    let _ = permit.describe();
}

/// People read these rules in the log and on the pages.
fn check_rules(rules: &[StricterRule], channel: &Channel) {
    for rule in rules {
        assert!(channel.limits.iter().any(|limit| limit.name == rule.limit), "{rule:?}");
        assert!(rule.by.chars().count() <= 200 && !rule.by.contains(text::is_hidden), "{rule:?}");
    }
}

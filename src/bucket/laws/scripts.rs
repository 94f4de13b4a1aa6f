//! The scripts themselves, and how their arguments and replies are read.

use std::time::Duration;

use redis::{FromRedisValue, Value};

macro_rules! verb {
    ($name:literal) => {
        concat!(
            include_str!("../lua/prelude.lua"),
            include_str!("../../limiter/lua/rule.lua"),
            include_str!("../../limiter/lua/fixed_window.lua"),
            include_str!("../../limiter/lua/paced.lua"),
            include_str!("../../limiter/lua/sliding_log.lua"),
            include_str!("../../limiter/lua/sliding_window.lua"),
            include_str!("../../limiter/lua/token_bucket.lua"),
            include_str!("../../limiter/lua/grant.lua"),
            include_str!(concat!("../lua/", $name, ".lua")),
        )
    };
}

pub(super) const TAKE: &str = verb!("take");
pub(super) const ACQUIRE: &str = verb!("acquire");
pub(super) const REMIND: &str = verb!("remind");
pub(super) const LATE: &str = verb!("late");
pub(super) const FILL: &str = verb!("fill");
pub(super) const FORGET: &str = verb!("forget");
pub(super) const COUNTED: &str = "return {redis.call('HGETALL', KEYS[1]), redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', '+inf', 'WITHSCORES')}";

/// As in `prelude.lua`, and the nodes' `clock_tolerance`; both in us.
pub(super) const LIFETIME: i64 = 10_000_000;
pub(super) const TOLERANCE: i64 = 5_000_000;

pub(super) const GRANTED: i64 = 1;
pub(super) const DENIED: i64 = 2;
pub(super) const FORGOT: i64 = 4;

pub(super) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap()
}

pub(super) fn bytes(args: &[String]) -> Vec<Vec<u8>> {
    args.iter().map(|arg| arg.clone().into_bytes()).collect()
}

pub(super) fn list(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) => items,
        other => panic!("{other:?} is no list"),
    }
}

pub(super) fn number(value: &Value) -> i64 {
    i64::from_redis_value_ref(value).unwrap()
}

pub(super) fn text(value: &Value) -> String {
    String::from_redis_value_ref(value).unwrap()
}

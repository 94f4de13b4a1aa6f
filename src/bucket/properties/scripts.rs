//! The real scripts, and functions that write their arguments and read their replies.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{FromRedisValue, Value};

use crate::bucket::script::Scripts;

pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(Scripts::new);
pub(super) const COUNTED: &str = "return {redis.call('HGETALL', KEYS[1]), redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', '+inf', 'WITHSCORES')}";

/// The nodes' `clock_tolerance`, in us.
pub(super) const TOLERANCE: i64 = 5_000_000;

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

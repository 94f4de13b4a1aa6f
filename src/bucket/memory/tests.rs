use std::sync::atomic::{AtomicI64, Ordering};

use super::*;

const T0: i64 = 1_790_000_000_123_456;

fn memory() -> (Memory, Arc<AtomicI64>) {
    let time = Arc::new(AtomicI64::new(T0));
    let clock = Arc::clone(&time);
    (Memory::with_clock(Box::new(move || clock.load(Ordering::Relaxed))).unwrap(), time)
}

/// Writes a reply as text: lists in brackets, and `-` for a missing value.
fn said(reply: &Value) -> String {
    match reply {
        Value::Nil => "-".to_owned(),
        Value::Int(number) => format!(":{number}"),
        Value::BulkString(text) => String::from_utf8_lossy(text).into_owned(),
        Value::Okay => "OK".to_owned(),
        Value::Array(items) => format!("[{}]", items.iter().map(said).collect::<Vec<_>>().join(" ")),
        other => format!("{other:?}"),
    }
}

fn run(memory: &Memory, source: &str) -> String {
    match memory.run(source, &["key".to_owned()], &[b"arg".to_vec()]) {
        Ok(reply) => said(&reply),
        Err(error) => format!("error: {error}").replace('"', ""),
    }
}

#[test]
fn replies_are_converted_as_redis_converts_them() {
    let (memory, _) = memory();
    for (source, reply) in [
        ("return 3.99", ":3"),
        ("return -3.99", ":-3"),
        ("return 1790000000123456", ":1790000000123456"),
        ("return '1.5'", "1.5"),
        ("return true", ":1"),
        ("return false", "-"),
        ("return nil", "-"),
        ("return {1, 'two', {3}, nil, 5}", "[:1 two [:3]]"),
        ("return {1, false, 3}", "[:1 - :3]"),
        ("return {}", "[]"),
        ("return {KEYS[1], ARGV[1], #KEYS, ARGV[2]}", "[key arg :1]"),
        ("return redis.call('SET', 'a', 'b')", "OK"),
        ("return redis.call('GET', 'a')", "error: ERR: unknown command 'GET'"),
    ] {
        assert_eq!(run(&memory, source), reply, "{source}");
    }
}

#[test]
fn what_is_not_there_is_false_and_numbers_keep_their_digits() {
    let (memory, _) = memory();
    for (source, reply) in [
        ("return type(redis.call('HGET', 'h', 'f'))", "boolean"),
        (
            "return {#redis.call('HMGET', 'h', 'f', 'g'), redis.call('HMGET', 'h', 'f')[1] == false}",
            "[:2 :1]",
        ),
        ("return type(redis.call('LLEN', 'l'))", "number"),
        ("return redis.call('TIME')", "[1790000000 123456]"),
        (
            "redis.call('HSET', 'h', 'f', 9000000000000000, 'g', 0.5) return redis.call('HGETALL', 'h')",
            "[f 9000000000000000 g 0.5]",
        ),
        ("return redis.call('HDEL', 'h', 'f', 'g', 'i') + redis.call('EXISTS', 'h')", ":2"),
        ("return redis.call('LPOP', 'l', 2)", "-"),
        (
            "redis.call('RPUSH', 'l', 1, 2, 3) redis.call('LPUSH', 'l', 0) return redis.call('RPOP', 'l', 2)",
            "[3 2]",
        ),
        (
            "return {redis.call('LINDEX', 'l', -1), redis.call('LINDEX', 'l', 7), redis.call('LPOP', 'l')}",
            "[1 - 0]",
        ),
        (
            "return redis.call('ZADD', 'l', 1, 1)",
            "error: WRONGTYPE: Operation against a key holding the wrong kind of value",
        ),
    ] {
        let reply = reply.to_owned();
        assert_eq!(run(&memory, source), reply, "{source}");
    }
}

#[test]
fn a_sorted_set_answers_by_bounds() {
    let (memory, _) = memory();
    run(&memory, "redis.call('ZADD', 'z', 10, 'a', 20, 'b', 20, 'c', 1790000000123456, 'd')");
    for (source, reply) in [
        ("'ZRANGEBYSCORE', 'z', '(10', '+inf', 'WITHSCORES', 'LIMIT', 0, 2", "[b 20 c 20]"),
        ("'ZREVRANGEBYSCORE', 'z', '20', '-inf', 'LIMIT', 0, 1", "[c]"),
        ("'ZREVRANGEBYSCORE', 'z', '(20', '-inf', 'LIMIT', 0, 1", "[a]"),
        ("'ZRANGEBYSCORE', 'z', '30', '10'", "[]"),
        ("'ZRANGEBYSCORE', 'none', '-inf', '+inf'", "[]"),
        ("'ZSCORE', 'z', 'd'", "1790000000123456"),
        ("'ZSCORE', 'z', 'e'", "-"),
        ("'ZCOUNT', 'z', 20, 20", ":2"),
        ("'ZADD', 'z', 5, 'b'", ":0"),
        ("'ZREMRANGEBYSCORE', 'z', '-inf', '(10'", ":1"),
        ("'ZRANGEBYSCORE', 'z', '-inf', '+inf'", "[a c d]"),
        ("'ZREM', 'z', 'a', 'c', 'd', 'e'", ":3"),
        ("'EXISTS', 'z'", ":0"),
    ] {
        assert_eq!(run(&memory, &format!("return redis.call({source})")), reply, "{source}");
    }
}

#[test]
fn a_flag_expires_by_the_clock_that_stands_still_while_a_script_runs() {
    let (memory, time) = memory();
    let flag = "return redis.call('SET', 'flag', '1', 'NX', 'PX', 1000)";
    assert_eq!(run(&memory, flag), "OK");
    time.fetch_add(999_999, Ordering::Relaxed);
    assert_eq!(run(&memory, flag), "-");
    time.fetch_add(1, Ordering::Relaxed);
    assert_eq!(run(&memory, flag), "OK");
}

#[test]
fn a_script_sees_no_more_of_the_world_than_in_redis() {
    let (memory, _) = memory();
    for name in ["io", "os", "require", "debug", "load", "dofile", "print", "KEY"] {
        let refusal = format!(
            "error: ERR: user_script:1: Script attempted to access nonexistent global variable '{name}'"
        );
        assert_eq!(run(&memory, &format!("return {name}")), refusal);
    }
    let refusal = "error: ERR: user_script:1: Script attempted to create global variable 'x'";
    assert_eq!(run(&memory, "x = 1"), refusal);
    assert_eq!(run(&memory, "error('too bad')"), "error: ERR: user_script:1: too bad");
    assert!(run(&memory, "return (").starts_with("error: ERR: "), "{}", run(&memory, "return ("));
}

#[test]
fn it_can_be_flushed_and_started_again() {
    let (memory, _) = memory();
    let id = "return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')";
    let before = run(&memory, id);
    assert_eq!(before.len(), 40);
    run(&memory, "redis.call('SET', 'a', '1')");
    memory.new_server_id();
    assert_ne!(run(&memory, id), before);
    assert_eq!(run(&memory, "return redis.call('EXISTS', 'a')"), ":1");
    memory.flush();
    assert_eq!(run(&memory, "return redis.call('EXISTS', 'a')"), ":0");
}

/// The bytes of all texts in a reply.
fn length(reply: &Value) -> usize {
    match reply {
        Value::BulkString(text) => text.len(),
        Value::Array(items) => items.iter().map(length).sum(),
        _ => 0,
    }
}

#[test]
fn no_script_replies_with_a_long_element_of_a_bucket() {
    let (memory, scripts) = (memory().0, crate::bucket::script::Scripts::new());
    let list = ["bucket"].map(str::to_owned);
    let keys = ["bucket", "present", "feeding", "clock", "share"].map(str::to_owned);
    let bytes = |args: &[&str]| args.iter().map(|arg| arg.as_bytes().to_vec()).collect::<Vec<_>>();
    memory
        .run("for i = 1, 3 do redis.call('RPUSH', KEYS[1], string.rep('x', 100000)) end", &list, &[])
        .unwrap();
    for (verb, keys, args) in [
        (&scripts.look, &list[..], bytes(&["heads"])),
        (&scripts.more, &keys[..2], bytes(&["1"])),
        (&scripts.take, &keys[..], bytes(&["1", "10", "1000", "0", "5000000", "0", "0", "1000000"])),
    ] {
        let reply = memory.run(&verb.source, keys, &args).unwrap();
        assert!((20..100).contains(&length(&reply)), "{}: {} bytes", verb.name, length(&reply));
    }
}

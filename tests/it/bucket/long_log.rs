//! What a denial costs when the log of a limit has many more entries than the limit allows.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use refundd::bucket::Acquired;
use refundd::limiter::{LedgerCount, Limit, SpentGroup};

use super::forged::now_us;
use super::scene;
use crate::harness::Scratch;
use crate::harness::servers::SERVERS;

/// The commands that Redis runs, also those of scripts.
struct Monitor(BufReader<UnixStream>);

impl Monitor {
    fn start() -> Monitor {
        let mut to = UnixStream::connect(SERVERS.redis.socket()).unwrap();
        to.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        to.write_all(b"AUTH admin admin\r\nMONITOR\r\n").unwrap();
        let mut monitor = Monitor(BufReader::new(to));
        for _ in ["AUTH", "MONITOR"] {
            assert_eq!(monitor.line(), "+OK");
        }
        monitor
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).unwrap() > 0, "Redis closed the connection");
        line.trim_end().to_owned()
    }

    /// How many entries of this log each reading of a script asked for, up to the command with this mark.
    fn readings_until(&mut self, mark: &str, log: &str) -> Vec<i64> {
        let reads = format!("\"ZRANGEBYSCORE\" \"{log}\"");
        let lines = std::iter::from_fn(|| Some(self.line()).filter(|line| !line.contains(mark)));
        let asked = lines.filter(|line| line.contains(&reads));
        // The last word is the number of `LIMIT`.
        asked.map(|line| line.rsplit('"').nth(1).unwrap().parse().unwrap()).collect()
    }
}

fn file(permits: u32) -> String {
    format!("[limit.acme]\nalgorithm = \"sliding_log\"\npermits = {permits}\nper = \"1m\"\n")
}

/// The limit after a reload with another number.
fn reloaded(scratch: &Scratch, permits: u32) -> Arc<Limit> {
    let channel = "[channel.acme]\nendpoint = \"http://{bank}/acme/refunds\"\nlimits = [\"acme\"]\n";
    let config = scratch.config("a", &format!("{}{channel}", file(permits)));
    Arc::clone(&config.channels.values().next().unwrap().limits[0])
}

#[tokio::test]
async fn after_a_reload_to_a_much_lower_number_a_denial_reads_few_entries_and_names_the_right_moment() {
    let (scratch, bucket, channel) = scene(&file(1000)).await;
    let mut connection = scratch.redis().await;
    let began = now_us(&mut connection).await;
    let entry = |nth: i64| began - (1000 - nth) * 50_000;
    let past = |nth| SpentGroup { at_us: entry(nth), count: 1, over_us: None };
    let spent =
        LedgerCount { generation: 1, history: (1..=1000).map(past).collect(), ..LedgerCount::default() };
    assert!(bucket.restore(&channel.limits[0], &spent).await.unwrap());

    let limit = reloaded(&scratch, 10);
    let mut monitor = Monitor::start();
    let before = now_us(&mut connection).await;
    let acquired = bucket.acquire(&limit, 1, None).await.unwrap();
    let after = now_us(&mut connection).await;
    let mark = format!("after {}", scratch.name);
    redis::cmd("ECHO").arg(&mark).query_async::<()>(&mut connection).await.unwrap();

    // Ten permits are left in the span when entry 990 is too old. So the next one goes when entry 991 is.
    let Acquired::Denied { wait, .. } = acquired else { panic!("{acquired:?}") };
    let wait_us = i64::try_from(wait.span.as_micros()).unwrap();
    let span_us = i64::try_from((limit.rule.per + limit.rule.lateness).as_micros()).unwrap();
    let opens = entry(991) + span_us;
    assert!((opens - after..=opens - before).contains(&wait_us), "{wait_us}, not {}", opens - before);
    let readings = monitor.readings_until(&mark, &format!("{}:{{acme}}:log", scratch.key_prefix()));
    assert!(!readings.is_empty() && readings.iter().all(|entries| *entries <= 100), "{readings:?}");
}

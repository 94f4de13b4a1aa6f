//! Writes lies into Redis behind the nodes' back: what a limit counted, its rule, or garbage.

use std::time::Duration;

use redis::RedisResult;
use redis::aio::MultiplexedConnection;

/// A rule that passes for another node's stricter rule: a window of 31 days, so that the windows of the clock never
/// end it.
const MONTH_US: i64 = 31 * 24 * 3_600 * 1_000_000;

/// A connection that lies about one limit.
#[derive(Debug)]
pub struct Forger {
    redis: MultiplexedConnection,
    /// The limit's hash, as `refundd:{acme}:limit`.
    pub key: String,
}

impl Forger {
    /// # Errors
    /// When Redis does not answer.
    pub async fn of(url: &str, key: String) -> RedisResult<Self> {
        Ok(Self::over(connect(url).await?, key))
    }

    /// The same, over a connection that is there.
    #[must_use]
    pub fn over(redis: MultiplexedConnection, key: String) -> Self {
        Forger { redis, key }
    }

    /// The hashes of all limits that this Redis knows.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn limits(url: &str) -> RedisResult<Vec<String>> {
        let mut keys: Vec<String> =
            redis::cmd("KEYS").arg("*:limit").query_async(&mut connect(url).await?).await?;
        keys.sort_unstable();
        Ok(keys)
    }

    /// Sets fields of the hash. If the key is of another type just now, nothing is forged.
    pub async fn set(&mut self, fields: &[(&str, String)]) {
        let mut call = redis::cmd("HSET");
        call.arg(&self.key);
        for (field, value) in fields {
            call.arg(field).arg(value);
        }
        let _: Result<(), _> = call.query_async(&mut self.redis).await;
    }

    /// The names of the hash's fields.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn fields(&mut self) -> RedisResult<Vec<String>> {
        redis::cmd("HKEYS").arg(&self.key).query_async(&mut self.redis).await
    }

    /// Redis's time in microseconds.
    async fn now_us(&mut self) -> RedisResult<i64> {
        let (seconds, micros): (i64, i64) = redis::cmd("TIME").query_async(&mut self.redis).await?;
        Ok(seconds * 1_000_000 + micros)
    }

    /// Forgets what was spent, in every field in which an algorithm keeps it.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn forget_spent(&mut self) -> RedisResult<()> {
        let long_ago = (self.now_us().await? - 5_000_000).to_string();
        for field in self.fields().await? {
            match field.as_str() {
                "used" => self.set(&[("used", "0".to_owned())]).await,
                "gone" => {
                    let total: Option<String> =
                        redis::cmd("HGET").arg(&self.key).arg("total").query_async(&mut self.redis).await?;
                    self.set(&[("gone", total.unwrap_or_default())]).await;
                }
                "last" | "full" | "slot" | "owed" => self.set(&[(&field, long_ago.clone())]).await,
                segment if segment.starts_with('s') && segment[1..].parse::<i64>().is_ok() => {
                    self.set(&[(segment, "0".to_owned())]).await;
                }
                _ => {}
            }
        }
        let log = self.key.replace(":limit", ":log");
        redis::cmd("DEL").arg(log).query_async(&mut self.redis).await
    }

    /// Keeps forgetting what was spent for this long.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn keep_forgetting(&mut self, length: Duration) -> RedisResult<()> {
        let until = tokio::time::Instant::now() + length;
        while tokio::time::Instant::now() < until {
            self.forget_spent().await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Writes a rule of 2,000 permits in a month, with nothing spent.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn write_rule(&mut self, algorithm: &str) -> RedisResult<()> {
        let now_us = self.now_us().await?;
        let rule = format!(
            r#"{{"algorithm":"{algorithm}","permits":2000,"per_us":{MONTH_US},"lateness_us":20000}}"#
        );
        let window = now_us - now_us % MONTH_US;
        let written = [("rule", rule), ("seen", now_us.to_string()), ("window", window.to_string())];
        let nothing_spent = ["used", "total", "gone", "last"].map(|field| (field, "0".to_owned()));
        self.set(&[written.as_slice(), &nothing_spent].concat()).await;
        Ok(())
    }

    /// Writes garbage into all fields but those at which `is_spared`.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn write_garbage(
        &mut self,
        garbage: &str,
        is_spared: impl Fn(usize) -> bool,
    ) -> RedisResult<()> {
        let fields = self.fields().await?;
        let forged = (0..).zip(&fields).filter(|(place, _)| !is_spared(*place));
        let forged: Vec<(&str, String)> =
            forged.map(|(_, field)| (field.as_str(), garbage.to_owned())).collect();
        if !forged.is_empty() {
            self.set(&forged).await;
        }
        Ok(())
    }
}

async fn connect(url: &str) -> RedisResult<MultiplexedConnection> {
    redis::Client::open(url)?.get_multiplexed_async_connection().await
}

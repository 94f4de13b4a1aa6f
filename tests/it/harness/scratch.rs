//! A database, a key prefix and a bank of one's own.

use std::sync::atomic::{AtomicU32, Ordering};

use playground::{Authority, PretendBank};
use refundd::bucket::{Bucket, Purpose, ServerTrust};
use refundd::config::Config;
use refundd::refund::{ChannelName, RefundId, State};
use refundd::store::{
    Approved, Decided, Decision, Pause, ProposalAnswer, Seen, Store, SuspendedBy, SuspensionEnd,
};
use sqlx::{Connection, Executor, PgConnection, Row};

use super::servers::{SERVERS, TEMPLATE};
use super::until;

pub struct Scratch {
    pub name: String,
    /// For nodes, which log in with the shipped role.
    pub database_url: String,
    /// For the test itself, which looks at everything and changes what it likes.
    pub owner_url: String,
    /// For nodes, which log in as the shipped user.
    pub redis_url: String,
    /// As nodes use it.
    pub store: Store,
    pub bank: PretendBank,
    /// Who vouches for the bank, if it speaks TLS.
    pub authority: Option<Authority>,
}

impl Scratch {
    pub async fn new() -> Scratch {
        let redis_url = SERVERS.redis.url();
        Scratch::with_redis(redis_url).await
    }

    /// With a bank that speaks TLS where `secure` says so; channels then reach `http://{bank}` by TLS.
    pub async fn over(secure: bool) -> Scratch {
        let mut scratch = Scratch::new().await;
        if secure {
            let authority = Authority::new().unwrap();
            let here = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
            scratch.bank = PretendBank::start_secure(here, authority.identity().unwrap()).unwrap();
            scratch.authority = Some(authority);
        }
        scratch
    }

    /// With a Redis that nobody else uses, to be flushed and killed.
    pub async fn with_redis(redis_url: String) -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("scratch_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        SERVERS.postgres.create_database(&name, Some(TEMPLATE)).await.unwrap();
        let database_url = SERVERS.postgres.node_url(&name);
        Scratch {
            owner_url: SERVERS.postgres.url(&name),
            store: Store::open(&database_url, None, 4).unwrap(),
            bank: PretendBank::start_here().unwrap(),
            authority: None,
            name,
            database_url,
            redis_url,
        }
    }

    /// With so many refunds `R-1`, `R-2`, ... of channel `acme`, which no node runs.
    pub async fn with_refunds(count: u32) -> Scratch {
        let scratch = Scratch::new().await;
        scratch.publish("acme").await;
        scratch.insert("acme", "R-", count).await;
        scratch
    }

    /// A configuration of this scratch with these limits and channels; `{bank}` is the bank's address. Tests make banks
    /// fail many times in a row, so channels have no breaker unless the test names one.
    pub fn file(&self, node: &str, channels: &str) -> String {
        let channels = without_breakers(&self.secured(channels));
        format!(
            r#"
[node]
name = "{node}"
[http]
listen = "127.0.0.1:0"
[postgres]
url = "{}"
connections = 6
[redis]
url = "{}"
key_prefix = "{}"
[log]
format = "json"
level = "info"
{}
"#,
            self.database_url,
            self.redis_url,
            self.key_prefix(),
            channels.replace("{bank}", &self.bank.address().to_string())
        )
    }

    /// These channels, by TLS where the bank speaks it.
    pub fn secured(&self, channels: &str) -> String {
        self.authority.as_ref().map_or_else(|| channels.to_owned(), |authority| authority.secured(channels))
    }

    pub fn config(&self, node: &str, channels: &str) -> Config {
        self.config_at(node, channels, &self.redis_url)
    }

    /// The same, for a node that reaches Redis at another address.
    pub fn config_at(&self, node: &str, channels: &str, redis_url: &str) -> Config {
        let text = self.file(node, channels).replace(&self.redis_url, redis_url);
        Config::parse(&text, "test.toml", &|_| None).unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn bucket(&self) -> Bucket {
        let patience = std::time::Duration::from_secs(5);
        Bucket::open(&self.redis_url, ServerTrust::default(), &self.key_prefix(), patience).unwrap()
    }

    /// The start of every key in Redis. The shipped user may use keys that start with `refundd:`.
    pub fn key_prefix(&self) -> String {
        format!("refundd:{}", self.name)
    }

    /// A connection to Redis for the test itself. Tests with a Redis of their own use its `admin_url`.
    pub async fn redis(&self) -> redis::aio::MultiplexedConnection {
        let client = redis::Client::open(SERVERS.redis.admin_url()).unwrap();
        client.get_multiplexed_async_connection().await.unwrap()
    }

    /// A connection of the owner's.
    pub async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.owner_url).await.unwrap()
    }

    /// Runs one statement as the owner.
    pub async fn sql(&self, statement: &str) -> u64 {
        let mut connection = self.connect().await;
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut connection).await.unwrap().rows_affected()
    }

    /// The error that one statement of the owner's meets.
    pub async fn sql_error(&self, statement: &str) -> sqlx::Error {
        let mut connection = self.connect().await;
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut connection).await.unwrap_err()
    }

    /// Saves refunds as a producer does: `{prefix}1` to `{prefix}{count}`.
    pub async fn insert(&self, channel: &str, prefix: &str, count: u32) {
        self.sql(&format!(
            "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
             select '{prefix}' || n, '{channel}', 'P-' || n, 100 + n, 'EUR' from generate_series(1, {count}) n"
        ))
        .await;
    }

    /// How many refunds are in each state.
    pub async fn counts(&self) -> std::collections::BTreeMap<State, i64> {
        let mut connection = self.connect().await;
        let rows = sqlx::query("select state, count(*) as n from refundd.refunds group by state")
            .fetch_all(&mut connection)
            .await
            .unwrap();
        rows.iter().map(|r| (r.get::<&str, _>("state").parse().unwrap(), r.get("n"))).collect()
    }

    pub async fn count(&self, state: State) -> i64 {
        self.counts().await.get(&state).copied().unwrap_or(0)
    }

    /// One number.
    pub async fn number(&self, query: &str) -> i64 {
        let mut connection = self.connect().await;
        sqlx::query_scalar(sqlx::AssertSqlSafe(query)).fetch_one(&mut connection).await.unwrap()
    }

    /// Postgres's time, in microseconds since 1970.
    pub async fn now_us(&self) -> i64 {
        self.number("select (extract(epoch from clock_timestamp()) * 1000000)::bigint").await
    }

    /// One text.
    pub async fn text(&self, query: &str) -> String {
        let mut connection = self.connect().await;
        sqlx::query_scalar(sqlx::AssertSqlSafe(query)).fetch_one(&mut connection).await.unwrap()
    }

    /// Publishes a channel without any node, for tests of the store alone.
    pub async fn publish(&self, channel: &str) {
        self.sql(&format!(
            "insert into refundd.channels (channel, endpoint, settings, published_by)
             values ('{channel}', 'http://127.0.0.1:9/', '{{}}', 'test')"
        ))
        .await;
    }

    /// As its owner, lets nodes drop evidence of any age, which no owner should do outside a test.
    pub async fn keep_evidence_for_a_moment(&self) {
        self.sql("alter table refundd.retention drop constraint retention_is_long_enough").await;
        self.sql("update refundd.retention set at_least = '1 microsecond'").await;
    }

    /// Pauses a channel as a person does.
    pub async fn pause(&self, channel: &str, reason: &str, who: &str) {
        let pause = Pause { reason, who, lasts: None };
        assert!(self.store.pause(channel, &pause).await.unwrap(), "there is no channel {channel}");
    }

    /// Ends a person's pause of a channel, and what refundd suspended itself.
    pub async fn resume(&self, channel: &str) {
        self.store.resume(channel, "test", None).await.unwrap();
        for own in [SuspendedBy::Credentials, SuspendedBy::Breaker] {
            self.store.release(channel, own, "test", None).await.unwrap();
        }
    }

    /// Pauses everything as a person does.
    pub async fn pause_all(&self, pause: &Pause<'_>) {
        self.store.pause_seen(None, pause, Seen::Unsaid).await.unwrap();
    }

    /// Ends a person's pause of everything.
    pub async fn resume_all(&self, who: &str) {
        let ending = SuspensionEnd { channel: None, by: SuspendedBy::All, who, reason: None, seen: None };
        self.store.end(&ending).await.unwrap();
    }

    /// How many causes suspend a channel now, beside cooling.
    pub async fn suspensions(&self) -> i64 {
        self.number("select count(*) from refundd.suspended").await
    }

    /// What becomes of a decision of somebody who just looked, and whom the bank told that it executed nothing. Where the
    /// decision needs a second person, there is one.
    pub async fn decide(&self, id: RefundId, next: State, why: &str, who: &str) -> Decided {
        let seen = self.store.refund(id).await.unwrap().map_or(1, |refund| refund.version);
        let decision = Decision { id, seen, next, not_executed: true, why, who };
        let decided = self.store.decide(&decision).await.unwrap();
        let Decided::Proposed(_, proposal) = &decided else { return decided };
        let answer = ProposalAnswer { id: proposal.id, why, who: "a second person" };
        match self.store.approve(&answer, proposal.version).await.unwrap() {
            Approved::Done(refund, _) => Decided::Done(refund),
            other => panic!("{other:?}"),
        }
    }

    /// Runs `work` while a transaction has made these steps and not committed, and commits it when `work` waits for its rows.
    pub async fn while_a_commit_hangs<T>(&self, steps: &[&str], work: impl Future<Output = T>) -> T {
        let mut connection = self.connect().await;
        for step in [&["begin"], steps].concat() {
            connection.execute(sqlx::AssertSqlSafe(step)).await.unwrap();
        }
        let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        let commit = async {
            until("it waits for the rows", async || self.number(waits).await > 0).await;
            connection.execute("commit").await.unwrap();
        };
        tokio::join!(work, commit).0
    }

    /// Every refund that was saved.
    pub async fn refs(&self) -> Vec<String> {
        let mut connection = self.connect().await;
        sqlx::query_scalar("select refund_ref from refundd.refunds").fetch_all(&mut connection).await.unwrap()
    }
}

/// These tables of a configuration, with a switched-off breaker in each channel; or as they are, if they name a breaker.
fn without_breakers(tables: &str) -> String {
    if tables.contains("breaker") {
        return tables.to_owned();
    }
    let is_channel = |line: &str| {
        let name = line.strip_prefix("[channel.").and_then(|rest| rest.strip_suffix(']'));
        name.is_some_and(|name| !name.contains('.'))
    };
    let with = |line: &str| {
        if is_channel(line) { format!("{line}\nbreaker = \"off\"\n") } else { format!("{line}\n") }
    };
    tables.lines().map(with).collect()
}

/// How many ids a channel's bucket has.
pub async fn depth(bucket: &Bucket, purpose: Purpose, channel: &ChannelName) -> u64 {
    bucket.survey(purpose, std::slice::from_ref(channel)).await.remove(0).unwrap().depth
}

/// Waits until so many refunds are in this state.
pub async fn is(scratch: &Scratch, state: State, count: i64) {
    until(&format!("{count} are {state}"), async || scratch.count(state).await == count).await;
}

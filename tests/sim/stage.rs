//! What a worker runs seeds on: a database of its own on one private Postgres, and a Redis in this
//! process, all on one simulated clock.
//!
//! Postgres's clock: every statement of refundd says `now()` and `clock_timestamp()` without a schema, and
//! the schema `sim`, which stands before `pg_catalog` in this server's search path, has its own. They read a
//! setting of the connection, and are small enough for the planner to write them out.
//!
//! A run is one transaction, which is rolled back: emptying thirty tables took longer than playing in them.

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use playground::{PostgresOptions, PrivatePostgres};
use refundd::store::{ClockWitness, Store};
use sqlx::{Connection, PgConnection};

use super::clock::{BEGAN_US, Clock};
use super::laws;
use super::redis::Redis;
use super::wire::{Rewrite, Wire};
use super::zoo::Patch;

const TEMPLATE: &str = "template_of_sim";

const CLOCK: &str = "
    create schema sim;
    create function sim.now() returns timestamptz language sql stable as $$select current_setting('sim.at')::timestamptz$$;
    create function sim.clock_timestamp() returns timestamptz language sql stable as $$select current_setting('sim.at')::timestamptz$$;";

// The days and months of the real calendar are not those of a run: all its rows stand among the others.
const ONE_DAY: &str = "
    do $$ declare part text; begin
        for part in select inhrelid::regclass from pg_inherits
                     where inhparent in ('refundd.permits'::regclass, 'refundd.attempts'::regclass)
                       and inhrelid::regclass::text !~ '_of_other_' loop
            execute 'drop table ' || part;
        end loop;
    end $$";

// Rows that were rolled back are still in the way of those who look for others; the triggers that refuse
// just this sleep meanwhile. The first is what a run leaves open.
const SWEEP: &str = "
    rollback;
    do $$ begin
        set local session_replication_role = replica;
        execute (select 'truncate ' || string_agg(format('%I.%I', schemaname, tablename), ', ') || ' restart identity'
                   from pg_tables where schemaname = 'refundd' and tablename <> 'migrations');
    end $$";

/// So many runs leave their rows behind before all is swept.
const SWEEP_AFTER: u32 = 50;

// As if the database were new. What sequences gave is not taken back with the rest.
const RESET: &str = "
    rollback;
    begin;
    select setval(pg_get_serial_sequence('refundd.refunds', 'id'), 1, false);";

/// The statements of the simulation itself.
const OWN: &[&str] = &[laws::LOOK, laws::SPENT, laws::end::KEPT, laws::end::KEPT_TWICE, laws::end::RETIRED];
pub const LOOK: usize = 0;
pub const SPENT: usize = 1;
pub const KEPT: usize = 2;
pub const KEPT_TWICE: usize = 3;
pub const RETIRED: usize = 4;

static POSTGRES: LazyLock<PrivatePostgres> = LazyLock::new(|| {
    let (ready, server) = mpsc::channel();
    // A thread and a runtime that live as long as the process.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let settings = [
                ("search_path", "sim,pg_catalog"),
                ("plan_cache_mode", "force_generic_plan"),
                // Plans, and with them the order of rows, must not depend on what was vacuumed when.
                ("autovacuum", "off"),
                ("jit", "off"),
                // Nothing is kept, so nothing is written down that could bring it back.
                ("wal_level", "minimal"),
                ("max_wal_senders", "0"),
                ("wal_writer_delay", "10s"),
                ("checkpoint_timeout", "1h"),
                ("sim.at", "1970-01-01T00:00:00Z"),
            ];
            let settings =
                settings.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
            let options = PostgresOptions { settings, ..PostgresOptions::for_tests() };
            let postgres = PrivatePostgres::start_with(&options).await.unwrap();
            postgres.create_database(TEMPLATE, None).await.unwrap();
            let url = postgres.url(TEMPLATE);
            let mut sql = PgConnection::connect(&url).await.unwrap();
            sqlx::raw_sql(CLOCK).execute(&mut sql).await.unwrap();
            sql.close().await.unwrap();
            let store = Store::open(&url, None, 1).unwrap();
            store.migrate().await.unwrap();
            store.close().await;
            let mut sql = PgConnection::connect(&url).await.unwrap();
            sqlx::raw_sql(ONE_DAY).execute(&mut sql).await.unwrap();
            sql.close().await.unwrap();
            ready.send(postgres).unwrap();
            std::future::pending::<()>().await;
        });
    });
    server.recv().expect("Postgres starts; run tools/install-servers if it is not installed")
});

pub struct Stage {
    pub clock: Clock,
    pub store: Store,
    /// The one connection, the store's and the simulation's.
    pub wire: Wire,
    pub redis: Arc<Redis>,
    /// The store's address.
    url: String,
    /// How far Postgres's clock is ahead of the world's.
    postgres_ahead: i64,
    /// Postgres's clock was set forward in this run.
    pub was_set_forward: bool,
    /// What Postgres was last told of the time: the world's, and what its own clock shows.
    told_us: (i64, i64),
    /// Runs since all was swept.
    runs: u32,
    connected: (u32, Instant),
}

impl Stage {
    /// A connection of the store is replaced after half an hour, and a run must not lose it.
    const OLDEST: Duration = Duration::from_mins(15);

    /// With `rewrite`, every statement of the store is read by it before Postgres gets it.
    pub async fn new(rewrite: Option<Rewrite>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("sim_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        POSTGRES.create_database(&name, Some(TEMPLATE)).await.unwrap();
        let folder = POSTGRES.folder().display().to_string();
        let wire = Wire::start(&folder, OWN, rewrite);
        let url = POSTGRES.url(&name).replace(&folder, &wire.folder);
        let clock = Clock::new();
        let store = Store::open(&url, None, 1).unwrap();
        let redis = Arc::new(Redis::new(&clock));
        let connected = (0, Instant::now());
        Stage {
            clock,
            store,
            wire,
            redis,
            url,
            postgres_ahead: 0,
            was_set_forward: false,
            told_us: (-1, -1),
            runs: 0,
            connected,
        }
    }

    /// As new, for the next run.
    pub async fn reset(&mut self, patch: Option<Patch>) {
        self.redis.reset(patch);
        self.clock.set(0);
        (self.postgres_ahead, self.was_set_forward, self.told_us) = (0, false, (-1, -1));
        if self.connected.0 == 0 || self.connected.1.elapsed() > Self::OLDEST {
            self.store = Store::open(&self.url, None, 1).unwrap();
            self.store.ping().await.unwrap();
            self.connected.1 = Instant::now();
        }
        self.runs += 1;
        if self.runs > SWEEP_AFTER {
            self.runs = 1;
            self.wire.say(SWEEP).await;
        }
        self.wire.say(RESET).await;
        self.connected.0 = self.wire.connected().await;
        self.tell_time().await;
    }

    /// Whether the run lost its connection, and with it all that it had written.
    pub async fn is_torn(&self) -> bool {
        self.wire.connected().await != self.connected.0
    }

    /// Tells Postgres what time it is.
    pub async fn tell_time(&mut self) {
        let (now, shown) = (self.clock.now(), self.postgres_now());
        if (now, shown) != self.told_us {
            self.told_us = (now, shown);
            let time = jiff::Timestamp::from_microsecond(BEGAN_US + shown).unwrap();
            self.wire.tell(time.to_string()).await;
        }
    }

    /// What Postgres's clock shows.
    pub fn postgres_now(&self) -> i64 {
        self.clock.now() + self.postgres_ahead
    }

    /// How far that is ahead of the world's clock.
    pub fn postgres_ahead(&self) -> i64 {
        self.postgres_ahead
    }

    pub fn step_postgres_clock(&mut self, us: i64) {
        self.was_set_forward |= us > 0;
        self.postgres_ahead += us;
    }

    /// A store for one node, with a witness of Postgres's clock of its own.
    pub fn store_of_a_node(&self) -> Store {
        let clock = self.clock.clone();
        self.store.clone().witnessed_by(ClockWitness::by(Arc::new(move || clock.instant())))
    }

    /// The same before a statement whose effect is looked at: [`World::observe`] then need not ask.
    ///
    /// [`World::observe`]: super::world::World::observe
    pub async fn tell_time_and_look(&mut self) {
        self.tell_time().await;
        self.wire.then(LOOK).await;
    }

    /// When the last statement ran.
    pub fn ran_at(&self) -> i64 {
        self.told_us.0
    }

    /// What Postgres's clock showed then.
    pub fn ran_at_by_postgres(&self) -> i64 {
        self.told_us.1
    }
}

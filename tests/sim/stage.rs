//! The servers on which a worker plays seeds: a database of its own on one private Postgres, and a Redis in this
//! process, all on one simulated clock.
//!
//! Postgres's clock is simulated too. Every statement of refundd calls `now()` and `clock_timestamp()` without a
//! schema. The schema `sim` has functions of these names and stands before `pg_catalog` in the search path. They read
//! a setting of the connection, and are small enough for the planner to inline them.
//!
//! A run is one transaction, which is rolled back: emptying thirty tables took longer than playing in them.

pub mod own;

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use playground::{PostgresOptions, PrivatePostgres};
use refundd::store::{ClockWitness, Store};
use sqlx::{Connection, PgConnection};

use super::clock::{BEGAN_US, Clock};
use super::patch::Patch;
use super::redis::Redis;
use super::wire::{Rewrite, Wire};

const TEMPLATE: &str = "template_of_sim";

/// Of the server, for the wire's own statements, and of each store, which sets it after connecting.
const SEARCH_PATH: &str = "sim,pg_catalog";

const CLOCK: &str = "
    create schema sim;
    create function sim.now() returns timestamptz language sql stable as $$select current_setting('sim.at')::timestamptz$$;
    create function sim.clock_timestamp() returns timestamptz language sql stable as $$select current_setting('sim.at')::timestamptz$$;";

// Functions that run with their owner's rights name their search path. It must lead to the simulated clock, too.
const OWN_PATHS: &str = "
    do $$ declare part text; begin
        for part in select oid::regprocedure from pg_proc
                     where pronamespace = 'refundd'::regnamespace and proconfig @> '{\"search_path=pg_catalog, pg_temp\"}' loop
            execute format('alter function %s set search_path = sim, pg_catalog, pg_temp', part);
        end loop;
    end $$";

// A run does not play in the days and months of the real calendar: all its rows go into the partitions `_of_other_`.
const ONE_DAY: &str = "
    do $$ declare part text; begin
        for part in select inhrelid::regclass from pg_inherits
                     where inhparent in ('refundd.permits'::regclass, 'refundd.attempts'::regclass)
                       and inhrelid::regclass::text !~ '_of_other_' loop
            execute 'drop table ' || part;
        end loop;
    end $$";

// Rows that were rolled back still slow down every later scan, so they are truncated. The triggers that refuse
// `truncate` are off meanwhile. The `rollback` ends the transaction that a run leaves open.
const SWEEP: &str = "
    rollback;
    do $$ begin
        set local session_replication_role = replica;
        execute (select 'truncate ' || string_agg(format('%I.%I', schemaname, tablename), ', ') || ' restart identity'
                   from pg_tables where schemaname = 'refundd' and tablename <> 'migrations');
    end $$";

/// After this many runs the dead rows are truncated.
const SWEEP_AFTER: u32 = 50;

// A rollback leaves the database as new, except for sequences: they do not roll back.
const RESET: &str = "
    rollback;
    begin;
    select setval(pg_get_serial_sequence('refundd.refunds', 'id'), 1, false);";

static POSTGRES: LazyLock<PrivatePostgres> = LazyLock::new(|| {
    let (ready, server) = mpsc::channel();
    // The thread and the runtime live as long as the process.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let settings = [
                ("search_path", SEARCH_PATH),
                ("plan_cache_mode", "force_generic_plan"),
                // Vacuum at another time would change plans, and with them the order of rows.
                ("autovacuum", "off"),
                ("jit", "off"),
                // Nothing of a run is kept, so the log for recovery and replication may be minimal.
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
            let store = Store::simulated(&url, SEARCH_PATH).unwrap();
            store.migrate().await.unwrap();
            store.close().await;
            let mut sql = PgConnection::connect(&url).await.unwrap();
            sqlx::raw_sql(ONE_DAY).execute(&mut sql).await.unwrap();
            sqlx::raw_sql(OWN_PATHS).execute(&mut sql).await.unwrap();
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
    /// The one connection to Postgres, for the store and for the simulation.
    pub wire: Wire,
    pub redis: Arc<Redis>,
    /// The store's address.
    url: String,
    /// How far Postgres's clock is ahead of the world's clock, in us.
    postgres_ahead: i64,
    /// Postgres's clock was set forward in this run.
    pub was_set_forward: bool,
    /// The time last sent to Postgres, in us: by the world's clock, and by Postgres's own.
    sent_time_us: (i64, i64),
    /// Runs since the tables were truncated.
    runs: u32,
    /// How often the store had connected when the run began, and when it connected last.
    connected: (u32, Instant),
}

impl Stage {
    /// The store replaces a connection after half an hour, and a run must not lose its connection. So the stage
    /// replaces it earlier, between runs.
    const OLDEST: Duration = Duration::from_mins(15);

    /// With `rewrite`, every statement of the store passes through it before Postgres gets it.
    pub async fn new(rewrite: Option<Rewrite>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("sim_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        POSTGRES.create_database(&name, Some(TEMPLATE)).await.unwrap();
        let folder = POSTGRES.folder().display().to_string();
        let wire = Wire::start(&folder, own::ALL, rewrite);
        let url = POSTGRES.url(&name).replace(&folder, &wire.folder);
        let clock = Clock::new();
        let store = Store::simulated(&url, SEARCH_PATH).unwrap();
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
            sent_time_us: (-1, -1),
            runs: 0,
            connected,
        }
    }

    /// Makes everything as new, for the next run.
    pub async fn reset(&mut self, patch: Option<Patch>) {
        self.redis.reset(patch);
        self.clock.set(0);
        (self.postgres_ahead, self.was_set_forward, self.sent_time_us) = (0, false, (-1, -1));
        if self.connected.0 == 0 || self.connected.1.elapsed() > Self::OLDEST {
            self.store = Store::simulated(&self.url, SEARCH_PATH).unwrap();
            self.store.ping().await.unwrap();
            self.connected.1 = Instant::now();
        }
        self.runs += 1;
        if self.runs > SWEEP_AFTER {
            self.runs = 1;
            self.wire.execute(SWEEP).await;
        }
        self.wire.execute(RESET).await;
        self.connected.0 = self.wire.connected().await;
        self.tell_time().await;
    }

    /// Whether the run lost its connection, and with it everything that it wrote.
    pub async fn is_torn(&self) -> bool {
        self.wire.connected().await != self.connected.0
    }

    /// Makes Postgres's clock show the current time at the next statement.
    pub async fn tell_time(&mut self) {
        let (now, shown) = (self.clock.now(), self.postgres_now());
        if (now, shown) != self.sent_time_us {
            self.sent_time_us = (now, shown);
            let time = jiff::Timestamp::from_microsecond(BEGAN_US + shown).unwrap();
            self.wire.tell(time.to_string()).await;
        }
    }

    /// The time by Postgres's clock, in us since the run began.
    pub fn postgres_now(&self) -> i64 {
        self.clock.now() + self.postgres_ahead
    }

    /// How far Postgres's clock is ahead of the world's clock, in us.
    pub fn postgres_ahead(&self) -> i64 {
        self.postgres_ahead
    }

    pub fn step_postgres_clock(&mut self, us: i64) {
        self.was_set_forward |= us > 0;
        self.postgres_ahead += us;
    }

    /// A store for one node, with its own witness of Postgres's clock.
    pub fn store_of_a_node(&self) -> Store {
        let clock = self.clock.clone();
        self.store.clone().witnessed_by(ClockWitness::by(Arc::new(move || clock.instant())))
    }

    /// Like [`Stage::tell_time`], before a statement whose effect is checked. The rows are read in the same round
    /// trip, so `World::observe` need not ask for them.
    pub async fn tell_time_and_look(&mut self) {
        self.tell_time().await;
        self.wire.then(own::LOOK).await;
    }

    /// When the last statement ran, by the world's clock.
    pub fn ran_at(&self) -> i64 {
        self.sent_time_us.0
    }

    /// When the last statement ran, by Postgres's clock.
    pub fn ran_at_by_postgres(&self) -> i64 {
        self.sent_time_us.1
    }
}

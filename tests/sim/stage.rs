//! What a worker runs seeds on: a database of its own on one private Postgres, and a Redis in this
//! process, all on one simulated clock.
//!
//! Postgres's clock: every statement of refundd says `now()` and `clock_timestamp()` without a schema, and
//! the schema `sim`, which stands before `pg_catalog` in this server's search path, has its own.

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use refundd::playground::{PostgresOptions, PrivatePostgres};
use refundd::store::Store;
use sqlx::{Connection, PgConnection};

use super::clock::{BEGAN_US, Clock};
use super::redis::Redis;
use super::wire::{Rewrite, Wire};
use super::zoo::Patch;

const TEMPLATE: &str = "template_of_sim";

const CLOCK: &str = "
    create schema sim;
    create table sim.clock (at timestamptz not null);
    insert into sim.clock values ('epoch');
    create function sim.now() returns timestamptz language sql stable as 'select at from sim.clock';
    create function sim.clock_timestamp() returns timestamptz language sql stable as 'select at from sim.clock';";

// As if the database were new; the triggers that refuse just this sleep meanwhile.
const RESET: &str = "
    do $$ begin
        set local session_replication_role = replica;
        execute (select 'truncate ' || string_agg(format('%I.%I', schemaname, tablename), ', ') || ' restart identity'
                   from pg_tables where schemaname = 'refundd' and tablename <> 'migrations');
    end $$";

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
            ready.send(postgres).unwrap();
            std::future::pending::<()>().await;
        });
    });
    server.recv().expect("Postgres starts; run tools/install-servers if it is not installed")
});

pub struct Stage {
    pub clock: Clock,
    pub store: Store,
    /// The simulation's own connection.
    pub sql: PgConnection,
    pub redis: Arc<Redis>,
    /// What Postgres was last told of the time.
    told_us: i64,
}

impl Stage {
    /// With `rewrite`, every statement of the store is read by it before Postgres gets it.
    pub async fn new(rewrite: Option<Rewrite>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("sim_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        POSTGRES.create_database(&name, Some(TEMPLATE)).await.unwrap();
        let url = POSTGRES.url(&name);
        let store_url = match rewrite {
            None => url.clone(),
            Some(rewrite) => {
                let folder = POSTGRES.folder().display().to_string();
                let wire = Wire::start(&folder, rewrite);
                url.replace(&folder, &wire)
            }
        };
        let clock = Clock::new();
        let store = Store::open(&store_url, None, 1).unwrap();
        let sql = PgConnection::connect(&url).await.unwrap();
        let redis = Arc::new(Redis::new(&clock));
        Stage { clock, store, sql, redis, told_us: -1 }
    }

    /// As new, for the next run.
    pub async fn reset(&mut self, patch: Option<Patch>) {
        self.redis.reset(patch);
        self.clock.set(0);
        self.told_us = -1;
        sqlx::raw_sql(RESET).execute(&mut self.sql).await.unwrap();
        self.tell_time().await;
    }

    /// Tells Postgres what time it is.
    pub async fn tell_time(&mut self) {
        let now = self.clock.now();
        if now != self.told_us {
            self.told_us = now;
            sqlx::query("update sim.clock set at = timestamptz 'epoch' + $1 * interval '1 microsecond'")
                .bind(BEGAN_US + now)
                .execute(&mut self.sql)
                .await
                .unwrap();
        }
    }

    /// The time as Postgres knows it.
    pub fn told_us(&self) -> i64 {
        self.told_us
    }
}

//! Measures the time from saved to the first byte at the bank, on an idle channel.

use std::collections::HashMap;
use std::time::Duration;

use playground::load::{ANY, Caller, arrived, end, unlimited};
use playground::stage::Stage;
use sqlx::{Connection, PgConnection};

use crate::enqueue::INSERT_ONE;
use crate::figure::{Better, Notes};

const EACH: u32 = 200;

const SAVED: &str =
    "select refund_ref, (extract(epoch from created_at) * 1000000)::bigint from refundd.refunds";

pub async fn round(notes: &mut Notes) -> anyhow::Result<()> {
    let stage = Stage::set(crate::program(), ANY).await?;
    let node = stage.node("a", ANY, &unlimited(16)).await?;
    let caller = Caller::of(node.address);
    let mut database = PgConnection::connect(&stage.database_url()).await?;
    // The first refunds open connections and are not measured.
    for (way, count) in [("warm", 20), ("http", EACH), ("sql", EACH)] {
        for n in 1..=count {
            let name = format!("{way}-{n}");
            if way == "sql" {
                let insert = sqlx::query(INSERT_ONE).bind(name).bind("P").bind(i64::from(n));
                insert.execute(&mut database).await?;
            } else {
                caller.save(&name).await?;
            }
            tokio::time::sleep(Duration::from_millis(60 + u64::from(n) * 7 % 50)).await;
        }
    }
    arrived(&stage, 20 + 2 * EACH as usize, Duration::from_secs(10)).await?;
    let saved: Vec<(String, i64)> = sqlx::query_as(SAVED).fetch_all(&mut database).await?;
    let saved: HashMap<String, i64> = saved.into_iter().collect();
    database.close().await?;
    for (way, name, p50, p99) in [("http", "HTTP", 5.0, 20.0), ("sql", "SQL", 250.0, 250.0)] {
        let mut waits: Vec<i64> = stage.bank.look(|l| {
            let ours = l.all().iter().filter(|a| a.refund_ref.starts_with(way));
            ours.map(|a| a.at_us - saved[&*a.refund_ref]).collect()
        });
        waits.sort_unstable();
        let at = |percent: usize| waits[(waits.len() - 1) * percent / 100] as f64 / 1000.0;
        notes.add(format!("saved by {name} to the first byte, p50"), "ms", Better::Less, at(50)).at_most(p50);
        notes.add(format!("saved by {name} to the first byte, p99"), "ms", Better::Less, at(99)).at_most(p99);
    }
    end(stage, vec![node]).await
}

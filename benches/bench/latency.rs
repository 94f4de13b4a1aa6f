//! From saved to the first byte at the bank, on a channel where nothing else goes on.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use refundd::playground::load::{ANY, Caller, arrived, end, refund, unlimited};
use refundd::playground::stage::Stage;
use refundd::store::Filter;

use crate::figure::{Better, Notes};

const EACH: u32 = 200;

pub async fn round(notes: &mut Notes) -> anyhow::Result<()> {
    let stage = Stage::set(PathBuf::from(env!("CARGO_BIN_EXE_refundd")), ANY).await?;
    let node = stage.node("a", ANY, &unlimited(16)).await?;
    let caller = Caller::of(node.address);
    // The first ones open connections; nobody looks at them.
    for (way, count) in [("warm", 20), ("http", EACH), ("sql", EACH)] {
        for n in 1..=count {
            let name = format!("{way}-{n}");
            if way == "sql" {
                stage.store.save(&[refund(name, n)?]).await?;
            } else {
                caller.save(&name).await?;
            }
            tokio::time::sleep(Duration::from_millis(60 + u64::from(n) * 7 % 50)).await;
        }
    }
    arrived(&stage, 20 + 2 * EACH as usize, Duration::from_secs(10)).await?;
    let filter = Filter { limit: 1000, ..Filter::default() };
    let refunds = stage.store.list(&filter).await?;
    let saved: HashMap<String, i64> =
        refunds.into_iter().map(|r| (r.refund_ref, r.created_at.as_microsecond())).collect();
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

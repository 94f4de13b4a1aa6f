//! Measures what millions of rows cost that wait or are done: the same drain, compared with one from 10,000 rows.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use playground::load::{ANY, CHANNEL, arrived, end, save, unlimited};
use playground::stage::{NodeProcess, Stage};
use refundd::forecast::FullPace;
use refundd::recovery::Recovery;
use refundd::refund::{ChannelName, RefundId};
use refundd::store::{LookPlace, Pause, RecoveryLook, Store};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::figure::{Better, Notes};
use crate::{meter, program};

const MILLION: u32 = 1_000_000;
const MILLIONS: u32 = 10;
/// Refunds of one drain. The last thousand are not measured, because some backlogs end there and others do not.
const SENT: u32 = 10_000;
const WATCHED: u32 = 9_000;
/// Refunds that the largest backlog sends without a pause at the end.
const LONG: u32 = 200_000;
const PATIENCE: Duration = Duration::from_mins(4);

/// The rows in a table before the drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rows {
    Few,
    Ready,
    Ended,
}

impl Rows {
    fn name(self) -> String {
        match self {
            Rows::Few => "10,000 ready".to_owned(),
            Rows::Ready => format!("{MILLIONS},000,000 ready"),
            Rows::Ended => format!("10,000 ready beside {MILLIONS},000,000 that ended"),
        }
    }
}

/// A stage with one node and a table of rows.
#[derive(Debug)]
struct Heap {
    rows: Rows,
    stage: Stage,
    store: Store,
    node: NodeProcess,
    drains: u32,
}

/// All tables, measured in turn, so that all meet the same conditions of the machine.
#[derive(Debug)]
pub struct Backlogs(Vec<Heap>);

impl Backlogs {
    pub async fn prepare() -> anyhow::Result<Backlogs> {
        let mut heaps = Vec::new();
        for rows in [Rows::Few, Rows::Ready, Rows::Ended] {
            heaps.push(Heap::pile(rows).await?);
        }
        Ok(Backlogs(heaps))
    }

    pub async fn round(&mut self, notes: &mut Notes) -> anyhow::Result<()> {
        let mut usual = f64::NAN;
        for heap in &mut self.0 {
            let name = heap.rows.name();
            let rate = heap.drain(SENT, WATCHED).await?;
            notes.add(format!("{name}: drained"), "refunds/s", Better::More, rate);
            if heap.rows == Rows::Few {
                usual = rate;
            } else {
                let what = format!("{name}: drain rate beside that at 10,000");
                notes.add(what, "×", Better::More, rate / usual).at_least(0.9);
            }
            let memory = meter::redis_memory(&heap.stage.redis.url()).await? / 1024.0 / 1024.0;
            notes.add(format!("{name}: memory of Redis"), "MiB", Better::Less, memory);
        }
        for heap in &mut self.0 {
            heap.note_statements(notes).await?;
        }
        Ok(())
    }

    /// Measures the long drain, ends the stages, and returns a remark for the page.
    pub async fn finish(self) -> anyhow::Result<String> {
        let mut remark = String::new();
        for mut heap in self.0 {
            if heap.rows == Rows::Ready {
                let first = heap.drain(SENT, WATCHED).await?;
                let last = heap.drain_long().await?;
                remark = format!(
                    "Of {LONG} sent in one go from {MILLIONS},000,000 the last {WATCHED} went at {last:.0}/s, beside {first:.0}/s just before."
                );
                println!("    {remark}");
            }
            end(heap.stage, vec![heap.node]).await?;
        }
        Ok(remark)
    }
}

impl Heap {
    async fn pile(rows: Rows) -> anyhow::Result<Heap> {
        let mut options = meter::postgres();
        // Otherwise loading would leave a checkpoint that runs for minutes.
        options.settings.push(("max_wal_size".to_owned(), "4GB".to_owned()));
        let stage = Stage::set_with(program(), ANY, &options).await?;
        let store = Store::open(&stage.database_url(), None, 10)?;
        let file = format!("{}max_backlog = 1000000\n", unlimited(64));
        let node = stage.node("n1", ANY, &file).await?;
        save(&stage, "warm-", 1_000).await?;
        arrived(&stage, 1_000, PATIENCE).await?;
        store.pause(CHANNEL, &Pause { reason: "until all are saved", who: "bench", lasts: None }).await?;
        let mut database = PgConnection::connect(&stage.database_url()).await?;
        let (state, settled) =
            if rows == Rows::Ended { ("succeeded", "now() - interval '1 hour'") } else { ("ready", "null") };
        // Pretends that nodes have counted the ended refunds until now.
        sqlx::query("update refundd.ended_until set counted_until = now() - interval '1 day'")
            .execute(&mut database)
            .await?;
        let began = Instant::now();
        for million in 0..if rows == Rows::Few { 0 } else { MILLIONS } {
            let insert = format!(
                "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency, state, settled_at)
                 select 'M-' || n, '{CHANNEL}', 'P-' || n, n, 'EUR', '{state}', {settled}
                   from generate_series({} + 1, {}) n",
                million * MILLION,
                (million + 1) * MILLION,
            );
            sqlx::query("set session_replication_role = replica").execute(&mut database).await?;
            sqlx::query(AssertSqlSafe(insert))
                .execute(&mut database)
                .await
                .context("failed to save a million")?;
        }
        sqlx::query("vacuum analyze refundd.refunds").execute(&mut database).await?;
        store.count_ended().await?;
        sqlx::query("checkpoint").execute(&mut database).await?;
        println!("  {} after {:.0} s", rows.name(), began.elapsed().as_secs_f64());
        database.close().await?;
        let mut heap = Heap { rows, stage, store, node, drains: 0 };
        // The first drain is not measured, because the caches are cold after loading.
        heap.drain(SENT, WATCHED).await?;
        Ok(heap)
    }

    /// Sends `count` refunds, and returns the rate of the first `watched`, in refunds a second.
    async fn drain(&mut self, count: u32, watched: u32) -> anyhow::Result<f64> {
        self.drains += 1;
        if self.rows != Rows::Ready {
            save(&self.stage, &format!("R-{}-", self.drains), count).await?;
        }
        // By then the bucket is full, and the node knows that the channel is paused.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let before = self.arrived();
        self.store.resume(CHANNEL, "bench", None).await?;
        arrived(&self.stage, before + 1, PATIENCE).await?;
        let began = Instant::now();
        arrived(&self.stage, before + watched as usize, PATIENCE).await?;
        let rate = f64::from(watched) / began.elapsed().as_secs_f64();
        arrived(&self.stage, before + count as usize, PATIENCE).await?;
        self.rest().await?;
        Ok(rate)
    }

    /// Sends `LONG` refunds, and returns the rate of the last ones, in refunds a second.
    async fn drain_long(&mut self) -> anyhow::Result<f64> {
        let before = self.arrived();
        self.store.resume(CHANNEL, "bench", None).await?;
        arrived(&self.stage, before + (LONG - WATCHED) as usize, PATIENCE).await?;
        let began = Instant::now();
        arrived(&self.stage, before + LONG as usize, PATIENCE).await?;
        let rate = f64::from(WATCHED) / began.elapsed().as_secs_f64();
        self.rest().await?;
        Ok(rate)
    }

    /// Pauses the channel, and waits until no lease is left.
    async fn rest(&self) -> anyhow::Result<()> {
        self.store
            .pause(CHANNEL, &Pause { reason: "until the next drain", who: "bench", lasts: None })
            .await?;
        let began = Instant::now();
        while !self.store.leases().await?.is_empty() {
            if began.elapsed() > PATIENCE {
                bail!("some are still being sent");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let repeated = self.stage.bank.look(|l| l.repeated().len());
        if repeated > 0 {
            bail!("{repeated} refunds were sent twice");
        }
        Ok(())
    }

    fn arrived(&self) -> usize {
        self.stage.bank.look(|l| l.all().len())
    }

    /// Measures each statement of the loops whose time could grow with the table.
    async fn note_statements(&mut self, notes: &mut Notes) -> anyhow::Result<()> {
        let (store, name) = (&self.store, self.rows.name());
        let channel: ChannelName = CHANNEL.to_owned().try_into()?;
        if self.rows != Rows::Ready {
            save(&self.stage, &format!("S-{}-", self.drains), SENT).await?;
        }
        let mut note = |what: &str, began: Instant| {
            let ms = began.elapsed().as_secs_f64() * 1_000.0;
            notes.add(format!("{name}: {what}"), "ms", Better::Less, ms);
        };
        // The first round opens the connection and makes the plans.
        for is_warm in [false, true] {
            let began = Instant::now();
            store.channels_with_due().await?;
            if is_warm {
                note("due poller: which channels have due refunds", began);
            }
            let began = Instant::now();
            let due = store.due(&channel, 1_000).await?;
            if is_warm {
                note("feeder: the next 1,000", began);
            }
            let head = due.first().copied().unwrap_or(RefundId(1));
            let began = Instant::now();
            store.left_before(&[(&channel, head)], 500).await?;
            if is_warm {
                note("recovery: what stands before the heads of buckets", began);
            }
            let began = Instant::now();
            for which in Recovery::MOVES {
                store.recover(which, 500, &[]).await?;
            }
            for which in [RecoveryLook::Moved, RecoveryLook::UsedUp] {
                store.look_for(which, 500, 20_000, &LookPlace::default(), &[]).await?;
            }
            if is_warm {
                note("recovery: leases, deadlines, inquiries, reviews", began);
            }
            let began = Instant::now();
            store.watch_backlogs().await?;
            if is_warm {
                note("recovery: whether a backlog bounded to 1,000,000 is full", began);
            }
            let began = Instant::now();
            store.forecast(&[(CHANNEL, FullPace::even(1_000.0))]).await?;
            if is_warm {
                note("recovery: which deadlines will be missed", began);
            }
            let began = Instant::now();
            store.census().await?;
            if is_warm {
                note("census, for `status` and metrics", began);
            }
        }
        if self.rows != Rows::Ready {
            // The saved refunds are sent before the next round.
            let before = self.arrived();
            self.store.resume(CHANNEL, "bench", None).await?;
            arrived(&self.stage, before + SENT as usize, PATIENCE).await?;
            self.rest().await?;
        }
        Ok(())
    }
}

//! Measures the figures that the documents quote, on real nodes and by the pretend bank's ledger.
//!
//! `cargo bench --bench figures` prints all figures. A name measures one: `cargo bench --bench figures -- kill`.
//! Absolute figures depend on the machine.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use playground::bank::Step;
use playground::load::{ANY, Caller, arrived, end, limited, redis_calls, save, unlimited};
use playground::stage::Stage;
use refundd::caller::Names;
use refundd::refund::State;
use refundd::store::{Filter, Store};
use rustix::process::Signal;
use sqlx::{Connection, Executor, PgConnection};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|w| w == name);
    if is_wanted("two_nodes") {
        two_nodes().await?;
    }
    if is_wanted("reload") {
        reload().await?;
    }
    if is_wanted("kill") {
        kill().await?;
    }
    if is_wanted("flush") {
        flush().await?;
    }
    if is_wanted("acquire") {
        acquire().await?;
    }
    if is_wanted("twenty_nodes") {
        twenty_nodes().await?;
    }
    Ok(())
}

async fn stage() -> anyhow::Result<Stage> {
    Stage::set(PathBuf::from(env!("CARGO_BIN_EXE_refundd")), ANY).await
}

fn worst(stage: &Stage) -> usize {
    stage.bank.look(|l| l.worst_aligned_window("acme", SECOND).map_or(0, |w| w.count))
}

async fn two_nodes() -> anyhow::Result<()> {
    let stage = stage().await?;
    let channels = limited(100, 100);
    let nodes = vec![stage.node("a", ANY, &channels).await?, stage.node("b", ANY, &channels).await?];
    let callers = [Caller::of(nodes[0].address), Caller::of(nodes[1].address)];
    let mut names = save(&stage, "sql-", 300).await?;
    for n in 1..=300 {
        let name = format!("http-{n}");
        callers[n % 2].save(&name).await?;
        names.push(name);
    }
    arrived(&stage, 600, Duration::from_secs(30)).await?;
    let ledger = stage.bank.ledger();
    let usage = ledger.usage("acme", SECOND, 100).context("no arrivals")?;
    println!(
        "two_nodes: {} arrivals, {} keys, {} repeated, {} lost, worst aligned second {} of 100, pace {:.1}/s over {} aligned seconds",
        ledger.all().len(),
        ledger.paid_by_key().len(),
        ledger.repeated().len(),
        ledger.lost(names.iter().map(String::as_str)).len(),
        worst(&stage),
        usage.share * 100.0,
        usage.windows,
    );
    end(stage, nodes).await
}

async fn twenty_nodes() -> anyhow::Result<()> {
    let stage = stage().await?;
    let mut nodes = Vec::new();
    for n in 0..20 {
        nodes.push(stage.node(&format!("n{n}"), ANY, &limited(1, 16)).await?);
    }
    save(&stage, "R-", 200).await?;
    arrived(&stage, 2, Duration::from_secs(10)).await?;
    let before = redis_calls(&stage.redis.url()).await?;
    let began = stage.bank.look(|l| l.all().len());
    tokio::time::sleep(Duration::from_mins(2)).await;
    let calls = redis_calls(&stage.redis.url()).await? - before;
    let sent = stage.bank.look(|l| l.all().len()) - began;
    let usage = stage.bank.look(|l| l.usage("acme", SECOND, 1)).context("no arrivals")?;
    println!(
        "twenty_nodes: 20 nodes, 1 a second, 2 min: worst aligned second {} of 1, {:.1} % of windows used ({} of {}), {:.1} Redis commands a refund, repeated {}",
        worst(&stage),
        usage.used as f64 / usage.windows as f64 * 100.0,
        usage.used,
        usage.windows,
        calls as f64 / sent as f64,
        stage.bank.look(|l| l.repeated().len()),
    );
    end(stage, nodes).await
}

async fn reload() -> anyhow::Result<()> {
    let stage = stage().await?;
    let nodes = vec![
        stage.node("a", ANY, &limited(100, 100)).await?,
        stage.node("b", ANY, &limited(100, 100)).await?,
    ];
    save(&stage, "R-", 1000).await?;
    arrived(&stage, 350, Duration::from_secs(30)).await?;
    for node in &nodes {
        node.rewrite(&stage.file(&node.name, ANY, &limited(10, 100)))?;
    }
    let signalled = now_us(&stage).await?;
    for node in &nodes {
        node.signal(Signal::HUP)?;
    }
    // In the first second after the signal, the nodes may still read their files.
    let next = signalled - signalled.rem_euclid(1_000_000) + 2_000_000;
    tokio::time::timeout(
        Duration::from_secs(20),
        stage
            .bank
            .until(Duration::from_secs(20), |l| l.all().iter().filter(|a| a.at_us >= next).count() >= 100),
    )
    .await?;
    let mut seconds = std::collections::BTreeMap::<i64, usize>::new();
    stage.bank.look(|l| {
        for arrival in l.all().iter().filter(|a| a.at_us >= next) {
            *seconds.entry(arrival.at_us / 1_000_000).or_default() += 1;
        }
    });
    println!(
        "reload: 100/s to 10/s on two nodes under load: from the second second after the signal {} seconds seen, the fullest {} of 10",
        seconds.len(),
        seconds.values().max().copied().unwrap_or(0),
    );
    end(stage, nodes).await
}

async fn now_us(stage: &Stage) -> anyhow::Result<i64> {
    let client = redis::Client::open(stage.redis.admin_url())?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let (seconds, micros): (i64, i64) = redis::cmd("TIME").query_async(&mut connection).await?;
    Ok(seconds * 1_000_000 + micros)
}

async fn kill() -> anyhow::Result<()> {
    let stage = stage().await?;
    let store = Store::open(&stage.database_url(), None, 10)?;
    stage.bank.then("acme", Step::pays().after(Duration::from_millis(500)));
    let channels = unlimited(200);
    let mut doomed = stage.node("doomed", ANY, &channels).await?;
    let names = save(&stage, "R-", 3000).await?;
    arrived(&stage, 200, Duration::from_secs(30)).await?;
    let survivor = stage.node("survivor", ANY, &channels).await?;
    arrived(&stage, 1000, Duration::from_secs(30)).await?;
    let leased = loop {
        let leases = store.leases().await?;
        let leased = leases.iter().find(|(node, _)| node == "doomed").map_or(0, |(_, n)| *n);
        if leased >= 200 {
            break leased;
        }
    };
    doomed.kill_hard()?;
    let killed = now_us(&stage).await?;
    // The node may have settled some refunds between the count and its death, so the leases are counted again.
    let leased_when_dead =
        store.leases().await?.iter().find(|(node, _)| node == "doomed").map_or(0, |(_, n)| *n);
    let began = Instant::now();
    let lapsed = loop {
        let leases = store.leases().await?;
        if leases.iter().all(|(node, _)| node != "doomed") {
            break began.elapsed();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    loop {
        let (ready, sending) = (count(&store, State::Ready).await?, count(&store, State::Sending).await?);
        if ready + sending == 0 {
            break;
        }
        if began.elapsed() > Duration::from_mins(1) {
            bail!("{ready} ready and {sending} sending are left");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let shown = count(&store, State::Review).await? + count(&store, State::Unknown).await?;
    let ledger = stage.bank.ledger();
    let shown_refs: std::collections::HashSet<String> = {
        let mut refs = std::collections::HashSet::new();
        for state in [State::Review, State::Unknown] {
            let filter = Filter { state: Some(state), limit: 1000, ..Filter::of(Names::All) };
            refs.extend(store.list(&filter).await?.into_iter().map(|r| r.refund_ref));
        }
        refs
    };
    let lost = ledger
        .lost(names.iter().map(String::as_str))
        .into_iter()
        .filter(|name| !shown_refs.contains(*name))
        .count();
    let next = ledger.all().iter().map(|a| a.at_us).filter(|at| *at > killed).min().unwrap_or(killed);
    println!(
        "kill: -9 of a node with {leased} in flight: lost {lost}, repeated {}, unknown {shown} of {leased_when_dead} leased when dead, next arrival at the bank after {:.0} ms, its leases unknown after {:.1} s",
        ledger.repeated().len(),
        (next - killed) as f64 / 1000.0,
        lapsed.as_secs_f64(),
    );
    end(stage, vec![survivor]).await
}

async fn count(store: &Store, state: State) -> anyhow::Result<u64> {
    Ok(store.census().await?.iter().filter_map(|channel| channel.counts.get(&state)).sum())
}

async fn flush() -> anyhow::Result<()> {
    let stage = stage().await?;
    let nodes = vec![
        stage.node("a", ANY, &limited(100, 100)).await?,
        stage.node("b", ANY, &limited(100, 100)).await?,
    ];
    let names = save(&stage, "R-", 2300).await?;
    arrived(&stage, 50, Duration::from_secs(10)).await?;
    let client = redis::Client::open(stage.redis.admin_url())?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    for _ in 0..20 {
        redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await?;
        tokio::time::sleep(Duration::from_millis(1037)).await; // drifts through the window
    }
    let during = stage.bank.look(|l| l.usage("acme", SECOND, 100)).map_or(0.0, |u| u.share);
    arrived(&stage, 2300, Duration::from_mins(1)).await?;
    let ledger = stage.bank.ledger();
    println!(
        "flush: FLUSHALL every second for 20 s at 100/s: worst aligned second {} of 100, lost {}, repeated {}, share used meanwhile {:.1} %",
        worst(&stage),
        ledger.lost(names.iter().map(String::as_str)).len(),
        ledger.repeated().len(),
        during * 100.0,
    );
    end(stage, nodes).await
}

/// How long one Redis command and one committed row take without refundd: the least that a grant needs. 1,000 times
/// in ms, sorted.
async fn bare(stage: &Stage) -> anyhow::Result<Vec<f64>> {
    let (redis, postgres) = (stage.redis.admin_url(), stage.database_url());
    on_a_thread_of_its_own(async move {
        let mut redis = redis::Client::open(redis)?.get_multiplexed_async_connection().await?;
        let mut postgres = PgConnection::connect(&postgres).await?;
        postgres.execute("create table public.bare (n bigint primary key)").await?;
        let mut waits = Vec::new();
        for n in 0..1000_i64 {
            let began = Instant::now();
            let _: i64 = redis::cmd("INCR").arg("bare").query_async(&mut redis).await?;
            sqlx::query("insert into public.bare values ($1)").bind(n).execute(&mut postgres).await?;
            waits.push(began.elapsed().as_secs_f64() * 1000.0);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        postgres.close().await?;
        waits.sort_unstable_by(f64::total_cmp);
        Ok(waits)
    })
    .await
}

/// Runs `work` on its own thread, as another service would run.
async fn on_a_thread_of_its_own<T: Send + 'static>(
    work: impl Future<Output = anyhow::Result<T>> + Send + 'static,
) -> anyhow::Result<T> {
    tokio::task::spawn_blocking(|| {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
    })
    .await?
}

/// Measures grants of permits to another service, one after the other, while two nodes send as fast as they may.
async fn acquire() -> anyhow::Result<()> {
    let only = std::env::var("CASE").unwrap_or_default();
    let cases = [("paced", 1000), ("fixed_window", 100), ("fixed_window", 1000)];
    for (algorithm, rate) in cases.into_iter().filter(|(algorithm, _)| algorithm.contains(&only)) {
        let stage = stage().await?;
        let channels = limited(rate, 64)
            .replace("[limit.acme]", &format!("[limit.acme]\nalgorithm = \"{algorithm}\""))
            + "[limit.outside]\npermits = 100000\nper = \"1s\"\n";
        let nodes = vec![stage.node("a", ANY, &channels).await?, stage.node("b", ANY, &channels).await?];
        save(&stage, "R-", 30_000).await?;
        arrived(&stage, rate as usize, Duration::from_secs(10)).await?;
        let bare = bare(&stage).await?;
        println!(
            "acquire: the least it takes, one question to Redis and one row committed by Postgres, asked directly beside the same load: p50 {:.1} ms, p99 {:.1} ms, worst {:.1} ms",
            bare[500], bare[990], bare[999],
        );
        for limit in ["outside", "acme"] {
            let (waits, granted) = ask(nodes[0].address, limit).await?;
            println!(
                "acquire: beside two nodes that send {:.0}/s, {algorithm}: p50 {:.1} ms, p99 {:.1} ms, worst {:.1} ms of 1000 on limit `{limit}`, {granted} granted",
                stage.bank.look(|l| l.rate("acme")).unwrap_or_default(),
                waits[500],
                waits[990],
                waits[999],
            );
        }
        end(stage, nodes).await?;
    }
    Ok(())
}

/// Requests one permit a thousand times, after a hundred requests to warm up. Returns the time of each in ms, sorted,
/// and how many were granted.
async fn ask(node: SocketAddr, limit: &'static str) -> anyhow::Result<(Vec<f64>, u32)> {
    let asking = async move {
        let caller = Caller::of(node);
        let (mut waits, mut granted) = (Vec::new(), 0);
        for nth in 0..1100 {
            let started = Instant::now();
            let (status, _) = caller.post(&format!("/v1/limits/{limit}/acquire"), "{}").await?;
            if nth >= 100 {
                granted += u32::from(status == 200);
                waits.push(started.elapsed().as_secs_f64() * 1000.0);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        waits.sort_unstable_by(f64::total_cmp);
        Ok((waits, granted))
    };
    on_a_thread_of_its_own(asking).await
}

//! The torture run: everything fails at random under full load. Then all faults are healed, and the bank's ledger is
//! compared with the rows.
//!
//! `SECONDS=600 SEED=7 cargo bench --bench torture` runs four nodes. Twenty-three channels cover every policy, every
//! kind of limit, and no limit. Producers save refunds by SQL, over HTTP and by import, and a test caller shares the limits.
//! `RATE=3000` saves so many more refunds a second for the channels without a limit, and `CALM=5` makes a fifth of the faults.
//!
//! Hands, each at its own pace, break things: they kill and stop nodes, lose and split Redis and set its clock, and
//! restart, demote and fail over Postgres and set its clock. They make the bank hang, fail and give wrong answers, to sends and to inquiries. They
//! spoil the links, change the limits, pause channels for good, and move channels to a second bank and back.
//!
//! The seed decides the faults and their lengths. The machine decides which faults coincide. The run exits with 1 on
//! any violation, and then keeps the logs, the faults, the arrivals and the rows. `TORTURE_KEEP=folder` always keeps
//! them.

mod channels;
mod clock;
mod hands;
mod importer;
mod limits;
mod page;
mod paused;
mod people;
mod plan;
mod producer;
mod records;
mod stalls;
mod test_caller;
mod verdict;
mod world;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plan::Plan;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use stalls::Stalls;
use tokio_util::sync::CancellationToken;
use verdict::Rows;
use world::{NODES, World};

/// How long the nodes run on after the last refund has come to an end, so that late repeats reach the bank and are judged.
/// Longer than a lease of 8 s, and than the 10 s before a first inquiry.
const WATCH: Duration = Duration::from_secs(15);

/// Both ends of each connection to the banks and through the links are files of this process. A long flood once needed more than
/// 20,000. Only root may raise the hard limit.
fn raise_file_limit() {
    const ENOUGH: u64 = 1 << 18;
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: Some(ENOUGH), maximum: limit.maximum.map(|most| most.max(ENOUGH)) };
    let _ = setrlimit(Resource::Nofile, raised)
        .or_else(|_| setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }));
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let plan = Plan::read()?;
    println!("seed {}, {} s: {}", plan.seed, plan.seconds.as_secs(), plan.again());
    raise_file_limit();
    let world = Arc::new(World::begin(&plan).await?);
    // A request that waits on its way for a processor would be late, whatever its node did.
    let first = playground::priority::go_first(&["pretend-bank", "forward"]);
    println!("{first} threads of the banks and the ways go before all other processes");
    let enough = CancellationToken::new();
    let by_sql = tokio::spawn(producer::by_sql(Arc::clone(&world), plan.dice(20), enough.clone()));
    let by_http = tokio::spawn(producer::by_http(Arc::clone(&world), plan.dice(21), enough.clone()));
    let flood = tokio::spawn(producer::flood(Arc::clone(&world), plan.dice(24), plan.rate, enough.clone()));
    let imports = tokio::spawn(importer::by_import(Arc::clone(&world), plan.dice(25), enough.clone()));
    let visit = |limits, nth| {
        tokio::spawn(test_caller::visit(Arc::clone(&world), limits, plan.dice(nth), enough.clone()))
    };
    let (test_caller, slow_test_caller) =
        (visit(test_caller::LIMITS, 22), visit(test_caller::SLOW_LIMITS, 23));
    tokio::time::sleep(Duration::from_secs(3)).await;

    let stalls = Stalls::default();
    tokio::spawn(stalls.clone().watch());
    let began = Instant::now();
    let calm = CancellationToken::new();
    let mut hands = hands::loose(&world, &plan, &calm);
    while began.elapsed() < plan.seconds {
        tokio::select! {
            ended = hands.join_next() => if let Some(ended) = ended {
                ended??;
            },
            () = tokio::time::sleep(Duration::from_secs(10).min(plan.seconds)) => {
                let arrivals: usize = world.look(|ledger| ledger.all().len()).iter().sum();
                println!("{:>5} s  {:>5} faults  {arrivals:>7} requests", began.elapsed().as_secs(), world.faults().len());
            }
        }
    }
    calm.cancel();
    while let Some(ended) = hands.join_next().await {
        ended??;
    }
    enough.cancel();
    let mut acknowledged = by_sql.await??;
    let (http, imported) = (by_http.await??, imports.await??);
    acknowledged.offered.extend(flood.await??);
    acknowledged.permits = test_caller.await?? + slow_test_caller.await??;
    acknowledged.offered.extend(http.offered);
    acknowledged.offered.extend(imported.offered);
    acknowledged.cancelled.extend(http.cancelled);
    acknowledged.to_cancel.extend(http.to_cancel);
    acknowledged.doubtful += http.doubtful + imported.doubtful;
    world.heal().await?;
    let left = verdict::drain(&world, Duration::from_mins(3)).await?;
    println!("watching the banks for {} s more: nothing may be repeated late", WATCH.as_secs());
    tokio::time::sleep(WATCH).await;
    let stalls = stalls.all();

    let (mut ended_badly, mut logs) = (Vec::new(), Vec::new());
    for (node, name) in NODES.iter().enumerate() {
        let place = world.nodes[node].lock().await;
        logs.extend(place.as_ref().map(|process| (*name, process.log_file().to_owned())));
        drop(place);
        if !world.stop_node(node).await? {
            ended_badly.push(format!("node {name} did not end well"));
        }
    }
    let rows = Rows::read(&world.stage, world.clock()).await?;
    let limits = world.limits.lock().await.clone();
    let (faults, frozen, decisions) = (world.faults(), world.frozen(), world.decisions());
    let ledger = world.ledger();
    let mut verdict = verdict::compare(&limits, &acknowledged, &ledger, &rows, &faults, &frozen, &decisions);
    verdict::shown(&world.shown(), &ledger, &rows, &faults, &mut verdict);
    for what in ended_badly {
        verdict.add("others", what);
    }
    verdict::paused::judge(&world.paused.all(), &ledger, &rows, &frozen, &mut verdict);
    let pauses = verdict::pauses(&ledger, &faults);
    page::print(&plan, began.elapsed(), left, &acknowledged, &rows, &verdict, &pauses);
    page::print_people(&world.replies(), &decisions, &rows);
    page::print_stalls(&stalls);
    let broken = !verdict.violations.is_empty();
    if let Some(folder) = plan.evidence(broken) {
        page::keep(&folder, &logs, &faults, (&frozen, &stalls), &ledger, &world.stage).await?;
        println!("logs, faults, arrivals and rows are in {}", folder.display());
    }
    if let Ok(world) = Arc::try_unwrap(world).map_err(|_| ()) {
        world.redis.stop().await?;
        world.stage.strike().await?;
    }
    Ok(if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

//! The deterministic simulation. A seed chooses each next step of several nodes, a bank, producers and people.
//! The statements run in a real Postgres, the scripts are the real ones, and one simulated clock drives everything.
//!
//! The simulation does not run the loops of the product: `node` mirrors the order of their calls.
//!
//! `stage` has the servers, and `world` the state of one run on them. `properties` checks the state, and `node` and
//! `steps` change it. `run` plays a seed, and `zoo` plays known mistakes.
//!
//! `make sim SEED=7` plays one seed and prints its trace.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bank;
mod clock;
mod game;
mod machine;
mod mistake;
mod node;
mod patch;
mod plan;
mod properties;
mod redis;
mod run;
mod slew;
mod stage;
mod steps;
mod violation;
mod wire;
mod world;
mod zoo;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use game::Game;
use machine::{number, on_a_runtime, workers};
use plan::climate::{self, Climate, USUAL};
use playground::rule::TestAlgorithm;
use run::{Run, play, shrink};
use stage::Stage;

fn report(game: Game, run: &Run) -> String {
    let (seed, climate) = (game.seed, game.climate.name);
    let violation =
        run.violation.as_ref().map_or_else(|| "all properties hold".to_owned(), ToString::to_string);
    let again = if climate == USUAL.name { String::new() } else { format!(" CLIMATE=\"{climate}\"") };
    format!("{}\nseed {seed}: {violation}\nplay it again: make sim SEED={seed}{again}", run.trace.join("\n"))
}

/// How many seeds of each climate the zoo plays without a mistake before it plays the mistakes.
const FAIR: u64 = 50;

/// The totals of seeds that broke no property.
struct Played {
    seeds: u64,
    steps: u64,
    requests: usize,
    inquiries: usize,
    /// Requests of other services.
    others: usize,
}

/// A long search prints a line after this many seeds.
const PROGRESS: u64 = 1_000;

/// Plays seeds until `until`. The error is the shortest trace of the first seed that breaks a property.
fn search(seeds: std::ops::Range<u64>, climate: Climate, until: Option<Instant>) -> Result<Played, String> {
    let next = AtomicU64::new(seeds.start);
    let (steps, requests, inquiries) = (AtomicU64::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let others = AtomicUsize::new(0);
    let broken = std::sync::Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..workers() {
            scope.spawn(|| {
                on_a_runtime(async {
                    let mut stage = Stage::new(None).await;
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        let over = until.is_some_and(|until| Instant::now() >= until);
                        if seed >= seeds.end || over || broken.lock().unwrap().is_some() {
                            return;
                        }
                        let played = seed - seeds.start;
                        if played > 0 && played.is_multiple_of(PROGRESS) {
                            eprintln!("{played} seeds began, no property broken so far");
                        }
                        let game = Game::fair(seed, climate);
                        let run = play(&mut stage, game, None, false).await;
                        steps.fetch_add(u64::from(run.steps), Ordering::Relaxed);
                        requests.fetch_add(run.requests, Ordering::Relaxed);
                        inquiries.fetch_add(run.inquiries, Ordering::Relaxed);
                        others.fetch_add(run.others, Ordering::Relaxed);
                        if run.violation.is_some() {
                            let short = shrink(&mut stage, game, &run).await;
                            *broken.lock().unwrap() = Some(report(game, &short));
                        }
                    }
                });
            });
        }
    });
    if let Some(trace) = broken.into_inner().unwrap() {
        return Err(trace);
    }
    Ok(Played {
        seeds: next.into_inner().min(seeds.end) - seeds.start,
        steps: steps.into_inner(),
        requests: requests.into_inner(),
        inquiries: inquiries.into_inner(),
        others: others.into_inner(),
    })
}

#[test]
fn no_seed_breaks_a_property() {
    let climate = std::env::var("CLIMATE").map_or(USUAL, |name| climate::named(&name));
    if let Some(seed) = number("SEED") {
        return on_a_runtime(async {
            let mut stage = Stage::new(None).await;
            let game = Game::fair(seed, climate);
            let run = play(&mut stage, game, None, true).await;
            println!("{}", report(game, &run));
            assert!(run.violation.is_none());
        });
    }
    let began = Instant::now();
    let first = number("FIRST").unwrap_or(1);
    let until = number("SECONDS").map(|seconds| began + Duration::from_secs(seconds));
    let seeds = number("SEEDS").unwrap_or(if until.is_some() { u64::MAX / 2 } else { 200 });
    match search(first..first + seeds, climate, until) {
        Ok(Played { seeds, steps, requests, inquiries, others }) => {
            let took = began.elapsed().as_secs_f64();
            println!(
                "played {seeds} seeds from {first} in {took:.1} s, {:.0} a minute: {steps} steps, {requests} requests, {inquiries} inquiries, {others} requests of other services; 0 violations; next FIRST={}",
                seeds as f64 / took * 60.0,
                first + seeds
            );
        }
        Err(trace) => panic!("{trace}"),
    }
}

/// Seed 650 found this defect. After a step of the clock, long windows are read again from the ledger, whose times
/// are those of the old clock.
#[test]
fn what_was_spent_before_redis_was_set_forward_does_not_look_older() {
    use refundd::bucket::{Order, SimulatedServer, Take};
    use refundd::limiter::{LedgerCount, SpentGroup};
    for algorithm in TestAlgorithm::ALL.into_iter().filter(|one| *one != TestAlgorithm::FixedWindow) {
        let burst = if algorithm.has_burst() { "burst = 1" } else { "" };
        let algorithm = algorithm.name();
        let file = plan::read(&format!(
            "[limit.l]\nalgorithm = \"{algorithm}\"\npermits = 1\nper = \"12s\"\nlateness = \"100ms\"\nahead = \"0ms\"\n{burst}\n[channel.c0]\nendpoint = \"http://127.0.0.1:9/\"\nlimits = [\"l\"]\n"
        ));
        let (channel, limit) = (&file[0], &file[0].limits[0]);
        let clock = clock::Clock::new();
        let redis = std::sync::Arc::new(redis::Redis::new(&clock));
        let link: std::sync::Arc<dyn SimulatedServer> =
            std::sync::Arc::new(redis::Link::new(&redis, false, 0));
        let bucket = refundd::bucket::Bucket::simulated(link, world::node::TOLERANCE).unwrap();
        on_a_runtime(async {
            let ids: Vec<_> = (1..=9).map(refundd::refund::RefundId).collect();
            bucket.fill(&channel.name, &ids, refundd::bucket::End::Back, 100).await.unwrap();
            let order = Order { want: 1, low_water: 0, lead_time: Duration::ZERO, until: None };
            let take = || bucket.take(channel, order);
            assert!(matches!(take().await.unwrap(), Take::Forgot(_)));
            bucket.restore(limit, &LedgerCount { generation: 1, ..LedgerCount::default() }).await.unwrap();
            let spent = loop {
                match take().await.unwrap() {
                    Take::Granted { taken, .. } => break taken[0].1.numbers[0].window_start_us,
                    _ => clock.pass(50_000),
                }
            };
            let granted = clock.now();
            redis.step_clock(3_000_000);
            clock.pass(1_000_000);
            assert!(matches!(take().await.unwrap(), Take::ClockStepped { .. }), "{algorithm}");
            clock.pass(1_000);
            bucket.forget(limit, i64::MAX).await.unwrap();
            let count = LedgerCount {
                generation: 1,
                history: vec![SpentGroup { at_us: spent, count: 1, over_us: None }],
                ..LedgerCount::default()
            };
            assert!(matches!(take().await.unwrap(), Take::Forgot(_)));
            bucket.restore(limit, &count).await.unwrap();
            while clock.now() < granted + 11_900_000 {
                if let Take::Granted { taken, .. } = take().await.unwrap() {
                    panic!("{algorithm}: {:?} {} us after the first", taken[0], clock.now() - granted);
                }
                clock.pass(100_000);
            }
        });
    }
}

/// Seed 28332 found this defect. The node that knew the clock slept, and a node that had just started took permits.
#[test]
fn a_clock_that_is_set_while_a_node_sleeps_shows_at_its_next_heartbeat() {
    use refundd::bucket::{Bucket, End, Order, SimulatedServer, Take};
    let file = plan::read(
        "[limit.l]\nalgorithm = \"sliding_window\"\npermits = 2\nper = \"12s\"\nlateness = \"100ms\"\nahead = \"0ms\"\n[channel.c0]\nendpoint = \"http://127.0.0.1:9/\"\nlimits = [\"l\"]\n",
    );
    let channel = &file[0];
    let clock = clock::Clock::new();
    let redis = std::sync::Arc::new(redis::Redis::new(&clock));
    let node = || {
        let link: std::sync::Arc<dyn SimulatedServer> =
            std::sync::Arc::new(redis::Link::new(&redis, false, 0));
        Bucket::simulated(link, world::node::TOLERANCE).unwrap()
    };
    on_a_runtime(async {
        let ids: Vec<_> = (1..=9).map(refundd::refund::RefundId).collect();
        let order = Order { want: 2, low_water: 0, lead_time: Duration::ZERO, until: None };
        let sleeper = node();
        sleeper.fill(&channel.name, &ids, End::Back, 100).await.unwrap();
        assert!(matches!(sleeper.take(channel, order).await.unwrap(), Take::Forgot(_)));
        let none = refundd::limiter::LedgerCount { generation: 1, ..Default::default() };
        sleeper.restore(&channel.limits[0], &none).await.unwrap();
        while !matches!(sleeper.take(channel, order).await.unwrap(), Take::Granted { .. }) {
            clock.pass(50_000);
        }
        let granted = clock.now();
        clock.pass(1_000_000);
        redis.step_clock(20_000_000);
        sleeper.watch_clocks().await.unwrap();
        let new = node();
        while clock.now() < granted + 11_900_000 {
            if let Take::Granted { taken, .. } = new.take(channel, order).await.unwrap() {
                panic!("{:?} {} us after the first two", taken[0], clock.now() - granted);
            }
            clock.pass(100_000);
        }
    });
}

#[test]
fn a_seed_is_played_the_same_way_every_time() {
    on_a_runtime(async {
        let (mut one, mut other) = (Stage::new(None).await, Stage::new(None).await);
        for seed in 1..=10 {
            // An earlier run on the same stage must not matter.
            play(&mut other, Game::fair(seed + 1000, USUAL), None, false).await;
            let first = play(&mut one, Game::fair(seed, USUAL), None, true).await;
            let second = play(&mut other, Game::fair(seed, USUAL), None, true).await;
            assert!(!first.trace.is_empty());
            assert_eq!(first.trace, second.trace, "seed {seed}");
        }
    });
}

#[test]
fn every_text_that_a_mistake_replaces_is_there() {
    assert_eq!(zoo::rotten(), Vec::<String>::new());
}

#[test]
fn mistakes_that_show_soon_are_caught_at_once() {
    if let Err(wrong) = zoo::let_loose(200, 3, true) {
        panic!("{wrong}");
    }
}

#[test]
#[ignore = "takes some minutes; `make zoo`"]
fn every_known_mistake_is_caught() {
    let fair = number("FAIR").unwrap_or(FAIR);
    for climate in climate::all() {
        match search(1..fair + 1, *climate, None) {
            Ok(Played { seeds, requests, inquiries, .. }) => println!(
                "{:<26} {seeds} seeds with nothing wrong, {requests} requests, {inquiries} inquiries, all properties hold",
                climate.name
            ),
            Err(trace) => panic!("nothing is wrong, and yet in the climate \"{}\":\n{trace}", climate.name),
        }
    }
    let most = number("SEEDS").unwrap_or(2500);
    if let Err(wrong) = zoo::let_loose(most, number("HARMLESS").unwrap_or(200), false) {
        panic!("{wrong}");
    }
}

//! Steps Redis's clock forward and back, by little and by much, while the bank's clock does not change.

use std::time::{Duration, Instant};

use jiff::SignedDuration;
use playground::RedisOptions;

use crate::load::{Load, alone, now_us, pause};
use crate::plan::Plan;
use crate::report::{Fault, Part, Subject};

/// Within the nodes' `clock_tolerance` of 5 s, with some room for the length of a window.
const FARTHEST: SignedDuration = SignedDuration::from_millis(4_200);
const FAR_OFF: SignedDuration = SignedDuration::from_secs(60);

pub async fn run(plan: &Plan) -> anyhow::Result<Part> {
    let names = plan.names();
    let load =
        Load::start(&names, &plan.file(), &RedisOptions { clock: true, ..RedisOptions::default() }).await?;
    let redis = load.redis.primary();
    let mut dice = plan.dice();
    let (began, mut faults, mut stalled) = (Instant::now(), Vec::new(), false);
    while plan.goes_on(began, faults.len()) {
        if faults.len() % 20 == 10 {
            let off = if dice.bool() { FAR_OFF } else { -FAR_OFF };
            let at_us = now_us();
            redis.step_clock(off).await?;
            // No node may send: by Postgres's clock, Redis's clock is wrong by more than is tolerated.
            faults.push(Fault { halts: true, ..Fault::now(name_of(off), at_us) });
            pause(&mut dice, 500, 1_500).await;
            let at_us = now_us();
            redis.step_clock(-off).await?;
            faults.push(Fault::now(name_of(-off), at_us));
        } else {
            let by = some_step(&mut dice, redis.ahead());
            let at_us = now_us();
            redis.step_clock(by).await?;
            faults.push(Fault::now(name_of(by), at_us));
        }
        if !load.is_mended(&alone(&names), now_us()).await {
            stalled = true;
            break;
        }
        pause(&mut dice, 50, 500).await;
    }
    let took = began.elapsed();
    let outcome = load.finish("clocks", plan.keep.as_deref()).await?;
    let subjects: Vec<Subject> = plan.algorithms.iter().map(|a| Subject::by_its_own_clock(*a)).collect();
    Ok(Part::judge("clocks", plan, &faults, took, &subjects, &outcome)?.and_stalled(stalled))
}

/// A step of 10 ms to 4 s, each order of magnitude equally likely. The clock stays within the tolerance.
fn some_step(dice: &mut fastrand::Rng, ahead: SignedDuration) -> SignedDuration {
    let spread = 10.0 * 400_f64.powf(dice.f64());
    let size = SignedDuration::try_from(Duration::from_secs_f64(spread / 1000.0)).unwrap_or(FARTHEST);
    let by = if dice.bool() { size } else { -size };
    if (ahead + by).abs() > FARTHEST { -by } else { by }
}

fn name_of(by: SignedDuration) -> &'static str {
    match (by.is_positive(), by.abs().as_millis()) {
        (true, ..=200) => "forward to 200 ms",
        (true, ..=5_000) => "forward to 4 s",
        (true, _) => "forward 60 s",
        (false, ..=200) => "back to 200 ms",
        (false, ..=5_000) => "back to 4 s",
        (false, _) => "back 60 s",
    }
}

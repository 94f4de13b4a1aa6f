//! Lets Redis lose data: it is flushed, killed, restored with old memory, replaced by a replica, or split in two.

use std::time::Instant;

use playground::RedisOptions;

use crate::load::{Load, alone, now_us, pause};
use crate::plan::{Plan, Rounds};
use crate::report::{Fault, Part, Subject};

const KINDS: [&str; 5] = ["flush", "kill", "old snapshot", "promotion", "split"];

pub async fn run(plan: &Plan) -> anyhow::Result<Part> {
    let names = plan.names();
    let load = Load::start(&names, &plan.file(), &RedisOptions::default()).await?;
    let mut dice = plan.dice();
    let (began, mut faults, mut stalled) = (Instant::now(), Vec::new(), false);
    let mut rounds = Rounds::of(&KINDS);
    while plan.goes_on(began, faults.len()) {
        let kind = rounds.kind(&mut dice);
        let at_us = lose(&load, kind, &mut dice).await?;
        faults.push(Fault::now(kind, at_us));
        if !load.is_mended(&alone(&names), now_us()).await {
            stalled = true;
            break;
        }
        pause(&mut dice, 100, 700).await;
    }
    let took = began.elapsed();
    let outcome = load.finish("losses", plan.keep.as_deref()).await?;
    let subjects: Vec<Subject> = plan.algorithms.iter().map(|a| Subject::always(*a)).collect();
    Ok(Part::judge("losses", plan, &faults, took, &subjects, &outcome)?.and_stalled(stalled))
}

/// Makes one loss, and returns when it happened, in microseconds since 1970.
async fn lose(load: &Load, kind: &str, dice: &mut fastrand::Rng) -> anyhow::Result<i64> {
    let redis = &load.redis;
    let at_us = match kind {
        "flush" => {
            let at_us = now_us();
            redis.primary().flush().await?;
            at_us
        }
        "kill" => {
            let at_us = now_us();
            redis.primary().kill_hard().await?;
            pause(dice, 0, 200).await;
            redis.primary().restart(None).await?;
            at_us
        }
        "old snapshot" => {
            let old = redis.primary().snapshot().await?;
            pause(dice, 50, 900).await;
            let at_us = now_us();
            redis.primary().restart(Some(&old)).await?;
            at_us
        }
        "promotion" => {
            redis.attach().await?;
            pause(dice, 0, 200).await;
            redis.sever().await?;
            pause(dice, 10, 500).await; // the replica falls behind by this time
            let at_us = now_us();
            redis.promote().await?;
            at_us
        }
        _ => {
            redis.attach().await?;
            pause(dice, 0, 300).await;
            let at_us = now_us();
            let moved: &[usize] = if dice.bool() { &[0] } else { &[1, 2] };
            redis.split(moved).await?;
            pause(dice, 50, 1_500).await; // both servers grant permits for this time
            redis.heal().await?;
            at_us
        }
    };
    Ok(at_us)
}

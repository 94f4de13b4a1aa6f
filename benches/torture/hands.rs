//! The hands that break things, each at its own pace and all at once. There is one for the nodes, one for Redis and its
//! clock, one for what Redis says, one for Postgres and one for its clock, four for the bank, one for the doors, one for the files, and one that moves channels. Some
//! hands are people: one resumes channels, one pauses channels for good, one makes inquiries due early, two decide about refunds in review, and one moves refunds to other channels.
//!
//! A hand heals its fault before it makes the next one, and waits between two faults.

pub mod bank;
mod pauses;
mod postgres;
mod redis;

use std::sync::Arc;
use std::time::Duration;

use playground::Weather;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::channels::CHANNELS;
use crate::limits::SETTLES;
use crate::people;
use crate::plan::Plan;
use crate::world::{NODES, World, now_us};

async fn pause(dice: &mut fastrand::Rng, least_ms: u64, most_ms: u64) {
    tokio::time::sleep(Duration::from_millis(dice.u64(least_ms..=most_ms))).await;
}

/// Starts all hands. They end after `enough` is cancelled.
pub fn loose(world: &Arc<World>, plan: &Plan, enough: &CancellationToken) -> JoinSet<anyhow::Result<()>> {
    let mut hands = JoinSet::new();
    let calm = plan.calm;
    macro_rules! hand {
        ($nth:expr, $least:expr, $most:expr, $work:path) => {
            let (world, enough, mut dice) = (Arc::clone(world), enough.clone(), plan.dice($nth));
            hands.spawn(async move {
                while !enough.is_cancelled() {
                    pause(&mut dice, $least * calm, $most * calm).await;
                    $work(&world, &mut dice).await?;
                }
                Ok(())
            });
        };
    }
    hand!(1, 500, 4_000, nodes);
    hand!(2, 200, 2_500, redis::play);
    hand!(3, 1_000, 6_000, postgres::play);
    hand!(4, 50, 600, bank::play);
    hand!(9, 50, 600, bank::play);
    hand!(15, 50, 600, bank::play);
    hand!(16, 50, 600, bank::play);
    hand!(5, 300, 3_000, ways);
    hand!(6, 1_000, 5_000, files);
    hand!(12, 1_000, 8_000, moves);
    hand!(13, 100, 1_000, redis::lies);
    hand!(7, 1_000, 1_000, resume);
    hand!(8, 500, 2_500, insist);
    hand!(10, 200, 2_000, people::decide);
    hand!(11, 200, 2_000, people::decide);
    hand!(14, 200, 2_000, people::move_refunds);
    if plan.sets_postgres_clock() {
        hand!(17, 500, 2_000, postgres::set_clock);
    }
    hand!(18, 2_000, 6_000, pauses::pause_or_resume);
    hands
}

/// Kills a node, freezes it, or ends it in order, and starts it again.
async fn nodes(world: &World, dice: &mut fastrand::Rng) -> anyhow::Result<()> {
    let _settled = world.settled.read().await;
    let (node, from_us) = (dice.usize(..NODES.len()), now_us());
    let kind = dice.u8(..14);
    if kind >= 10 {
        // 0.2 s to 8 s, each order of magnitude equally likely. The longest is as long as a lease.
        let span = Duration::from_secs_f64(0.2 * 40_f64.powf(dice.f64()));
        if world.freeze_node(node, span).await? {
            world.record_fault("node stopped in the middle", from_us);
        }
    } else if kind < 7 {
        world.kill_node(node).await?;
        pause(dice, 0, 3_000).await;
        world.start_node(node).await?;
        world.record_fault("node killed", from_us);
    } else {
        if !world.stop_node(node).await? {
            world.record_fault("VIOLATION node did not end well", from_us);
        }
        world.start_node(node).await?;
        world.record_fault("node ended and started", from_us);
    }
    Ok(())
}

/// Spoils the door of one node, or of all nodes, to Postgres, to Redis or to the bank.
async fn ways(world: &World, dice: &mut fastrand::Rng) -> anyhow::Result<()> {
    let from_us = now_us();
    let (way, weather) = (dice.u8(..3), dice.u8(..6));
    let slow = Duration::from_millis(dice.u64(20..2_500));
    let (how, weather) = match weather {
        0 => ("slow", Weather::Slow(slow)),
        1 => ("deaf", Weather::Deaf),
        2 => ("closed", Weather::Closed),
        3 => ("resets", Weather::Resets),
        4 => ("rubbish", Weather::Garbage),
        _ => ("cuts", Weather::Cuts(dice.usize(..2_000))),
    };
    // All nodes and some channels share one door to a bank.
    let nodes = if dice.u8(..4) == 0 {
        0..NODES.len()
    } else {
        let node = dice.usize(..NODES.len());
        node..node + 1
    };
    let set = |weather: Weather| {
        for node in nodes.clone() {
            match way {
                0 => world.postgres_doors[node].set(weather),
                1 => world.redis.door(node).set(weather),
                _ => {
                    world.bank_doors[node].set(weather);
                    world.far_doors[node].set(weather);
                    world.second_doors[node].set(weather);
                }
            }
        }
    };
    set(weather);
    pause(dice, 100, 3_000).await;
    set(Weather::Fair);
    world.record_fault(
        format!("way to {} {how}", ["Postgres", "Redis", "the bank"][usize::from(way)]),
        from_us,
    );
    Ok(())
}

/// Changes a limit in the files of all nodes, one after the other.
async fn files(world: &World, dice: &mut fastrand::Rng) -> anyhow::Result<()> {
    let mut limits = world.limits.lock().await;
    let from_us = now_us();
    let nth = limits.change(dice);
    world.reload(&limits.file(&world.authority.file())).await?;
    limits.note(nth, from_us, now_us() + i64::try_from(SETTLES.as_micros())?);
    world.record_fault("files changed", from_us);
    Ok(())
}

/// Moves a channel to the other bank or back, in the files of all nodes.
async fn moves(world: &World, dice: &mut fastrand::Rng) -> anyhow::Result<()> {
    let mut limits = world.limits.lock().await;
    let from_us = now_us();
    if limits.relocate(dice, from_us).is_some() {
        world.reload(&limits.file(&world.authority.file())).await?;
        world.record_fault("channel moved to another bank", from_us);
    }
    Ok(())
}

/// Resumes all channels, as a person does when a channel suspended itself. Postgres may be down.
async fn resume(world: &World, _: &mut fastrand::Rng) -> anyhow::Result<()> {
    for channel in CHANNELS {
        world
            .store
            .release(channel.name, refundd::store::SuspendedBy::Credentials, "torture", None)
            .await
            .ok();
    }
    Ok(())
}

/// Makes the inquiries of one channel due at once, as an impatient person does. Some come before the grace is over.
async fn insist(world: &World, dice: &mut fastrand::Rng) -> anyhow::Result<()> {
    let channels: Vec<&str> = CHANNELS.iter().filter(|c| c.inquiry.is_some()).map(|c| c.name).collect();
    world.ask_now(&[channels[dice.usize(..channels.len())]]).await.ok();
    Ok(())
}

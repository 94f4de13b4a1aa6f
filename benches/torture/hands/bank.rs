//! The hand at the bank: spoils the answers to the next sends or the next inquiries of one channel.
//!
//! It never breaks a promise of the bank. Where "not found" is final, the bank executes a request before the grace is
//! over or never. Where the bank remembers keys, it never executes a key twice.

use std::time::Duration;

use hyper::header::RETRY_AFTER;
use playground::PretendBank;
use playground::bank::Step;

use super::pause;
use crate::channels::{AWAY, CHANNELS, Channel, OnUnknown};
use crate::world::{World, now_us};

/// An answer with an amount that no refund has.
const OTHER_AMOUNT: &str = r#"{"status":"succeeded","amount_minor":99999999}"#;

/// Spoils some of the next requests of one channel, or all of them for a while.
pub async fn play(world: &World, dice: &mut fastrand::Rng) -> anyhow::Result<()> {
    // Channels with a policy other than `review` are chosen as often as all others together.
    let shown = dice.bool();
    let of_kind: Vec<&Channel> =
        CHANNELS.iter().filter(|channel| (channel.on_unknown == OnUnknown::Review) == shown).collect();
    let channel = of_kind[dice.usize(..of_kind.len())];
    if channel.inquiry.is_some() && dice.u8(..3) == 0 {
        spoil_inquiries(world, dice, channel).await
    } else {
        spoil_sends(world, dice, channel).await
    }
}

/// A bank of a channel, and the channel's name at that bank. A channel that moves has two banks.
fn counter<'a>(world: &'a World, dice: &mut fastrand::Rng, channel: &Channel) -> (&'a PretendBank, String) {
    if channel.moves && dice.bool() {
        return (&world.second, format!("{}{AWAY}", channel.name));
    }
    (&world.stage.bank, channel.name.to_owned())
}

async fn spoil_sends(world: &World, dice: &mut fastrand::Rng, channel: &Channel) -> anyhow::Result<()> {
    let ((bank, name), from_us) = (counter(world, dice, channel), now_us());
    let name = name.as_str();
    let (kind, step) = send(dice, channel);
    if dice.u8(..4) == 0 {
        bank.then(name, step);
        pause(dice, 200, 2_500).await;
        bank.then(name, Step::pays());
    } else if dice.u8(..20) == 0 {
        bank.next(name, [Step::unauthorised()]);
        pause(dice, 200, 1_500).await;
        world.record_fault("bank 401, then resumed", from_us);
        return Ok(());
    } else {
        let some = dice.usize(1..20);
        bank.next(name, std::iter::repeat_n(step, some));
        heal(bank, name, dice).await;
    }
    world.record_fault(kind, from_us);
    Ok(())
}

/// Ends what is left of a fault after a while. Steps that no request has used would add up while a channel's breaker sends one
/// refund a second, and the bank would never be well again.
async fn heal(bank: &PretendBank, name: &str, dice: &mut fastrand::Rng) {
    pause(dice, 100, 1_500).await;
    bank.clear(name);
}

fn send(dice: &mut fastrand::Rng, channel: &Channel) -> (&'static str, Step) {
    let slow = Duration::from_millis(dice.u64(300..3_000));
    let span = |dice: &mut fastrand::Rng, most: Duration| most.mul_f64(dice.f64());
    match dice.u8(..18) {
        0 => ("bank hangs", Step::silence()),
        1 => ("bank hangs after executing", Step::silence().and_pays()),
        2 => ("bank resets", Step::resets()),
        3 => ("bank resets after executing", Step::resets().and_pays()),
        4 => ("bank cuts its answer after executing", Step::pays().cut_after(dice.usize(..120))),
        5 => ("bank 500 after executing", Step::pays_but_says_500()),
        6 => ("bank 500 before executing", Step::answers(500, r#"{"error":"internal"}"#)),
        7 => ("bank 429", Step::too_many(1)),
        8 => ("bank 503 with Retry-After", Step::answers(503, "{}").with_header(RETRY_AFTER, 1.into())),
        9 => ("bank rubbish", Step::garbage()),
        10 => ("bank rubbish after executing", Step::garbage().and_pays()),
        11 => ("bank slow", Step::pays().after(slow)),
        12 => ("bank rejects", Step::rejects()),
        13 => ("bank resets after rejecting", Step::resets().and_refuses()),
        14 => ("bank 504, executes later", Step::answers(504, "").paying_after(span(dice, channel.latest()))),
        15 => ("bank hangs, executes later", Step::silence().paying_after(span(dice, channel.latest()))),
        16 => ("bank speaks of another amount", Step::answers(200, OTHER_AMOUNT).and_pays()),
        // Without inquiries the refund stays pending for ever.
        _ if channel.inquiry.is_none() => ("bank will tell later", Step::pending()),
        _ => {
            let pending = Step::pending().decided_after(span(dice, Duration::from_secs(15)));
            ("bank will tell later", if dice.bool() { pending } else { pending.and_refuses() })
        }
    }
}

async fn spoil_inquiries(world: &World, dice: &mut fastrand::Rng, channel: &Channel) -> anyhow::Result<()> {
    let ((bank, name), from_us) = (counter(world, dice, channel), now_us());
    let name = name.as_str();
    let rejected = || Step::answers(200, r#"{"status":"rejected"}"#);
    let (kind, step) = match dice.u8(..14) {
        0 => ("bank asked: hangs", Step::silence()),
        1 => ("bank asked: resets", Step::resets()),
        2 => ("bank asked: rubbish", Step::garbage()),
        // The body has 21 bytes, and the head has more.
        3 => ("bank asked: cuts its answer", rejected().cut_after(dice.usize(..100))),
        4 => ("bank asked: a page", Step::answers(200, "<html>log in</html>")),
        5 => ("bank asked: a word nobody knows", Step::answers(200, r#"{"status":"perhaps"}"#)),
        6 => ("bank asked: 500", Step::answers(500, r#"{"status":"rejected"}"#)),
        7 => ("bank asked: 429", Step::too_many(1)),
        8 => {
            ("bank asked: 503 with Retry-After", Step::answers(503, "{}").with_header(RETRY_AFTER, 1.into()))
        }
        9 => ("bank asked: another amount", Step::answers(200, OTHER_AMOUNT)),
        10 if channel.final_after().is_none() => {
            ("bank asked: does not find what it has", Step::answers(404, r#"{"error":"not found"}"#))
        }
        10 => ("bank asked: 401, then resumed", Step::unauthorised()),
        // Also where "not found" is final: only the bank's own word is.
        11 => ("bank asked: a proxy's 404", Step::proxy_404()),
        12 => ("bank asked: a gateway's 404", Step::gateway_404()),
        _ => (
            "bank asked: slow trouble",
            Step::answers(502, "").after(Duration::from_millis(dice.u64(300..3_000))),
        ),
    };
    if dice.u8(..4) == 0 && step.status != hyper::StatusCode::UNAUTHORIZED {
        bank.then_inquiries(name, Some(step));
        pause(dice, 200, 2_500).await;
        bank.then_inquiries(name, None);
    } else {
        let some = if step.status == hyper::StatusCode::UNAUTHORIZED { 1 } else { dice.usize(1..6) };
        bank.next_inquiries(name, std::iter::repeat_n(step, some));
        heal(bank, name, dice).await;
    }
    world.record_fault(kind, from_us);
    Ok(())
}

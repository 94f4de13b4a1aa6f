//! The steps that may happen next, and how often each is drawn.

use fastrand::Rng;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Some node goes on with something that it has begun.
    GoOn,
    /// Some time passes.
    Pass,
    /// Time passes until something is due.
    Wake,
    Take,
    Chore,
    Claim,
    Send,
    Land,
    Settle,
    TakeBack,
    Feed,
    Fill,
    ReadSuspensions,
    TakeToAsk,
    ChoreToAsk,
    ClaimToAsk,
    Ask,
    ReadReply,
    SettleInquiry,
    PollInquiries,
    Plan,
    Lapse,
    Expire,
    ShowUnknown,
    ShowAccepted,
    FindStranded,
    RunLateClaim,
    Save,
    Cancel,
    Pause,
    Resume,
    Decide,
    Crash,
    Start,
    Reload,
    Move,
    Flush,
    Restart,
    Snapshot,
    Restore,
    Fork,
    Heal,
    SetClock,
    Acquire,
    Spend,
    Takeover,
    Heartbeat,
    SetPostgresClock,
    Retire,
}

/// How often each step is drawn, as a share of the sum of all.
pub const WEIGHTS: &[(Step, u32)] = &[
    (Step::GoOn, 1400),
    (Step::Pass, 200),
    (Step::Wake, 100),
    (Step::Take, 80),
    (Step::Chore, 10),
    (Step::Claim, 10),
    (Step::Send, 10),
    (Step::Land, 10),
    (Step::Settle, 10),
    (Step::TakeBack, 10),
    (Step::Feed, 20),
    (Step::Fill, 10),
    (Step::ReadSuspensions, 12),
    (Step::TakeToAsk, 30),
    (Step::ChoreToAsk, 5),
    (Step::ClaimToAsk, 5),
    (Step::Ask, 5),
    (Step::ReadReply, 5),
    (Step::SettleInquiry, 5),
    (Step::PollInquiries, 20),
    (Step::Plan, 12),
    (Step::Lapse, 20),
    (Step::Expire, 8),
    (Step::ShowUnknown, 16),
    (Step::ShowAccepted, 2),
    (Step::FindStranded, 12),
    (Step::RunLateClaim, 20),
    (Step::Save, 20),
    (Step::Cancel, 14),
    (Step::Pause, 6),
    (Step::Resume, 12),
    (Step::Decide, 40),
    (Step::Crash, 8),
    (Step::Start, 30),
    (Step::Reload, 8),
    (Step::Move, 8),
    (Step::Flush, 16),
    (Step::Restart, 6),
    (Step::Snapshot, 8),
    (Step::Restore, 8),
    (Step::Fork, 12),
    (Step::Heal, 8),
    (Step::SetClock, 24),
    (Step::Acquire, 40),
    (Step::Spend, 10),
    (Step::Takeover, 8),
    (Step::Heartbeat, 20),
    (Step::SetPostgresClock, 12),
    (Step::Retire, 8),
];

/// Draws how often each step is drawn in a run, in thirds of the usual. `inclined` is how often some are drawn in the
/// climate.
pub fn tempers(rng: &mut Rng, people_are_busy: bool, inclined: &[(Step, u32)]) -> Vec<u32> {
    let of = |&(step, _): &(Step, u32)| {
        let often = rng.choice(&[1, 3, 3, 9]).copied();
        match inclined.iter().find(|(other, _)| *other == step) {
            Some(&(_, often)) => often,
            None if step == Step::Decide && people_are_busy => 27,
            None => often.unwrap_or(3),
        }
    };
    WEIGHTS.iter().map(of).collect()
}

/// Draws a step. `often` says how often each is drawn, in thirds of the usual.
pub fn draw(rng: &mut Rng, often: &[u32]) -> Step {
    let weights = || WEIGHTS.iter().zip(often).map(|((step, weight), often)| (*step, weight * often));
    let all = weights().map(|(_, weight)| weight).sum();
    let mut left = rng.u32(0..all);
    for (step, weight) in weights() {
        if left < weight {
            return step;
        }
        left -= weight;
    }
    Step::Pass
}

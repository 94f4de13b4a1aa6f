//! Inquiries, as the bank meets them: what it knows of a refund by then, and what it says.
//!
//! A bank whose "not found" is final may be slow to know of what it was sent, but not slower than `grace`
//! allows for. One whose is not may say so of anything.

use fastrand::Rng;
use refundd::refund::{LimitName, RefundId, State};

use super::{Bank, Moods, Seen, answer, wait};

/// What a whole answer says of its refund, whoever reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    Is(State),
    NotFound,
    Nothing,
    /// It speaks of another refund.
    Mixed,
}

/// One inquiry.
#[derive(Debug, Clone)]
pub struct Question {
    pub refund: RefundId,
    pub node: usize,
    pub process: u32,
    /// The limits that it is to be counted under.
    pub limits: Vec<LimitName>,
    pub sent: i64,
    pub arrives: i64,
    /// When its client has the answer, gave up, or died.
    pub ends: i64,
    pub says: Says,
    pub seen: Seen,
}

/// What one inquiry will come to, in us after it was sent.
pub struct Reply {
    pub way: i64,
    pub ends: i64,
    pub says: Says,
    pub seen: Seen,
}

const TROUBLES: u32 = 13;

impl Moods {
    fn kind_asked(&self, rng: &mut Rng) -> Option<u32> {
        (rng.u8(0..100) < self.asked_trouble).then(|| rng.choice(&self.asked).copied()).flatten()
    }

    pub(super) fn draw_kinds(rng: &mut Rng) -> Vec<u32> {
        (0..rng.u32(1..=4)).map(|_| rng.u32(0..TROUBLES)).collect()
    }
}

impl Reply {
    /// `quick` is the longest way that no limit minds.
    pub fn draw(
        moods: &Moods,
        rng: &mut Rng,
        bank: &Bank,
        (refund, asked): (RefundId, usize),
        amount_minor: i64,
        (now, timeout, quick): (i64, i64, i64),
        is_final: bool,
    ) -> Self {
        let way = rng.i64(0..=quick.clamp(0, 30_000));
        let longest = if rng.u8(0..4) == 0 { timeout * 9 / 10 } else { 60_000 };
        let took = way + rng.i64(500..=longest);
        let reply = |says: Says, seen: Seen| {
            let (says, seen) = if took >= timeout { (Says::Nothing, Seen::TimeOut) } else { (says, seen) };
            Reply { way, ends: took.min(timeout), says, seen }
        };
        let nothing = |seen: Seen| reply(Says::Nothing, seen);
        let truth = bank.knows(refund, asked, now + way, moods.knows_late);
        let amount = if rng.bool() { format!(r#","amount_minor":{amount_minor}"#) } else { String::new() };
        let honest = || match truth {
            Some(state) => {
                let word = match state {
                    State::Succeeded => "succeeded",
                    State::Failed => "rejected",
                    _ => "pending",
                };
                reply(Says::Is(state), answer(200, &format!(r#"{{"status":"{word}"{amount}}}"#)))
            }
            None => reply(Says::NotFound, answer(404, "{}")),
        };
        match moods.kind_asked(rng) {
            Some(0) => nothing(Seen::Cut),
            Some(1) => Reply { ends: timeout, ..nothing(Seen::TimeOut) },
            Some(2) => nothing(answer(*rng.choice(&[500, 502, 408]).unwrap_or(&500), "{}")),
            Some(3) => nothing(answer(500, r#"{"status":"rejected"}"#)),
            Some(4) => nothing(answer(200, "<html>no such page</html>")),
            Some(5) => nothing(answer(200, r#"{"status":"unbekannt"}"#)),
            Some(6) => {
                let other = format!(r#"{{"status":"succeeded","amount_minor":{}}}"#, amount_minor + 1);
                reply(Says::Mixed, answer(200, &other))
            }
            Some(7) => nothing(wait(*rng.choice(&[429, 503]).unwrap_or(&429), rng.u64(0..4))),
            Some(8) => nothing(answer(*rng.choice(&[401, 403]).unwrap_or(&401), "")),
            Some(9) => nothing(answer(*rng.choice(&[307, 410, 400]).unwrap_or(&410), "")),
            Some(10) if !is_final => reply(Says::NotFound, answer(404, "{}")),
            Some(11) => nothing(answer(202, r#"{"status":"succeeded"}"#)),
            // A proxy's own, whatever the bank knows.
            Some(12) => nothing(answer(404, rng.choice(["<html>404 Not Found</html>", ""]).unwrap_or(""))),
            _ => honest(),
        }
    }
}

impl Bank {
    /// How a refund stands with the bank, as it tells; `None` is not found.
    fn knows(&self, refund: RefundId, bank: usize, at: i64, late: bool) -> Option<State> {
        let of = || self.of(refund).filter(|call| call.bank == bank);
        if of().any(|call| call.executes.is_some_and(|paid| paid <= at)) {
            return Some(State::Succeeded);
        }
        // What it never did anything about, and did not accept, it does not know.
        let has = |call: &&super::Call| {
            call.arrives.is_some_and(|there| there <= at) && (call.executes.is_some() || call.is_accepted())
        };
        let first = of().find(has)?;
        if of().any(|call| call.executes.is_some()) {
            return (!late).then_some(State::Accepted);
        }
        // Accepted, and in the end it was not to be.
        Some(if at > first.sent + super::LONGEST_DECISION { State::Failed } else { State::Accepted })
    }
}

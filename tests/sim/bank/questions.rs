//! Inquiries at the bank: what the bank knows of a refund when an inquiry arrives, and what it answers.
//!
//! A bank whose "not found" is final may learn late of a request, but not later than `grace` allows. A bank whose
//! "not found" is not final may say so of any refund.

use fastrand::Rng;
use refundd::refund::{LimitName, RefundId, State};

use super::{Bank, Moods, Seen, answer, wait};

/// What a whole answer says about its refund.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    Is(State),
    NotFound,
    Nothing,
    /// It repeats another amount: it is about another refund.
    Mixed,
}

/// One inquiry.
#[derive(Debug, Clone)]
pub struct Question {
    pub refund: RefundId,
    pub node: usize,
    pub process: u32,
    /// The limits that count it.
    pub limits: Vec<LimitName>,
    pub sent: i64,
    pub arrives: i64,
    /// When its client has the answer, gave up, or died.
    pub ends: i64,
    pub says: Says,
    pub seen: Seen,
}

/// The course of one inquiry, in us after it was sent.
pub struct Reply {
    pub way: i64,
    pub ends: i64,
    pub says: Says,
    pub seen: Seen,
}

const TROUBLES: u32 = 13;

impl Moods {
    fn inquiry_kind(&self, rng: &mut Rng) -> Option<u32> {
        (rng.u8(0..100) < self.inquiry_trouble).then(|| rng.choice(&self.inquiry_kinds).copied()).flatten()
    }

    pub(super) fn draw_kinds(rng: &mut Rng) -> Vec<u32> {
        (0..rng.u32(1..=4)).map(|_| rng.u32(0..TROUBLES)).collect()
    }
}

impl Reply {
    /// Draws a reply. `quick` is the longest way that the `lateness` of every limit allows, in us.
    pub fn draw(
        moods: &Moods,
        rng: &mut Rng,
        bank: &Bank,
        (refund, bank_index): (RefundId, usize),
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
        let truth = bank.knows(refund, bank_index, now + way, moods.knows_late);
        let amount = if rng.bool() { format!(r#","amount_minor":{amount_minor}"#) } else { String::new() };
        let honest = || match truth {
            Some(state) => {
                let status = match state {
                    State::Succeeded => "succeeded",
                    State::Failed => "rejected",
                    _ => "pending",
                };
                reply(Says::Is(state), answer(200, &format!(r#"{{"status":"{status}"{amount}}}"#)))
            }
            None => reply(Says::NotFound, answer(404, "{}")),
        };
        match moods.inquiry_kind(rng) {
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
            // The page of a proxy, whatever the bank knows.
            Some(12) => nothing(answer(404, rng.choice(["<html>404 Not Found</html>", ""]).unwrap_or(""))),
            _ => honest(),
        }
    }
}

impl Bank {
    /// The state of a refund as the bank answers it; `None` is "not found".
    fn knows(&self, refund: RefundId, bank: usize, at: i64, late: bool) -> Option<State> {
        let of = || self.of(refund).filter(|call| call.bank == bank);
        if of().any(|call| call.executes.is_some_and(|paid| paid <= at)) {
            return Some(State::Succeeded);
        }
        // The bank does not know a request that it neither executed nor accepted.
        let has = |call: &&super::Call| {
            call.arrives.is_some_and(|there| there <= at) && (call.executes.is_some() || call.is_accepted())
        };
        let first = of().find(has)?;
        if of().any(|call| call.executes.is_some()) {
            return (!late).then_some(State::Accepted);
        }
        // The bank accepted the refund and rejected it in the end.
        Some(if at > first.sent + super::LONGEST_DECISION { State::Failed } else { State::Accepted })
    }
}

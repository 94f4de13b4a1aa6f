//! The bank, and its ledger: what arrived when, what it really executed, and what it answered.
//!
//! Everything a request will come to is decided when it is sent; the world's clock then says what of it
//! has happened.

pub mod questions;

use std::sync::Arc;

use fastrand::Rng;
use hyper::HeaderMap;
use questions::Question;
use refundd::limiter::PermitNumber;
use refundd::refund::{LimitName, RefundId, RequestId};

use super::plan::climate::Climate;

/// What the client sees at the end.
#[derive(Debug, Clone)]
pub enum Seen {
    Whole {
        status: u16,
        headers: HeaderMap,
        body: Vec<u8>,
    },
    /// The connection broke after the first byte.
    Cut,
    TimeOut,
}

/// One request.
#[derive(Debug, Clone)]
pub struct Call {
    pub refund: RefundId,
    pub key: RequestId,
    pub body: Arc<[u8]>,
    pub channel: usize,
    /// Which of the two banks got it.
    pub bank: usize,
    pub node: usize,
    pub process: u32,
    pub permits: Vec<PermitNumber>,
    pub sent: i64,
    pub arrives: Option<i64>,
    /// The network was no slower than `lateness` allows for.
    pub in_time: bool,
    pub executes: Option<i64>,
    /// When its client has the answer, gave up, or died.
    pub ends: i64,
    pub seen: Seen,
}

impl Call {
    /// The bank took it, and decides later.
    fn is_accepted(&self) -> bool {
        matches!(self.seen, Seen::Whole { status: 202, .. })
    }
}

/// What may befall a request, and how often, out of a hundred.
#[derive(Debug, Clone)]
pub struct Moods {
    pub trouble: u8,
    /// Of the troubles below, those that happen in this run.
    kinds: Vec<u32>,
    /// The same for inquiries.
    asked: Vec<u32>,
    asked_trouble: u8,
    /// Asked about what it has not executed yet, it does not know it.
    knows_late: bool,
    /// Nobody listens at its door now and then.
    refuses: bool,
}

const TROUBLES: u32 = 15;

/// How long a refund may be accepted before it is executed.
const LONGEST_DECISION: i64 = 40_000_000;

impl Moods {
    pub fn draw(rng: &mut Rng) -> Self {
        let trouble = *rng.choice(&[0u8, 10, 30, 60]).unwrap_or(&0);
        let kinds = (0..rng.u32(1..=4)).map(|_| rng.u32(0..TROUBLES)).collect();
        let asked = Moods::draw_kinds(rng);
        let asked_trouble = *rng.choice(&[0u8, 10, 30, 60]).unwrap_or(&0);
        Moods { trouble, kinds, asked, asked_trouble, knows_late: rng.bool(), refuses: rng.u8(0..4) == 0 }
    }

    /// One that often leaves open what it did.
    pub fn draw_unsure(rng: &mut Rng) -> Self {
        let kinds = (0..rng.u32(1..=4)).filter_map(|_| rng.choice([0, 1, 2, 3, 4, 5, 6, 11, 14])).collect();
        Moods { trouble: *rng.choice(&[30u8, 60, 90]).unwrap_or(&30), kinds, ..Moods::draw(rng) }
    }

    /// As the climate has it, where it says anything of the bank.
    pub fn inclined(self, climate: &Climate) -> Self {
        Moods {
            trouble: climate.bank.map_or(self.trouble, |kinds| if kinds.is_empty() { 0 } else { 90 }),
            kinds: climate.bank.map_or(self.kinds, <[u32]>::to_vec),
            asked_trouble: climate.asked.map_or(self.asked_trouble, |_| 60),
            asked: climate.asked.map_or(self.asked, <[u32]>::to_vec),
            refuses: self.refuses && climate.bank.is_none(),
            ..self
        }
    }

    /// Nothing goes wrong any more with what it is sent; asked, it stays as it is.
    pub fn calm(&self) -> Self {
        Moods { trouble: 0, ..self.clone() }
    }

    pub fn refuses(&self, rng: &mut Rng) -> bool {
        self.refuses && rng.u8(0..100) < self.trouble
    }

    fn kind(&self, rng: &mut Rng) -> Option<u32> {
        (rng.u8(0..100) < self.trouble).then(|| rng.choice(&self.kinds).copied()).flatten()
    }
}

/// What one request will come to, in us after it was sent.
pub struct Course {
    pub way: Option<i64>,
    pub in_time: bool,
    pub executes: Option<i64>,
    pub ends: i64,
    pub seen: Seen,
}

fn answer(status: u16, body: &str) -> Seen {
    Seen::Whole { status, headers: HeaderMap::new(), body: body.as_bytes().to_vec() }
}

fn wait(status: u16, seconds: u64) -> Seen {
    let mut headers = HeaderMap::new();
    headers.insert("retry-after", seconds.into());
    Seen::Whole { status, headers, body: Vec::new() }
}

impl Course {
    /// `quick` is the longest way that no limit minds.
    pub fn draw(moods: &Moods, rng: &mut Rng, timeout: i64, quick: i64) -> Self {
        let way = rng.i64(0..=quick.clamp(0, 30_000));
        let longest = if rng.u8(0..4) == 0 { timeout * 9 / 10 } else { 60_000 };
        let took = way + rng.i64(500..=longest);
        let course = |executes: Option<i64>, ends: i64, seen: Seen| Course {
            way: Some(way),
            in_time: true,
            executes,
            ends: ends.min(timeout),
            seen: if ends >= timeout { Seen::TimeOut } else { seen },
        };
        let paid = answer(200, r#"{"status":"succeeded"}"#);
        match moods.kind(rng) {
            None | Some(15..) => course(Some(way), took, paid),
            // Executed, and the answer cut, or none at all.
            Some(0) => course(Some(way), took, Seen::Cut),
            Some(1) => course(Some(way), timeout, Seen::TimeOut),
            // Not executed, and nobody can know.
            Some(2) => course(None, took, Seen::Cut),
            // Executed long after everybody gave up.
            Some(3) => course(Some(way + rng.i64(0..=30_000_000)), timeout, Seen::TimeOut),
            // It arrives after its client gave up.
            Some(4) => {
                let way = timeout + rng.i64(0..=20_000_000);
                Course { way: Some(way), in_time: false, ..course(Some(way), timeout, Seen::TimeOut) }
            }
            Some(5) => Course { way: None, ..course(None, timeout, Seen::TimeOut) },
            Some(6) => {
                let executed = rng.bool().then_some(way);
                course(executed, took, answer(*rng.choice(&[500, 502, 409]).unwrap_or(&500), "{}"))
            }
            Some(7) => course(None, took, wait(*rng.choice(&[429, 503]).unwrap_or(&429), rng.u64(0..4))),
            Some(8) => course(None, took, answer(429, "")),
            Some(9) => course(None, took, answer(*rng.choice(&[401, 403]).unwrap_or(&401), "")),
            Some(10) => course(None, took, answer(422, r#"{"error":"no such payment"}"#)),
            Some(11) => {
                let executed = rng.bool().then(|| way + rng.i64(0..=LONGEST_DECISION));
                course(executed, took, answer(202, r#"{"status":"pending"}"#))
            }
            Some(12) => course(None, took, answer(307, "")),
            Some(13) => course(None, took, answer(404, "<html>no such page</html>")),
            // Closed after the head, which names no length: it may have been executed.
            Some(14) => course(rng.bool().then_some(way), took, answer(200, "")),
        }
    }
}

/// A request of another service, under a permit that it acquired.
#[derive(Debug, Clone)]
pub struct Other {
    pub limit: LimitName,
    pub arrives: i64,
}

/// The ledger.
#[derive(Debug, Default)]
pub struct Bank {
    pub calls: Vec<Call>,
    pub others: Vec<Other>,
    pub questions: Vec<Question>,
}

impl Bank {
    pub fn of(&self, refund: RefundId) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(move |call| call.refund == refund)
    }

    /// How often it was paid by now. A bank that saw a key less than so long ago pays no second time.
    pub fn paid(&self, refund: RefundId, now: i64, remembers: Option<i64>) -> usize {
        (0..2).map(|bank| self.paid_by(bank, refund, now, remembers)).sum()
    }

    fn paid_by(&self, bank: usize, refund: RefundId, now: i64, remembers: Option<i64>) -> usize {
        let of = || self.of(refund).filter(|call| call.bank == bank);
        let paid: Vec<&Call> = of().filter(|call| call.executes.is_some_and(|at| at <= now)).collect();
        let Some(remembers) = remembers else { return paid.len() };
        let seen = of().filter_map(|call| call.arrives).min().unwrap_or(0);
        let late = paid.iter().filter(|call| call.arrives.is_some_and(|at| at > seen + remembers)).count();
        late + usize::from(late < paid.len())
    }

    /// Whether it paid or is going to.
    pub fn ever_pays(&self, refund: RefundId) -> bool {
        self.of(refund).any(|call| call.executes.is_some())
    }
}

//! The bank and its ledger: when each request arrived, whether the bank executed it, and what it answered.
//!
//! The whole course of a request is drawn when it is sent. The world's clock then says how much of it has happened.

pub mod questions;

use std::sync::Arc;

use fastrand::Rng;
use hyper::HeaderMap;
use questions::Question;
use refundd::limiter::PermitNumber;
use refundd::refund::{LimitName, RefundId, RequestId};

/// The end of a request as its client sees it.
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

/// One send.
#[derive(Debug, Clone)]
pub struct Call {
    pub refund: RefundId,
    pub key: RequestId,
    pub body: Arc<[u8]>,
    pub channel: usize,
    /// Which of the two banks the request goes to.
    pub bank: usize,
    pub node: usize,
    pub process: u32,
    pub permits: Vec<PermitNumber>,
    pub sent: i64,
    /// When it arrives at the bank, if ever.
    pub arrives: Option<i64>,
    /// The network was no slower than `lateness` allows.
    pub in_time: bool,
    /// When the bank pays, if ever.
    pub executes: Option<i64>,
    /// When its client has the answer, gave up, or died.
    pub ends: i64,
    pub seen: Seen,
}

impl Call {
    /// Whether the bank accepted the request, and decides later.
    fn is_accepted(&self) -> bool {
        matches!(self.seen, Seen::Whole { status: 202, .. })
    }
}

/// The troubles that requests of a run may have, and how many of a hundred requests have one.
#[derive(Debug, Clone)]
pub struct Moods {
    pub trouble: u8,
    /// The troubles that happen to sends in this run, by their numbers in `Course::draw`.
    kinds: Vec<u32>,
    /// The troubles that happen to inquiries in this run, by their numbers in `Reply::draw`.
    inquiry_kinds: Vec<u32>,
    inquiry_trouble: u8,
    /// Asked about a refund that it has not executed yet, the bank does not know it.
    knows_late: bool,
    /// The bank refuses connections now and then.
    refuses: bool,
}

const TROUBLES: u32 = 15;

/// How long the bank may take to execute a refund that it accepted, in us.
const LONGEST_DECISION: i64 = 40_000_000;

impl Moods {
    pub fn draw(rng: &mut Rng) -> Self {
        let trouble = *rng.choice(&[0u8, 10, 30, 60]).unwrap_or(&0);
        let kinds = (0..rng.u32(1..=4)).map(|_| rng.u32(0..TROUBLES)).collect();
        let inquiry_kinds = Moods::draw_kinds(rng);
        let inquiry_trouble = *rng.choice(&[0u8, 10, 30, 60]).unwrap_or(&0);
        Moods {
            trouble,
            kinds,
            inquiry_kinds,
            inquiry_trouble,
            knows_late: rng.bool(),
            refuses: rng.u8(0..4) == 0,
        }
    }

    /// The moods of a bank that often leaves the result open.
    pub fn draw_unsure(rng: &mut Rng) -> Self {
        let kinds = (0..rng.u32(1..=4)).filter_map(|_| rng.choice([0, 1, 2, 3, 4, 5, 6, 11, 14])).collect();
        Moods { trouble: *rng.choice(&[30u8, 60, 90]).unwrap_or(&30), kinds, ..Moods::draw(rng) }
    }

    /// These moods, with the troubles that the climate has for sends and for inquiries, if any.
    pub fn inclined(self, sends: Option<&[u32]>, inquiries: Option<&[u32]>) -> Self {
        Moods {
            trouble: sends.map_or(self.trouble, |kinds| if kinds.is_empty() { 0 } else { 90 }),
            kinds: sends.map_or(self.kinds, <[u32]>::to_vec),
            inquiry_trouble: inquiries.map_or(self.inquiry_trouble, |_| 60),
            inquiry_kinds: inquiries.map_or(self.inquiry_kinds, <[u32]>::to_vec),
            refuses: self.refuses && sends.is_none(),
            ..self
        }
    }

    /// These moods without trouble for sends. Inquiries keep theirs.
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

/// The course of one send, in us after it was sent.
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
    headers.insert("content-length", 0.into());
    Seen::Whole { status, headers, body: Vec::new() }
}

impl Course {
    /// Draws a course. `quick` is the longest way that the `lateness` of every limit allows, in us.
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
            // The bank pays, and the answer is cut or never comes.
            Some(0) => course(Some(way), took, Seen::Cut),
            Some(1) => course(Some(way), timeout, Seen::TimeOut),
            // The bank does not pay, and the client cannot know.
            Some(2) => course(None, took, Seen::Cut),
            // The bank pays long after every client gave up.
            Some(3) => course(Some(way + rng.i64(0..=30_000_000)), timeout, Seen::TimeOut),
            // The request arrives after its client gave up.
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
            // The bank closes after a head without a length: it may have paid.
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

/// The bank's ledger.
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

    /// How often the bank has paid a refund. It does not pay a key again within `remembers` us after it first saw the
    /// key.
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

    /// Whether the bank has paid a refund or is going to.
    pub fn ever_pays(&self, refund: RefundId) -> bool {
        self.of(refund).any(|call| call.executes.is_some())
    }
}

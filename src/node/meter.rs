//! Measures one channel on one node: what binds it, and how long its bank takes to answer.
//!
//! The channel worker says at each step what it waits for. The kind of wait with the largest share of the last minute
//! binds the channel. Newer time counts more: what is a minute old counts a twentieth. A meter that is younger than a minute
//! gives the shares of its own time.
//!
//! It decides nothing; people and forecasts read it.

mod answers;
mod fading;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::lock::Lock;
use crate::refund::LimitName;
use answers::Answers;
use fading::faded;

/// What keeps a channel from sending faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Binds {
    /// A limit grants no permit yet.
    Limit,
    /// A limit with a window of ten minutes or more is used up.
    Quota,
    /// `max_in_flight`: all slots are in use, and the bank takes its time.
    InFlight,
    /// The way to the bank: setting up connections, or the round trip.
    Bank,
    /// Paused by a person, or because the bank refused the credentials.
    Paused,
    /// The bank asked to wait.
    Cooling,
    /// Suspended because of the outcomes of its requests.
    Breaker,
    /// No refund waits, or refundd itself is the slowest.
    Nothing,
}

impl Binds {
    pub const ALL: [Binds; 8] = [
        Binds::Limit,
        Binds::Quota,
        Binds::InFlight,
        Binds::Bank,
        Binds::Paused,
        Binds::Cooling,
        Binds::Breaker,
        Binds::Nothing,
    ];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Binds::Limit => "limit",
            Binds::Quota => "quota",
            Binds::InFlight => "in_flight",
            Binds::Bank => "bank",
            Binds::Paused => "paused",
            Binds::Cooling => "cooling",
            Binds::Breaker => "breaker",
            Binds::Nothing => "nothing",
        }
    }

    /// The kind with this text; `None` for a text of another version.
    #[must_use]
    pub fn named(text: &str) -> Option<Binds> {
        Binds::ALL.into_iter().find(|binds| binds.as_str() == text)
    }

    fn place(self) -> usize {
        Binds::ALL.iter().position(|binds| *binds == self).unwrap_or(0)
    }
}

/// What a meter shows.
#[derive(Debug, Clone, PartialEq)]
pub struct MeterReading {
    pub binds: Binds,
    /// Its share of the last minute, or of the shorter time that was watched, from 0 to 1.
    pub share: f64,
    /// How long was watched; what is older than a minute hardly counts.
    pub watched: Duration,
    /// The limit that binds.
    pub limit: Option<LimitName>,
    /// The time from the first byte of a request to the end of the bank's answer: of half of the answers, and of 95 in a
    /// hundred, no more than this. `None` without an answer in the last minutes.
    pub bank_p50: Option<Duration>,
    pub bank_p95: Option<Duration>,
    /// How long a request keeps its slot: connection, claim and answer.
    pub request: Option<Duration>,
}

impl Default for MeterReading {
    fn default() -> Self {
        let (bank_p50, bank_p95, request) = (None, None, None);
        let watched = Duration::ZERO;
        MeterReading { binds: Binds::Nothing, share: 0.0, watched, limit: None, bank_p50, bank_p95, request }
    }
}

impl MeterReading {
    /// Of how many seconds a share is after so many were watched: what is older than a minute hardly counts.
    pub fn over(watched_s: u64) -> u32 {
        u32::try_from(watched_s).unwrap_or(u32::MAX).clamp(1, 60)
    }
}

/// The meter of one channel.
#[derive(Debug)]
pub struct Meter(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    /// The share of each kind; they add up to 1 at the most.
    shares: [f64; Binds::ALL.len()],
    waits_for: Binds,
    since: Instant,
    began: Instant,
    /// The limit of the last wait for one.
    limit: Option<LimitName>,
    answers: Answers,
}

impl Meter {
    pub fn new(now: Instant) -> Self {
        Meter(Mutex::new(Inner {
            shares: [0.0; Binds::ALL.len()],
            waits_for: Binds::Nothing,
            since: now,
            began: now,
            limit: None,
            answers: Answers::new(now),
        }))
    }

    /// From this moment on the worker waits for something else, or works.
    pub fn waits_since(&self, binds: Binds, since: Instant) {
        let mut inner = self.0.locked();
        let since = since.max(inner.since);
        inner.shares = inner.shares_at(since);
        (inner.waits_for, inner.since) = (binds, since);
    }

    /// As [`Meter::waits_since`], for this limit.
    pub fn waits_for_limit(&self, binds: Binds, limit: &LimitName) {
        self.waits_since(binds, Instant::now());
        let mut inner = self.0.locked();
        if inner.limit.as_ref() != Some(limit) {
            inner.limit = Some(limit.clone());
        }
    }

    /// The bank answered: after how long, and how long the request kept its slot.
    pub fn answered(&self, bank: Duration, request: Duration) {
        self.0.locked().answers.add(bank, request, Instant::now());
    }

    /// What the meter shows now. A far bank, whose `round_trip` is half of a request or more, binds where its slots do.
    pub fn read(&self, round_trip: Option<Duration>) -> MeterReading {
        let (inner, now) = (self.0.locked(), Instant::now());
        let mut shares = inner.shares_at(now.max(inner.since));
        let watched = now.max(inner.since).saturating_duration_since(inner.began);
        // Before the meter began nothing was watched, so that time has no part in the shares.
        let whole = (1.0 - faded(watched)).max(f64::EPSILON);
        shares = shares.map(|share| (share / whole).min(1.0));
        let request = inner.answers.request(now);
        let is_far = round_trip.zip(request).is_some_and(|(way, request)| way * 2 >= request);
        if is_far {
            shares[Binds::Bank.place()] += std::mem::take(&mut shares[Binds::InFlight.place()]);
        }
        let (binds, share) = Binds::ALL
            .into_iter()
            .zip(shares)
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .unwrap_or((Binds::Nothing, 0.0));
        let is_limit = matches!(binds, Binds::Limit | Binds::Quota);
        MeterReading {
            binds,
            share,
            watched,
            limit: inner.limit.clone().filter(|_| is_limit),
            bank_p50: inner.answers.at_most(0.5, now),
            bank_p95: inner.answers.at_most(0.95, now),
            request,
        }
    }
}

impl Inner {
    /// The shares with the wait that is under way.
    fn shares_at(&self, now: Instant) -> [f64; Binds::ALL.len()] {
        let fade = faded(now.saturating_duration_since(self.since));
        let mut shares = self.shares.map(|share| share * fade);
        shares[self.waits_for.place()] += 1.0 - fade;
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(meter: &Meter, start: Instant, waits: &[(Binds, u64)]) {
        let mut at = start;
        for (binds, millis) in waits {
            meter.waits_since(*binds, at);
            at += Duration::from_millis(*millis);
        }
        meter.waits_since(Binds::Nothing, at);
    }

    /// A meter whose last minute had these waits again and again.
    fn minute(waits: &[(Binds, u64)]) -> Meter {
        let length: u64 = waits.iter().map(|(_, millis)| millis).sum();
        let now = Instant::now();
        let start = now.checked_sub(Duration::from_mins(1)).unwrap_or(now);
        let meter = Meter::new(start);
        for nth in 0..60_000 / length {
            after(&meter, start + Duration::from_millis(nth * length), waits);
        }
        meter
    }

    #[test]
    fn the_largest_share_of_the_last_minute_binds() {
        let limited = minute(&[(Binds::Limit, 90), (Binds::InFlight, 2), (Binds::Nothing, 8)]).read(None);
        assert_eq!(limited.binds, Binds::Limit);
        assert!((0.8..0.95).contains(&limited.share), "{limited:?}");
        let slow = minute(&[(Binds::InFlight, 1500), (Binds::Nothing, 10), (Binds::Limit, 200)]).read(None);
        assert_eq!(slow.binds, Binds::InFlight);
        assert_eq!(minute(&[(Binds::Nothing, 900), (Binds::Limit, 100)]).read(None).binds, Binds::Nothing);
    }

    #[test]
    fn a_young_meter_gives_the_shares_of_the_time_that_it_watched() {
        let now = Instant::now();
        let start = now.checked_sub(Duration::from_secs(5)).unwrap_or(now);
        let meter = Meter::new(start);
        meter.waits_since(Binds::Limit, start);
        let reading = meter.read(None);
        assert!((5..50).contains(&reading.watched.as_secs()), "{reading:?}");
        assert!(reading.binds == Binds::Limit && reading.share > 0.99, "{reading:?}");
    }

    #[test]
    fn a_change_shows_within_half_a_minute() {
        let meter = minute(&[(Binds::Limit, 1000)]);
        let now = Instant::now();
        meter.waits_since(Binds::Cooling, now.checked_sub(Duration::from_secs(20)).unwrap_or(now));
        // The meter never goes back in time, so this wait began just now.
        assert_eq!(meter.read(None).binds, Binds::Limit);
        let start = now.checked_sub(Duration::from_secs(50)).unwrap_or(now);
        let meter = Meter::new(start);
        meter.waits_since(Binds::Limit, start);
        meter.waits_since(Binds::Cooling, start + Duration::from_secs(30));
        assert_eq!(meter.read(None).binds, Binds::Cooling);
    }

    #[test]
    fn slots_that_wait_for_a_round_trip_mean_that_the_bank_is_far() {
        let meter = minute(&[(Binds::InFlight, 200), (Binds::Nothing, 10)]);
        meter.answered(Duration::from_millis(210), Duration::from_millis(220));
        assert_eq!(meter.read(Some(Duration::from_millis(2))).binds, Binds::InFlight);
        assert_eq!(meter.read(Some(Duration::from_millis(200))).binds, Binds::Bank);
    }

    #[test]
    fn a_kind_is_read_back_from_its_text() {
        for binds in Binds::ALL {
            assert_eq!(Binds::named(binds.as_str()), Some(binds));
        }
        assert_eq!(Binds::named("moon"), None);
    }
}

//! Forecasts when refunds will be sent: one function for the backlog of a channel and for one refund in it.
//!
//! Refunds and permits flow like water here. A limit has a level, which requests lower and time raises. Channels that
//! share a limit get equal parts of it. Inquiries are a demand of their own with less weight. The forecast steps from
//! event to event: a window begins, a pause ends, refunds become due, a backlog is gone.
//!
//! It knows nothing of refunds that nobody has saved yet, nor of sends that will fail and be repeated. Pure.

mod allowance;
mod climb;
mod course;
mod pace;
mod parts;
mod together;

pub use allowance::{Allowance, SpentPermits};
pub use climb::{Climb, Seconds};
pub use course::Course;
pub use pace::{FullPace, Quota};
use parts::{Claimant, parts};
pub use together::{rule_on, together};

/// Refunds that become due at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExpectedArrival {
    pub at: Seconds,
    pub count: f64,
}

/// Requests that wait for the same permits: the backlog of a channel, or its inquiries.
#[derive(Debug, Clone, Default)]
pub struct Demand {
    /// The limits that must all grant a permit, as places in [`Outlook::limits`].
    pub limits: Vec<usize>,
    /// In the order of their times.
    pub arrivals: Vec<ExpectedArrival>,
    /// The part of a shared limit, compared with the others.
    pub weight: f64,
    /// Nothing is sent before this moment; `None` if nothing is sent until a person acts.
    pub starts_at: Option<Seconds>,
}

/// Everything that a forecast needs: the limits and those who wait for their permits. Time counts from now.
#[derive(Debug, Clone, Default)]
pub struct Outlook {
    pub limits: Vec<Allowance>,
    pub demands: Vec<Demand>,
}

/// One demand in the course of a forecast.
#[derive(Debug)]
struct Queue {
    /// Due and not sent.
    waiting: f64,
    sent: f64,
    /// How many of its arrivals have come.
    arrived: usize,
    gone_at: Option<Seconds>,
}

impl Queue {
    fn send(&mut self, count: f64) {
        let sent = count.min(self.waiting);
        self.waiting -= sent;
        self.sent += sent;
    }
}

impl Outlook {
    /// Less than this of a refund is none.
    const LITTLE: f64 = 1e-6;
    /// The least step of time.
    const MOMENT: Seconds = 1e-6;
    /// The most steps of one forecast, and the most steps times demands. The rest is forecast at the last pace.
    const MOST_STEPS: usize = 20_000;
    const MOST_WORK: usize = 1_000_000;

    /// For each demand, when its last request will be sent; `None` if that needs a person.
    #[must_use]
    pub fn gone_at(&self) -> Vec<Option<Seconds>> {
        self.play(|_, _, _| ())
    }

    /// For each demand, how its requests leave in the course of time.
    #[must_use]
    pub fn courses(&self) -> Vec<Course> {
        let mut courses = vec![Course::default(); self.demands.len()];
        let gone_at = self.play(|nth, at, sent| courses[nth].note(at, sent));
        for ((course, demand), gone_at) in courses.iter_mut().zip(&self.demands).zip(gone_at) {
            course.end(gone_at, demand.arrivals.iter().map(|arrival| arrival.count).sum());
        }
        courses
    }

    /// Plays the forecast. `note` gets the place of a demand, a moment, and how many of its requests were sent until then.
    fn play(&self, mut note: impl FnMut(usize, Seconds, f64)) -> Vec<Option<Seconds>> {
        let mut limits = self.limits.clone();
        let mut queues: Vec<Queue> = self
            .demands
            .iter()
            .map(|_| Queue { waiting: 0.0, sent: 0.0, arrived: 0, gone_at: None })
            .collect();
        let mut note_all = |queues: &[Queue], now| {
            queues.iter().enumerate().for_each(|(nth, queue)| note(nth, now, queue.sent));
        };
        let mut now: Seconds = 0.0;
        let mut pace = vec![0.0; self.demands.len()];
        let steps = (Self::MOST_WORK / self.demands.len().max(1)).clamp(100, Self::MOST_STEPS);
        for _ in 0..steps {
            self.arrive(&mut queues, now);
            note_all(&queues, now);
            self.send_at_once(&mut limits, &mut queues, now);
            note_all(&queues, now);
            self.note_gone(&mut queues, now);
            if self.is_over(&queues) {
                return queues.into_iter().map(|queue| queue.gone_at).collect();
            }
            pace = self.pace(&limits, &queues, now);
            let until = self.next_event(&limits, &queues, &pace, now);
            if !until.is_finite() {
                return queues.into_iter().map(|queue| queue.gone_at).collect();
            }
            let until = until.max(now + Self::MOMENT);
            let spent = self.by_limit(&pace);
            for (limit, spent) in limits.iter_mut().zip(spent) {
                limit.pass(now, until, spent * (until - now));
            }
            for (queue, pace) in queues.iter_mut().zip(&pace) {
                queue.send(pace * (until - now));
            }
            now = until;
        }
        self.at_last_pace(&limits, queues, &pace, now)
    }

    fn arrive(&self, queues: &mut [Queue], now: Seconds) {
        for (demand, queue) in self.demands.iter().zip(queues) {
            while let Some(arrival) =
                demand.arrivals.get(queue.arrived).filter(|arrival| arrival.at <= now + Self::MOMENT)
            {
                queue.waiting += arrival.count;
                queue.arrived += 1;
            }
        }
    }

    fn is_active(demand: &Demand, queue: &Queue, now: Seconds) -> bool {
        queue.waiting > Self::LITTLE && demand.starts_at.is_some_and(|at| at <= now + Self::MOMENT)
    }

    fn claimants<'a>(
        &'a self,
        queues: &'a [Queue],
        now: Seconds,
        wants: impl Fn(&Queue) -> f64 + 'a,
    ) -> Vec<Claimant<'a>> {
        let claimant = |(demand, queue): (&'a Demand, &'a Queue)| Claimant {
            limits: &demand.limits,
            weight: demand.weight,
            wants: if Self::is_active(demand, queue, now) { wants(queue) } else { 0.0 },
        };
        self.demands.iter().zip(queues).map(claimant).collect()
    }

    /// Sends under the permits that are there.
    fn send_at_once(&self, limits: &mut [Allowance], queues: &mut [Queue], now: Seconds) {
        let levels: Vec<f64> = limits.iter().map(|limit| limit.level().max(0.0)).collect();
        let sent = parts(&levels, &self.claimants(queues, now, |queue| queue.waiting));
        for (limit, taken) in limits.iter_mut().zip(self.by_limit(&sent)) {
            limit.take(taken, now);
        }
        for (queue, sent) in queues.iter_mut().zip(&sent) {
            queue.send(*sent);
        }
    }

    fn note_gone(&self, queues: &mut [Queue], now: Seconds) {
        for (demand, queue) in self.demands.iter().zip(queues) {
            let is_gone = queue.waiting <= Self::LITTLE && queue.arrived == demand.arrivals.len();
            if is_gone && queue.gone_at.is_none() {
                queue.gone_at = Some(now);
            }
        }
    }

    fn is_over(&self, queues: &[Queue]) -> bool {
        let mut all = self.demands.iter().zip(queues);
        all.all(|(demand, queue)| queue.gone_at.is_some() || demand.starts_at.is_none())
    }

    /// How many requests of each demand leave in a second from now on.
    fn pace(&self, limits: &[Allowance], queues: &[Queue], now: Seconds) -> Vec<f64> {
        let capacity: Vec<f64> = limits
            .iter()
            .map(|limit| match limit.level() {
                level if level > Self::LITTLE => f64::INFINITY,
                level if level < -Self::LITTLE => 0.0,
                _ => limit.rate(),
            })
            .collect();
        parts(&capacity, &self.claimants(queues, now, |_| f64::INFINITY))
    }

    /// The sum over all demands of each limit.
    fn by_limit(&self, of_demands: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; self.limits.len()];
        for (demand, value) in self.demands.iter().zip(of_demands) {
            for &limit in &demand.limits {
                if let Some(sum) = sums.get_mut(limit) {
                    *sum += value;
                }
            }
        }
        sums
    }

    /// The next moment at which anything changes.
    fn next_event(&self, limits: &[Allowance], queues: &[Queue], pace: &[f64], now: Seconds) -> Seconds {
        let mut next = f64::INFINITY;
        for ((demand, queue), pace) in self.demands.iter().zip(queues).zip(pace) {
            if let Some(arrival) = demand.arrivals.get(queue.arrived) {
                next = next.min(arrival.at);
            }
            if let Some(at) = demand.starts_at.filter(|at| *at > now + Self::MOMENT && queue.waiting > 0.0) {
                next = next.min(at);
            }
            if *pace > 0.0 {
                next = next.min(now + queue.waiting / pace);
            }
        }
        let is_awaited = queues.iter().any(|queue| queue.waiting > Self::LITTLE);
        for (limit, spent) in limits.iter().zip(self.by_limit(pace)) {
            if is_awaited {
                next = next.min(limit.next_change(now, spent));
            }
        }
        next
    }

    /// The forecast for what is left after the most steps: at the last pace, but not before a pause ends, and no faster than
    /// each limit allows once its permits of now are spent.
    fn at_last_pace(
        &self,
        limits: &[Allowance],
        queues: Vec<Queue>,
        pace: &[f64],
        now: Seconds,
    ) -> Vec<Option<Seconds>> {
        let rest = |((demand, queue), pace): ((&Demand, Queue), &f64)| {
            let begins = now.max(demand.starts_at?);
            let coming = demand.arrivals.get(queue.arrived..).unwrap_or_default();
            let left = queue.waiting + coming.iter().map(|arrival| arrival.count).sum::<f64>();
            let own = demand.limits.iter().filter_map(|limit| limits.get(*limit));
            let by_limits = own.map(|limit| (left - limit.level()).max(0.0) / limit.mean_rate());
            let at_pace = if *pace > 0.0 { left / *pace } else { 0.0 };
            let lasts = by_limits.fold(at_pace, f64::max);
            let last = coming.last().map_or(now, |arrival| arrival.at);
            queue.gone_at.or_else(|| Some((begins + lasts).max(last)).filter(|at| at.is_finite()))
        };
        self.demands.iter().zip(queues).zip(pace).map(rest).collect()
    }
}

#[cfg(test)]
mod tests;

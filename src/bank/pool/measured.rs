//! The measured times of one address: how long a connection takes to open, and how long a round trip takes.

use std::time::{Duration, Instant};

use crate::bank::connect::Connection;
use crate::bank::kernel::RoundTrip;
use crate::estimate::Estimate;

/// The measured times of one address; `None` before a measurement.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct AddressTimes {
    /// DNS, TCP and TLS together.
    pub set_up: Option<Duration>,
    pub round_trip: Option<Duration>,
    pub round_trip_variation: Option<Duration>,
}

#[derive(Debug, Default)]
pub(super) struct AddressEstimates {
    set_up: Estimate,
    /// TCP's connect alone: about one round trip.
    tcp_connect: Estimate,
    /// The kernel's last measurement, of a connection that was used several times, and when it was read.
    by_kernel: Option<(RoundTrip, Instant)>,
    /// When the kernel was last asked.
    kernel_queried: Option<Instant>,
}

impl AddressEstimates {
    /// The assumed set-up time before a measurement.
    const SET_UP_UNSEEN: Duration = Duration::from_millis(100);
    /// The kernel is asked at most this often.
    const QUERY_KERNEL_EVERY: Duration = Duration::from_secs(1);
    /// After this many answered requests the kernel's measurement of a connection is meaningful.
    const ENOUGH_ANSWERS: u32 = 8;

    /// A connection was opened.
    pub fn opened(&mut self, connection: &Connection) {
        self.set_up.learn(connection.set_up);
        self.tcp_connect.learn(connection.tcp_connect);
    }

    /// How long opening a connection takes; it seldom takes longer.
    pub fn set_up(&self) -> Duration {
        self.set_up.expected().unwrap_or(Self::SET_UP_UNSEEN)
    }

    /// The same, but a connection that opens as quickly as usual lies unused for `rest` at most: a bank that closes unused connections
    /// early would close it before its request. The mean itself is never cut: nothing opens sooner than that.
    pub fn set_up_with_rest(&self, rest: Duration) -> Duration {
        let usual = self.set_up.mean().unwrap_or(Self::SET_UP_UNSEEN);
        self.set_up().min(usual + rest)
    }

    /// The kernel's measurement counts for one minute; before and after, TCP's connect does.
    pub fn reading(&self) -> AddressTimes {
        let by_kernel = self.by_kernel.filter(|(_, at)| at.elapsed() < Duration::from_mins(1));
        let by_kernel = by_kernel.map(|(round_trip, _)| round_trip);
        AddressTimes {
            set_up: self.set_up.mean(),
            round_trip: by_kernel.map(|round_trip| round_trip.mean).or_else(|| self.tcp_connect.mean()),
            round_trip_variation: by_kernel
                .map(|round_trip| round_trip.variation)
                .or_else(|| self.tcp_connect.deviation()),
        }
    }

    /// Whether to ask the kernel now about this connection. If so, the next question is not due for a while.
    pub fn begin_query(&mut self, connection: &Connection) -> bool {
        let is_due = self.kernel_queried.is_none_or(|at| at.elapsed() >= Self::QUERY_KERNEL_EVERY);
        let begins = is_due && connection.answered >= Self::ENOUGH_ANSWERS;
        if begins {
            self.kernel_queried = Some(Instant::now());
        }
        begins
    }

    /// The kernel answered about a connection.
    pub fn end_query(&mut self, round_trip: RoundTrip) {
        self.by_kernel = Some((round_trip, Instant::now()));
    }
}

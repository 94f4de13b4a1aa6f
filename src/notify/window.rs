//! The changes that wait for the receiver: which may be sent now, and up to where all of them are delivered.
//!
//! Of one refund, a change waits until the changes before it are delivered. Changes of other refunds go on meanwhile, as
//! long as the window has room. It makes no request and knows no clock but the moments it is given.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use crate::backoff::Backoff;
use crate::store::{Change, ChangePage};

/// The changes between the first one that is not delivered and the last one that was read.
#[derive(Debug)]
pub(super) struct Window {
    /// Every change up to this line was read.
    read_until: i64,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    change: Change,
    step: Step,
    failures: u32,
    retry_at: Instant,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Waits,
    UnderWay,
    Delivered,
}

impl Window {
    /// The most changes: so many may be delivered a second time after a node dies, and so many go past one that the
    /// receiver refuses.
    pub(super) const MOST: usize = 1000;
    /// The pauses of a change that the receiver refuses.
    const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), last: Duration::from_mins(5) };

    /// A window that begins behind this line.
    pub(super) fn new(delivered_until: i64) -> Self {
        Window { read_until: delivered_until, waiting: VecDeque::new() }
    }

    /// The line up to which the receiver has every change.
    pub(super) fn delivered_until(&self) -> i64 {
        self.waiting.front().map_or(self.read_until, |first| first.change.cursor - 1)
    }

    /// The line behind which the next page begins.
    pub(super) fn read_until(&self) -> i64 {
        self.read_until
    }

    /// How many more changes the window takes.
    pub(super) fn room(&self) -> usize {
        Self::MOST.saturating_sub(self.waiting.len())
    }

    /// How many changes are delivered behind one that is not. A process that begins anew sends them a second time.
    pub(super) fn delivered_early(&self) -> usize {
        self.waiting.iter().filter(|one| one.step == Step::Delivered).count()
    }

    /// Takes up a page that began behind [`Window::read_until`].
    pub(super) fn add(&mut self, page: ChangePage, now: Instant) {
        self.read_until = self.read_until.max(page.next);
        let waiting = |change| Waiting { change, step: Step::Waits, failures: 0, retry_at: now };
        self.waiting.extend(page.changes.into_iter().map(waiting));
    }

    /// Skips lines that the journal does not have any more.
    pub(super) fn skip_to(&mut self, line: i64) {
        self.read_until = self.read_until.max(line);
    }

    /// Of the changes that may be sent now, the oldest of those that failed least often; it is under way from then on. So a
    /// change that the receiver refuses again and again does not stand before one that it has never seen.
    pub(super) fn next(&mut self, now: Instant) -> Option<Change> {
        let may_go = |place: &usize| {
            let one = &self.waiting[*place];
            one.step == Step::Waits && one.retry_at <= now
        };
        // Nearly always one of the first changes has never failed, and the rest is not looked at.
        let fresh = self.first_of_each_refund().find(|at| may_go(at) && self.waiting[*at].failures == 0);
        let place = fresh.or_else(|| {
            self.first_of_each_refund().filter(may_go).min_by_key(|at| self.waiting[*at].failures)
        })?;
        let one = &mut self.waiting[place];
        one.step = Step::UnderWay;
        Some(one.change.clone())
    }

    /// When the next change may be sent that waits after a failure.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        let waiting = self.first_of_each_refund().map(|place| &self.waiting[place]);
        waiting.filter(|one| one.step == Step::Waits).map(|one| one.retry_at).min()
    }

    /// For each refund, the place of its first change that is not delivered.
    fn first_of_each_refund(&self) -> impl Iterator<Item = usize> {
        let mut seen = HashSet::new();
        let open = self.waiting.iter().enumerate().filter(|(_, one)| one.step != Step::Delivered);
        open.filter(move |(_, one)| seen.insert(one.change.refund_id)).map(|(place, _)| place)
    }

    /// The receiver has taken a change.
    pub(super) fn delivered(&mut self, cursor: i64) {
        if let Some(one) = self.of(cursor) {
            one.step = Step::Delivered;
        }
        while self.waiting.front().is_some_and(|first| first.step == Step::Delivered) {
            self.waiting.pop_front();
        }
    }

    /// The receiver has not taken a change; it is sent again after a pause that grows, and never before `pause`. True if this
    /// was the first time.
    pub(super) fn failed(&mut self, cursor: i64, now: Instant, pause: Duration) -> bool {
        let Some(one) = self.of(cursor) else { return false };
        one.step = Step::Waits;
        one.failures = one.failures.saturating_add(1);
        one.retry_at = now + Self::pause_after(one.failures).max(pause.min(Self::BACKOFF.last));
        one.failures == 1
    }

    /// How long to wait after so many failures in a row: 0.5 s, then twice as long each time, up to 5 minutes.
    pub(super) fn pause_after(failures: u32) -> Duration {
        Self::BACKOFF.after(failures)
    }

    fn of(&mut self, cursor: i64) -> Option<&mut Waiting> {
        let place = self.waiting.binary_search_by_key(&cursor, |one| one.change.cursor).ok()?;
        self.waiting.get_mut(place)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn change(cursor: i64, refund_id: i64) -> Change {
        Change {
            cursor,
            refund_id,
            refund_ref: format!("R-{refund_id}"),
            channel: "acme".to_owned(),
            state: "succeeded".to_owned(),
            code: None,
            reason: None,
            bank_ref: None,
            at: Timestamp::UNIX_EPOCH,
            at_us: 0,
        }
    }

    /// A window of these changes, as line and refund.
    fn window(changes: &[(i64, i64)], now: Instant) -> Window {
        let mut window = Window::new(0);
        let changes: Vec<Change> = changes.iter().map(|(cursor, refund)| change(*cursor, *refund)).collect();
        let next = changes.last().map_or(0, |last| last.cursor) + 5;
        window.add(ChangePage { changes, next, more: false }, now);
        window
    }

    fn sent(window: &mut Window, now: Instant) -> Vec<i64> {
        std::iter::from_fn(|| window.next(now)).map(|change| change.cursor).collect()
    }

    #[test]
    fn of_one_refund_a_change_waits_until_the_one_before_is_delivered() {
        let now = Instant::now();
        let mut window = window(&[(3, 1), (4, 2), (7, 1), (9, 1)], now);
        assert_eq!(sent(&mut window, now), [3, 4]);
        window.delivered(4);
        assert_eq!((window.delivered_until(), sent(&mut window, now)), (2, vec![]));
        assert_eq!(window.delivered_early(), 1);
        window.delivered(3);
        assert_eq!((window.delivered_until(), sent(&mut window, now)), (6, vec![7]));
        window.delivered(7);
        assert_eq!(sent(&mut window, now), [9]);
        window.delivered(9);
        assert_eq!((window.delivered_until(), window.room()), (14, Window::MOST));
    }

    #[test]
    fn a_change_that_failed_waits_longer_each_time_and_others_go_past_it() {
        let mut now = Instant::now();
        let mut window = window(&[(1, 1), (2, 1), (3, 2)], now);
        for wait in [500, 1000, 2000] {
            assert_eq!(window.next(now).unwrap().cursor, 1);
            window.failed(1, now, Duration::ZERO);
            if wait == 500 {
                assert_eq!(sent(&mut window, now), [3], "another refund");
                window.delivered(3);
            }
            let retry = now + Duration::from_millis(wait);
            assert_eq!((window.next(now), window.next_retry()), (None, Some(retry)));
            now = retry;
        }
        assert_eq!(window.delivered_until(), 0);
        window.next(now).unwrap();
        window.failed(1, now, Duration::from_mins(1));
        assert_eq!(window.next_retry(), Some(now + Duration::from_mins(1)), "the receiver asks for more");
        assert_eq!(Window::pause_after(40), Duration::from_mins(5));
    }

    #[test]
    fn a_change_that_never_failed_goes_before_one_that_did() {
        let now = Instant::now();
        let mut window = window(&[(1, 1), (2, 2), (3, 3)], now);
        assert_eq!(sent(&mut window, now), [1, 2, 3]);
        assert!(window.failed(1, now, Duration::ZERO) && window.failed(2, now, Duration::ZERO));
        let later = now + Duration::from_mins(1);
        assert_eq!(window.next(later).unwrap().cursor, 1);
        assert!(!window.failed(1, now, Duration::ZERO));
        window.add(ChangePage { changes: vec![change(9, 4)], next: 9, more: false }, later);
        assert_eq!(sent(&mut window, later), [9, 2, 1]);
    }

    #[test]
    fn an_answer_about_a_change_that_the_window_does_not_have_changes_nothing() {
        let now = Instant::now();
        let mut window = window(&[(1, 1)], now);
        window.delivered(77);
        window.failed(78, now, Duration::ZERO);
        assert_eq!(sent(&mut window, now), [1]);
    }
}

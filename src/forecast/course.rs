//! How the requests of one demand leave in the course of a forecast. Pure.

use super::climb::Seconds;

/// Moments of a forecast, and how many requests were sent until each.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Course {
    points: Vec<(Seconds, f64)>,
    gone_at: Option<Seconds>,
}

impl Course {
    /// Less than this of a request is none.
    const LITTLE: f64 = 1e-6;

    /// When the last request is sent; `None` if that needs a person.
    #[must_use]
    pub fn gone_at(&self) -> Option<Seconds> {
        self.gone_at
    }

    /// When the request with this place is sent; the first has place 1. `None` if that needs a person.
    #[must_use]
    pub fn sent_at(&self, place: u64) -> Option<Seconds> {
        let wanted = place as f64 - Self::LITTLE;
        let next = self.points.partition_point(|(_, sent)| *sent < wanted);
        let (to, upper) = *self.points.get(next)?;
        let Some((from, lower)) = next.checked_sub(1).map(|before| self.points[before]) else {
            return Some(to);
        };
        let share = (wanted - lower) / (upper - lower).max(Self::LITTLE);
        Some(from + share.clamp(0.0, 1.0) * (to - from))
    }

    pub(super) fn note(&mut self, at: Seconds, sent: f64) {
        // While nothing is sent, the first and the last moment are enough.
        if let [.., (_, first), (last_at, last)] = self.points.as_mut_slice()
            && sent - *first < Self::LITTLE
            && sent - *last < Self::LITTLE
        {
            *last_at = at;
        } else {
            self.points.push((at, sent));
        }
    }

    pub(super) fn end(&mut self, gone_at: Option<Seconds>, all: f64) {
        self.gone_at = gone_at;
        if let Some(at) = gone_at {
            self.points.push((at, all));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Allowance, Demand, ExpectedArrival, Outlook};
    use super::*;

    fn course(limit: Allowance, arrivals: &[(Seconds, f64)]) -> Course {
        let arrivals =
            arrivals.iter().map(|(at, count)| ExpectedArrival { at: *at, count: *count }).collect();
        let demand = Demand { limits: vec![0], arrivals, weight: 1.0, starts_at: Some(0.0) };
        Outlook { limits: vec![limit], demands: vec![demand] }.courses().remove(0)
    }

    fn is_at(course: &Course, place: u64, at: Seconds) {
        let sent_at = course.sent_at(place).unwrap();
        assert!((sent_at - at).abs() < 1e-3, "place {place} is sent at {sent_at}, not at {at}");
    }

    #[test]
    fn a_request_leaves_when_those_before_it_have_left_also_across_an_idle_time() {
        // Four at once, then two a second.
        let course = course(Allowance::slots(4, 2.0), &[(0.0, 10.0), (100.0, 5.0)]);
        is_at(&course, 1, 0.0);
        is_at(&course, 4, 0.0);
        is_at(&course, 6, 1.0);
        is_at(&course, 10, 3.0);
        is_at(&course, 11, 100.0);
        is_at(&course, 15, 100.5);
        assert_eq!(course.sent_at(16), None);
        assert!((course.gone_at().unwrap() - 100.5).abs() < 1e-3);
    }

    #[test]
    fn nothing_leaves_until_a_person_acts() {
        let limits = vec![Allowance::slots(4, 2.0)];
        let arrivals = vec![ExpectedArrival { at: 0.0, count: 3.0 }];
        let demands = vec![Demand { limits: vec![0], arrivals, weight: 1.0, starts_at: None }];
        let course = Outlook { limits, demands }.courses().remove(0);
        assert_eq!((course.sent_at(1), course.gone_at()), (None, None));
    }
}

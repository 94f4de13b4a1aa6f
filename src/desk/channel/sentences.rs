//! What people read of a channel, in sentences: `refundd status`, its list and its detail, and the page say the same.

use std::time::Duration;

use super::parts::MINUTE;
use super::{ChannelStatus, SuspensionStatus};
use crate::node::meter::Binds;
use crate::refund::State;
use crate::refund::text::counted;
use crate::store::{BankStatus, SuspendedBy};

/// When the backlog of a channel is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Drain {
    /// There is no backlog.
    Empty,
    In(Duration),
    /// Why nobody can say it.
    Unknown(String),
}

/// Why a channel that is not stopped has no forecast.
pub(in crate::desk) const UNMEASURED: &str =
    "it is unlimited, and its bank was not measured in the last minutes";
/// Why a channel is stopped whose nodes have different outages.
pub(super) const NO_NODE_CAN_SEND: &str = "no node that runs it can send";
const CLIMBS: &str = "; the rate climbs back while it accepts";
pub(in crate::desk) const RULE_UNKNOWN: &str = "the rule of a limit is not known";

impl SuspensionStatus {
    /// The cause, the person, its beginning, its end and its reason.
    pub fn sentence(&self) -> String {
        let (what, end) = (self.what("is"), self.until.map(|until| format!("until {until:.0}")));
        let end = end.unwrap_or_else(|| {
            let end = match self.suspended_by {
                SuspendedBy::All | SuspendedBy::Person | SuspendedBy::Credentials => "until somebody resumes",
                SuspendedBy::Breaker => "until a probe succeeds",
                SuspendedBy::Cooling => "for a time",
            };
            end.to_owned()
        });
        match self.suspended_by {
            SuspendedBy::Cooling => format!("{what} {end}: the bank answered {}", self.reason),
            _ => format!("{what}, {end}: {}", self.reason),
        }
    }

    /// The same of a suspension that has ended.
    pub fn past_sentence(&self) -> String {
        match (self.suspended_by, self.until) {
            (SuspendedBy::Cooling, Some(until)) => {
                format!("{} was to cool until {until:.0}: the bank answered {}", self.channel, self.reason)
            }
            (SuspendedBy::Cooling, None) => {
                format!("{} sent at a lower rate, because the bank had asked for slower", self.channel)
            }
            _ => format!("{}: {}", self.what("was"), self.reason),
        }
    }

    /// The cause, the person and its beginning.
    fn what(&self, is: &str) -> String {
        let since = self.since.map_or_else(String::new, |at| format!(" since {at:.0}"));
        let (name, by) = (&self.channel, self.by.as_deref().unwrap_or("nobody"));
        match self.suspended_by {
            SuspendedBy::All => format!("everything {is} paused by {by}{since}"),
            SuspendedBy::Person => format!("{name} {is} paused by {by}{since}"),
            SuspendedBy::Credentials => format!("{name} {is} suspended because of its credentials{since}"),
            SuspendedBy::Breaker => format!("{name} {is} suspended by its breaker{since}"),
            SuspendedBy::Cooling => format!("{name} cools"),
        }
    }

    /// As it stands in the answer to the request that ended it: nothing ends it any more.
    #[must_use]
    pub fn ended(self) -> Self {
        SuspensionStatus { lift: None, end_with: None, probe_in_seconds: None, ..self }
    }

    /// The sentence, with the next probe of a breaker and the command that ends it.
    pub fn with_way_out(&self) -> String {
        let end = self.end_with.as_ref().map(|command| format!(". End it with: {command}"));
        self.with_probe() + &end.unwrap_or_default()
    }

    /// The sentence, with the next probe of a breaker and the request over HTTP that ends it.
    pub fn with_request(&self) -> String {
        let end = match self.suspended_by {
            SuspendedBy::All => Some("POST /v1/resume".to_owned()),
            SuspendedBy::Person => Some(format!("POST /v1/channels/{}/resume", self.channel)),
            SuspendedBy::Credentials | SuspendedBy::Breaker | SuspendedBy::Cooling => self.lift.map(|lift| {
                format!("POST /v1/channels/{}/resume with {{\"lift\": \"{lift}\"}}", self.channel)
            }),
        };
        let end = end.map(|request| format!("; end it with {request}"));
        self.with_probe() + &end.unwrap_or_default()
    }

    fn with_probe(&self) -> String {
        let probe = self.next_probe().map(|probe| format!("; {probe}"));
        self.sentence() + &probe.unwrap_or_default()
    }

    fn next_probe(&self) -> Option<String> {
        let left = Duration::try_from_secs_f64(self.probe_in_seconds?).ok()?.as_secs();
        Some(match left {
            0 => "the next refund that is due probes the bank".to_owned(),
            1..120 => format!("the next probe in {left} s"),
            _ => format!("the next probe in {} min", left / 60),
        })
    }
}

impl ChannelStatus {
    /// When its backlog is gone.
    pub fn drain(&self) -> Drain {
        match (self.expected_seconds_to_drain, &self.no_forecast_because) {
            _ if self.backlog == 0 => Drain::Empty,
            (Some(seconds), _) => Drain::In(Duration::from_secs(seconds)),
            (None, why) => Drain::Unknown(why.clone().unwrap_or_default()),
        }
    }

    /// Why there is a backlog and no forecast.
    pub(super) fn why_no_forecast(&self) -> Option<String> {
        if self.backlog == 0 || self.expected_seconds_to_drain.is_some() {
            return None;
        }
        Some(self.why_stopped().unwrap_or_else(|| {
            let why = if self.forecast_is_old {
                "it was resumed a moment ago, and its refunds are not counted again yet"
            } else if self.limits.as_ref().is_some_and(Vec::is_empty) {
                UNMEASURED
            } else {
                RULE_UNKNOWN
            };
            why.to_owned()
        }))
    }

    /// Why nobody can say when it sends again, or when the bank takes what it sends. It has no forecast then.
    pub fn why_stopped(&self) -> Option<String> {
        let endless =
            self.suspensions.iter().find(|one| one.until.is_none()).map(|one| match one.suspended_by {
                SuspendedBy::All => "everything is paused until somebody resumes",
                SuspendedBy::Person => "it is paused until somebody resumes",
                SuspendedBy::Credentials => "its credentials are refused until somebody resumes",
                SuspendedBy::Breaker | SuspendedBy::Cooling => "its breaker stops it until a probe succeeds",
            });
        let why = endless.or(self.run_by.is_empty().then_some("no living node runs it"));
        why.or(self.outage)
            .map(str::to_owned)
            .or_else(|| self.nothing_accepted.as_ref().map(|refusing| refusing.text.clone()))
    }

    /// What to say of its deadlines while no refund is counted as late. The count supposes the full rate of the limits, so it proves
    /// nothing of a channel that sends more slowly, that has no limits, or that something else binds.
    pub fn none_late(&self) -> String {
        let has_no_limits = || match self.limits.as_deref() {
            None => Some("its limits are not known here".to_owned()),
            Some([]) => Some("it is unlimited".to_owned()),
            Some(_) => None,
        };
        let until = || {
            let last = self.suspensions.iter().filter_map(|one| one.until).max();
            last.map(|until| format!("it is suspended until {until:.0}"))
        };
        let slowed = || self.slowed_to_percent.map(|percent| format!("it sends at {percent} % of its rate"));
        let bound = || {
            let is_bound = matches!(self.binds, Binds::InFlight | Binds::Bank);
            is_bound.then(|| format!("`{}` binds the channel, not its limits", self.binds.as_str()))
        };
        if self.backlog == 0 {
            return "none: no refund is ready".to_owned();
        }
        let why = self.why_stopped().or_else(until).or_else(slowed).or_else(has_no_limits).or_else(bound);
        match why {
            Some(why) => format!("not forecast: {why}"),
            None => "none at the full rate of its limits".to_owned(),
        }
    }

    /// Why it sends slowly or not at all, beside what suspends it, and what needs a person.
    pub fn reasons(&self) -> Vec<String> {
        let name = &self.channel;
        let refuses = self.nothing_accepted.is_some();
        let climbs = match (refuses, &self.cooling) {
            (true, _) => String::new(),
            (false, Some(_)) => CLIMBS.to_owned(),
            (false, None) => format!("{CLIMBS}; for the full rate at once: refundd resume {name} --cooling"),
        };
        let lines = [
            self.nothing_accepted.as_ref().map(|refusing| format!("{name}: {}", refusing.text)),
            self.slowed_to_percent.map(|percent| {
                format!("{name} sends at {percent} % of its rate, because the bank asked for slower{climbs}")
            }),
            self.full.then(|| format!("{name}: the backlog is full, and new refunds are refused")),
            self.binds_sentence(),
            self.late.as_ref().map(|late| {
                let (refunds, from) = (late.refunds, late.from);
                match refunds {
                    1 => format!("{name}: 1 refund will pass its deadline at this rate, at {from:.0}"),
                    _ => format!(
                        "{name}: {} will pass their deadlines at this rate, the first at {from:.0}",
                        counted(refunds, "refund")
                    ),
                }
            }),
            self.review_sentence(),
            self.run_by.is_empty().then(|| format!("{name}: no living node runs it")),
        ];
        lines.into_iter().flatten().collect()
    }

    /// How many refunds wait for a person, and the command that lists them.
    pub fn review_sentence(&self) -> Option<String> {
        let (name, review) = (&self.channel, self.count(State::Review));
        let wait = if review == 1 { "waits" } else { "wait" };
        (review > 0).then(|| {
            let refunds = counted(review, "refund");
            format!("{name}: {refunds} {wait} for a person, see `refundd review --channel {name}`")
        })
    }

    /// What binds a channel that is not suspended, with its share and what that means.
    pub fn binds_sentence(&self) -> Option<String> {
        if let Binds::Paused | Binds::Cooling | Binds::Breaker | Binds::Nothing = self.binds {
            return None;
        }
        Some(format!("{}: bound by {}: {}", self.channel, self.binds_words(), meaning(self.binds)))
    }

    /// What binds it: the kind, the limit, and its share of the last minute or of the shorter time that was watched.
    pub fn binds_words(&self) -> String {
        let limit = self.binds_limit.as_ref().map(|limit| format!(" `{limit}`")).unwrap_or_default();
        let share = self.binds_share.map(|share| {
            format!(", {:.0} % of the {}", share * 100.0, last_seconds(self.binds_over_seconds))
        });
        format!("{}{limit}{}", self.binds.as_str(), share.unwrap_or_default())
    }
}

/// What a node lacks to send, as far as it reports that: the bank, Redis, or a claim. Nobody knows when it ends.
pub(super) fn outage_of(bank: Option<&BankStatus>, redis_is_away: bool) -> Option<&'static str> {
    if bank.is_some_and(|bank| bank.unreachable.is_some()) {
        Some("its bank is unreachable")
    } else if redis_is_away {
        Some("Redis is away or refuses")
    } else if bank.is_some_and(|bank| bank.blocked.is_some()) {
        Some("it is blocked: Redis or Postgres fails, or their clocks disagree")
    } else {
        None
    }
}

/// Of which time a share is: the last minute, or fewer seconds.
#[must_use]
pub fn last_seconds(over: Option<u32>) -> String {
    match over.filter(|over| *over < MINUTE) {
        Some(1) => "last second".to_owned(),
        Some(over) => format!("last {over} seconds"),
        None => "last minute".to_owned(),
    }
}

/// What it means that this binds a channel.
#[must_use]
pub fn meaning(binds: Binds) -> &'static str {
    match binds {
        Binds::Limit => "this limit grants no permit yet",
        Binds::Quota => "this limit is used up until its window ends",
        Binds::InFlight => "all slots of `max_in_flight` are in use, and the bank takes its time",
        Binds::Bank => "the way to the bank takes the time: setting up connections, or the round trip",
        Binds::Paused => "it is suspended until somebody resumes it, or until its end",
        Binds::Cooling => "the bank asked to wait",
        Binds::Breaker => "the outcomes of its requests suspend it",
        Binds::Nothing => "no refund waited, a wait has only just begun, or refundd itself is the slowest",
    }
}

//! A channel: one bank endpoint, the limits that must grant before anything is sent to it, and how
//! it is to be treated.
//!
//! Values only; reading them from the file is `config`'s business.

mod address;

use std::sync::Arc;
use std::time::Duration;

pub use address::BankAddress;
use rustls::pki_types::CertificateDer;
use secrecy::SecretString;

use crate::limiter::{Algorithm, Limit, Placement, Rule};
use crate::refund::id::{ChannelName, LimitName};
use crate::refund::inquiry::Trust;
use crate::refund::retry::RetryPolicy;
use crate::refund::{OnUnknown, Policy};

/// One channel as the configuration file describes it, checked.
#[derive(Debug, Clone)]
pub struct Channel {
    pub name: ChannelName,
    /// `http` or `https`, with a host.
    pub endpoint: hyper::Uri,
    /// Sent as the `Authorization` header, if set.
    pub authorization: Option<SecretString>,
    /// The only roots by which its bank is trusted; `None` for the system's.
    pub roots: Option<Roots>,
    /// All of these must grant; none is unlimited.
    pub limits: Vec<Arc<Limit>>,
    /// From the first byte of the request to the last of the answer.
    pub timeout: Duration,
    /// DNS, TCP and TLS together.
    pub connect_timeout: Duration,
    /// How long a claim holds a refund; outlives `timeout`.
    pub lease: Duration,
    /// Calls in flight on each node.
    pub max_in_flight: u32,
    /// Past this many ready refunds, HTTP and `enqueue()` refuse more.
    pub max_backlog: Option<u64>,
    pub on_unknown: OnUnknown,
    /// How the bank is asked what became of a refund, if it can be.
    pub inquiry: Option<Arc<Inquiry>>,
    /// A JSON pointer to the bank's own reference in its answers.
    pub bank_ref: Option<String>,
    pub retry: RetryPolicy,
    /// How long the channel cools when the bank asks us to wait without saying how long.
    pub cool_down: Duration,
    /// Whether it begins again slowly after that.
    pub adaptive: bool,
    /// Looked through in order before the built-in table of what an answer means.
    pub verdicts: Vec<VerdictRule>,
}

/// Root certificates, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots(pub Arc<[CertificateDer<'static>]>);

/// How a bank is asked what became of a refund.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inquiry {
    /// `http` or `https`, with a host; `{request_id}` in its path or query stands for the refund's key.
    pub url: String,
    pub trust: Trust,
    /// Limits of its own, all of which must grant; `None` for those of the channel.
    pub limits: Option<Vec<Arc<Limit>>>,
    /// A JSON pointer to the word that says how the refund stands.
    pub status: String,
    pub words: Words,
    /// A JSON pointer and the text there by which this bank says "not found", with status 404 or 200; `None` takes
    /// every 404 whose body is a JSON object for that.
    pub not_found: Option<(String, String)>,
}

/// What a bank's words mean; any other proves nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Words {
    pub succeeded: Vec<String>,
    pub pending: Vec<String>,
    pub rejected: Vec<String>,
}

impl Inquiry {
    /// Where the key stands in the url.
    pub const KEY: &str = "{request_id}";

    /// The address under which one refund is asked about.
    ///
    /// # Errors
    /// When that is no address, which the configuration check finds out.
    pub fn url_of(&self, key: &str) -> Result<hyper::Uri, hyper::http::uri::InvalidUri> {
        self.url.replace(Self::KEY, key).parse()
    }

    /// Whether a 404 of any program on the way, with a JSON object as its body, would make refundd send a refund again.
    pub fn believes_any_json_404(&self) -> bool {
        self.trust.not_found_is_final && self.not_found.is_none()
    }
}

/// One line of a channel's own reading of answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerdictRule {
    /// The HTTP status it speaks of.
    pub status: u16,
    /// A JSON pointer into the body and the text found there; `None` speaks of any body.
    pub when: Option<(String, String)>,
    pub outcome: RuleOutcome,
}

/// What a rule may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleOutcome {
    Succeeded,
    Accepted,
    Rejected,
    NotExecuted,
    Unknown,
    Review,
}

impl Channel {
    /// Time for the claim, the settling and clocks, on top of the time-outs: a first byte leaves
    /// only while this much of the lease and the whole time-out still lie ahead.
    pub const LEASE_MARGIN: Duration = Duration::from_secs(5);

    /// What its limit is called that it gets while its bank wants it slower: `CHANNEL.slowed`.
    pub const SLOWED: &str = "slowed";

    /// Where its bank is.
    #[must_use]
    pub fn bank_address(&self) -> BankAddress {
        BankAddress::of(self)
    }

    /// How its refunds are settled.
    #[must_use]
    pub fn policy(&self) -> Policy {
        Policy {
            retry: self.retry,
            cool_down: self.cool_down,
            on_unknown: self.on_unknown,
            inquires: self.inquiry.is_some(),
        }
    }

    /// How long after its first send a refund may be leased to be sent again under the same key; `None`
    /// if this channel never does that.
    #[must_use]
    pub fn resend_within(&self) -> Option<Duration> {
        match self.on_unknown {
            OnUnknown::Resend { key_retention } => Some(key_retention.saturating_sub(self.lease)),
            OnUnknown::Review | OnUnknown::Inquire => None,
        }
    }

    /// The same channel under one more limit, which lets through a share of its rate, one at a time. It is
    /// its limit with the shortest window that is shared down: that is the one a bank complains about.
    #[must_use]
    pub fn slowed_to(&self, percent: u32) -> Option<Channel> {
        let limit = self.limits.iter().min_by_key(|limit| limit.rule.per)?;
        let Rule { permits, per, lateness, .. } = limit.rule;
        // One at a time, but on no grid: a grid of its own might never meet that of a paced limit. Slots of a paced
        // limit are seldom just when the next token comes; without a second one every other slot would be missed. Far
        // below the full rate that is what is wanted: two tokens after a pause are two neighbouring slots, which is what
        // a bank that looks at the gap refused.
        let burst = if limit.rule.algorithm.is_paced() && percent >= Self::NEIGHBOURS { 2 } else { 1 };
        let algorithm = Algorithm::TokenBucket { burst };
        let share = u64::from(permits) * u64::from(percent);
        let lateness = lateness.max(Duration::from_millis(2));
        let slow = if share >= 100 {
            Rule { algorithm, permits: u32::try_from(share / 100).ok()?, per, lateness }
        } else {
            let per = per.as_micros() * 100 / u128::from(share.max(1));
            Rule { algorithm, permits: 1, per: Duration::from_micros(u64::try_from(per).ok()?), lateness }
        };
        let mut channel = self.clone();
        channel.limits.push(Arc::new(Limit {
            name: LimitName::derived(self.name.as_str(), Self::SLOWED),
            rule: slow,
            ahead: limit.ahead,
            placement: Placement::Shared,
        }));
        Some(channel)
    }

    /// From this share on, in percent, a slowed channel uses neighbouring slots of a paced limit.
    const NEIGHBOURS: u32 = 70;

    /// The time between two permits of the limit with the shortest window; `None` if it is unlimited.
    #[must_use]
    pub fn spacing(&self) -> Option<Duration> {
        let limit = self.limits.iter().min_by_key(|limit| limit.rule.per)?;
        Some(limit.rule.per / limit.rule.permits.max(1))
    }

    /// The lease when the file names none.
    #[must_use]
    pub fn default_lease(timeout: Duration, connect_timeout: Duration) -> Duration {
        timeout + connect_timeout + 2 * Self::LEASE_MARGIN
    }
}

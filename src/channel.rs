//! A channel: one bank endpoint, the limits that must grant a permit before each request, and the policies for its
//! refunds.
//!
//! Values only; `config` reads them from the file.

mod address;
mod breaker;
mod credentials;
mod networks;
mod rules;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use address::BankAddress;
pub use breaker::Breaker;
pub use credentials::{Authorization, ClientIdentity, Roots, Signing, SigningKey, TokenSource};
pub use networks::{Network, Networks, WhyNot};
pub use rules::{AnswerRule, RuleOutcome};

use crate::limiter::{Algorithm, Limit, Placement, Rule};
use crate::refund::draft::DraftRules;
use crate::refund::id::{ChannelName, LimitName};
use crate::refund::inquiry::Trust;
use crate::refund::retry::RetryPolicy;
use crate::refund::{AmountBounds, OnUnknown, Policy};

/// One channel of the configuration file, with checked values.
#[derive(Clone, PartialEq, Eq)]
pub struct Channel {
    pub name: ChannelName,
    /// `http` or `https`, with a host.
    pub endpoint: hyper::Uri,
    /// The name of the account at the bank that the credentials belong to.
    pub account: Option<String>,
    /// Sent as the `Authorization` header, if set.
    pub authorization: Option<Authorization>,
    /// Where the channel gets tokens for its `Authorization` header; never beside `authorization`.
    pub token: Option<TokenSource>,
    /// The only root certificates that the channel trusts; `None` for the system's roots.
    pub roots: Option<Roots>,
    /// Shown to a bank that asks for a client certificate.
    pub client_identity: Option<ClientIdentity>,
    /// Signs every send and every inquiry.
    pub signing: Option<Signing>,
    /// The addresses that the channel may connect to.
    pub networks: Networks,
    /// All of these limits must grant a permit. An empty list means an unlimited channel.
    pub limits: Vec<Arc<Limit>>,
    /// The longest time from the first byte of the request to the last byte of the answer.
    pub timeout: Duration,
    /// The longest time for DNS, TCP and TLS together.
    pub connect_timeout: Duration,
    /// A connection that was idle for this long is not used again.
    pub idle_timeout: Duration,
    /// How long a claim leases a refund; longer than `timeout`.
    pub lease: Duration,
    /// The most requests in progress on each node.
    pub max_in_flight: u32,
    /// The number of ready refunds above which HTTP and `enqueue()` refuse new ones; `None` for no bound.
    pub max_backlog: Option<u64>,
    pub on_unknown: OnUnknown,
    /// How to ask the bank about a refund; `None` if the bank cannot be asked.
    pub inquiry: Option<Arc<Inquiry>>,
    /// A JSON pointer to the bank's own reference in its answers.
    pub bank_ref: Option<String>,
    /// Whether refunds and bank references of the channel may have numbers that look like card numbers.
    pub accepts_card_numbers: bool,
    /// The highest amount of one refund.
    pub amount_bounds: AmountBounds,
    pub retry: RetryPolicy,
    /// How long the channel cools when the bank asks to slow down and names no time.
    pub cool_down: Duration,
    /// Whether the channel sends slowly at first after it cooled.
    pub adaptive: bool,
    /// When refundd suspends the channel by itself; `None` for never.
    pub breaker: Option<Breaker>,
    /// In the order of the file; they come before the built-in table.
    pub answer_rules: Vec<AnswerRule>,
}

/// Without the queries of its addresses, where some banks want a key, and without its `Authorization` header.
impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Channel");
        shown.field("name", &self.name).field("address", &self.bank_address()).field("limits", &self.limits);
        shown.finish_non_exhaustive()
    }
}

/// The place of the bank's own reference in its answers, and whether it may look like a card number.
#[derive(Debug, Clone, Copy)]
pub struct ReferenceAt<'a> {
    /// A JSON pointer.
    pub pointer: &'a str,
    pub accepts_card_numbers: bool,
}

/// How to ask a bank about a refund.
#[derive(Clone, PartialEq, Eq)]
pub struct Inquiry {
    /// `http` or `https`, with a host; `{request_id}` in its path or query stands for the request id.
    pub url: String,
    /// The inquiry's own `Authorization` header; see [`Channel::inquiry_authorization`].
    pub authorization: Option<Authorization>,
    pub trust: Trust,
    /// The inquiry's own limits, which all must grant a permit; `None` to use the channel's limits.
    pub limits: Option<Vec<Arc<Limit>>>,
    /// A JSON pointer to the status text in the bank's answer.
    pub status: String,
    pub status_texts: StatusTexts,
    /// A JSON pointer and the text at it that means "not found", in an answer with status 404 or 200. With `None`
    /// every 404 whose body is a JSON object means "not found".
    pub not_found: Option<(String, String)>,
}

/// The status texts of a bank, by their meaning. Any other text proves nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusTexts {
    pub succeeded: Vec<String>,
    pub pending: Vec<String>,
    pub rejected: Vec<String>,
}

/// Without its URL, whose query may have a key.
impl fmt::Debug for Inquiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inquiry").field("trust", &self.trust).finish_non_exhaustive()
    }
}

impl Inquiry {
    /// The place in the URL that the request id replaces.
    pub const KEY: &str = "{request_id}";

    /// The address for an inquiry about the refund with this request id.
    ///
    /// # Errors
    /// When the result is no address. The configuration check refuses such a URL.
    pub fn url_of(&self, key: &str) -> Result<hyper::Uri, hyper::http::uri::InvalidUri> {
        self.url.replace(Self::KEY, key).parse()
    }

    /// Whether inquiries at this URL go to the scheme, host and port of the endpoint.
    pub fn is_at(url: &str, endpoint: &hyper::Uri) -> bool {
        address::is_one_origin(url, &endpoint.to_string())
    }

    /// Whether any 404 with a JSON object as its body makes refundd send a refund again, even the 404 of a proxy.
    pub fn believes_any_json_404(&self) -> bool {
        self.trust.not_found_is_final && self.not_found.is_none()
    }
}

impl Channel {
    /// Time for the claim, the settling and clock differences, on top of the time-outs. A first byte leaves only
    /// while at least this margin and the whole time-out remain of the lease.
    pub const LEASE_MARGIN: Duration = Duration::from_secs(5);

    /// The last part of the name of a slowed channel's extra limit: `CHANNEL.slowed`.
    pub const SLOWED: &str = "slowed";

    /// The addresses of the channel's bank, without secrets.
    #[must_use]
    pub fn bank_address(&self) -> BankAddress {
        BankAddress::of(self)
    }

    /// The `Authorization` header of inquiries: their own, or the channel's if they go to the origin of `endpoint`.
    /// Another host or port never gets the channel's header.
    #[must_use]
    pub fn inquiry_authorization(&self) -> Option<&Authorization> {
        let inquiry = self.inquiry.as_ref()?;
        let of_channel =
            || self.authorization.as_ref().filter(|_| Inquiry::is_at(&inquiry.url, &self.endpoint));
        inquiry.authorization.as_ref().or_else(of_channel)
    }

    /// Whether inquiries carry a token of the channel: they go to the origin of `endpoint`, and have no header of their own.
    #[must_use]
    pub fn inquires_with_token(&self) -> bool {
        self.token.is_some()
            && self.inquiry.as_ref().is_some_and(|inquiry| {
                inquiry.authorization.is_none() && Inquiry::is_at(&inquiry.url, &self.endpoint)
            })
    }

    /// Where the bank's own reference stands in its answers; `None` if refundd does not read it.
    #[must_use]
    pub fn reference_at(&self) -> Option<ReferenceAt<'_>> {
        let accepts_card_numbers = self.accepts_card_numbers;
        self.bank_ref.as_deref().map(|pointer| ReferenceAt { pointer, accepts_card_numbers })
    }

    /// What the channel demands of a draft.
    #[must_use]
    pub fn draft_rules(&self) -> DraftRules {
        let (accepts_card_numbers, amount_bounds) = (self.accepts_card_numbers, self.amount_bounds.clone());
        DraftRules { accepts_card_numbers, amount_bounds }
    }

    /// The policy by which the channel's refunds are settled.
    #[must_use]
    pub fn policy(&self) -> Policy {
        Policy {
            retry: self.retry,
            cool_down: self.cool_down,
            on_unknown: self.on_unknown,
            inquires: self.inquiry.is_some(),
        }
    }

    /// How long after its first send a refund may be leased for a resend; `None` if this channel makes no resends.
    #[must_use]
    pub fn resend_within(&self) -> Option<Duration> {
        self.on_unknown.key_retention().map(|retention| retention.saturating_sub(self.lease))
    }

    /// The channel with one more limit, which grants `percent` of the rate, one permit at a time. `None` for an
    /// unlimited channel. The rate is that of the limit with the shortest window: banks complain about that one.
    #[must_use]
    pub fn slowed_to(&self, percent: u32) -> Option<Channel> {
        let limit = self.limits.iter().min_by_key(|limit| limit.rule.per)?;
        let Rule { permits, per, lateness, .. } = limit.rule;
        // A token bucket, because it has no slots: slots of its own might never meet the slots of a paced limit. A
        // slot of a paced limit seldom opens just when a token arrives. With a burst of 1, every other slot would be
        // missed. Far below the full rate that is right: a burst of 2 uses two neighbouring slots after a pause. A
        // bank that looks at the gap has refused just that.
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

    /// At this percentage or more, a slowed channel may use neighbouring slots of a paced limit.
    const NEIGHBOURS: u32 = 70;

    /// The mean time between two permits of the limit with the shortest window; `None` for an unlimited channel.
    #[must_use]
    pub fn spacing(&self) -> Option<Duration> {
        self.shortest_rule().map(|rule| rule.per / rule.permits.max(1))
    }

    /// The step in which the rate climbs back after the bank asked for slower; `None` for an unlimited channel.
    #[must_use]
    pub fn climb_step(&self) -> Option<Duration> {
        self.shortest_rule().map(Rule::climb_step)
    }

    fn shortest_rule(&self) -> Option<&Rule> {
        self.limits.iter().map(|limit| &limit.rule).min_by_key(|rule| rule.per)
    }

    /// The `idle_timeout` of a channel for which the file names none. Some servers close idle connections after 5 s.
    pub const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
    /// The least `idle_timeout` that a file may name.
    pub const LEAST_IDLE_TIMEOUT: Duration = Duration::from_millis(100);

    /// The lease of a channel for which the file names no lease.
    #[must_use]
    pub fn default_lease(timeout: Duration, connect_timeout: Duration) -> Duration {
        timeout + connect_timeout + 2 * Self::LEASE_MARGIN
    }
}

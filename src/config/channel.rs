//! `[channel.NAME]`: a bank endpoint with its limits and policies.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;

use crate::channel::{Authorization, Channel};
use crate::refund::OnUnknown;
use crate::refund::id::ChannelName;

use super::address::{TO_A_BANK, require_address, required_uri};
use super::duration::say;
use super::field::Field;
use super::granting::granting;
use super::limit::Limits;
use super::pointer::require_pointer;
use super::section::{Section, listed, nearest};
use super::{
    account, addresses, amounts, authorization, breaker, certificates, inquiry, retry, signing, token,
    verdict,
};

pub(super) const KEYS: &[&str] = &[
    "endpoint",
    "plain_http",
    "limits",
    "timeout",
    "connect_timeout",
    "idle_timeout",
    "lease",
    "max_in_flight",
    "max_backlog",
    "on_unknown",
    "key_retention",
    "inquiry",
    "bank_ref",
    "card_numbers",
    "account",
    "authorization_file",
    "authorization_credential",
    "token",
    "ca_file",
    "client_certificate_file",
    "client_key_file",
    "signing",
    "addresses",
    "max_amount_minor",
    "retry",
    "cool_down",
    "adaptive",
    "breaker",
    "verdict",
];
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
pub(super) const MAX_IN_FLIGHT: u32 = 16;
pub(super) const COOL_DOWN: Duration = Duration::from_secs(5);

const DAY: Duration = Duration::from_hours(24);
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_mins(10);
const IDLE_TIMEOUTS: RangeInclusive<Duration> = Channel::LEAST_IDLE_TIMEOUT..=Duration::from_hours(1);
const CONNECT_TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_mins(10);

/// Reads one channel; `None` after a complaint. `known` has every limit of the file.
pub(super) fn read(name: &str, section: &Section<'_>, known: &Limits) -> Option<Arc<Channel>> {
    let source = section.source;
    section.keys(KEYS, &[authorization::REFUSED]);
    let name = ChannelName::new(name).inspect_err(|error| section.complain(error.to_string())).ok();
    let accepts_plain_http = section.is_accepted("plain_http");
    let endpoint = endpoint(section, accepts_plain_http);
    let limits = granting(section, known);
    let mut timeout = section.duration("timeout", TIMEOUT);
    timeout.within(source, &TIMEOUTS);
    let mut connect_timeout = section.duration("connect_timeout", CONNECT_TIMEOUT);
    connect_timeout.within(source, &CONNECT_TIMEOUTS);
    let mut idle_timeout = section.duration("idle_timeout", Channel::IDLE_TIMEOUT);
    idle_timeout.within(source, &IDLE_TIMEOUTS);
    let mut max_in_flight = section.integer("max_in_flight", i64::from(MAX_IN_FLIGHT));
    max_in_flight.within(source, &(1..=10_000));
    let max_backlog = section.optional_integer("max_backlog").map(|mut field| {
        let sound = field.value >= 1;
        field.require(
            source,
            sound,
            || "must be at least 1; leave it out for no bound, and to take nothing more pause the channel",
        );
        field.value
    });
    let is_secure = endpoint.as_ref().is_some_and(|uri| uri.scheme_str() == Some("https"));
    let account = account::read(section);
    let authorization = authorization::read(section).map(Authorization);
    let token = section.has("token").then(|| {
        if authorization.is_some() {
            section.complain("has both `token` and a fixed `Authorization` header; keep one of them");
        }
        token::read(&section.section("token"), is_secure, accepts_plain_http)
    });
    let inquiry = section.has("inquiry").then(|| {
        let of_channel = inquiry::OfChannel {
            limits: known,
            endpoint: endpoint.as_ref(),
            is_authorized: authorization.is_some() || token.is_some(),
            accepts_plain_http,
            timeout: timeout.is_sound().then_some(timeout.value),
        };
        inquiry::read(&section.section("inquiry"), &of_channel)
    });
    let inquiry_limits = inquiry.iter().flatten().filter_map(|inquiry| inquiry.limits.as_ref());
    let all_limits = limits.iter().chain(inquiry_limits).flatten();
    let ahead = all_limits.map(|limit| limit.ahead).max().unwrap_or_default();
    let lease = lease(section, &timeout, &connect_timeout, ahead);
    let on_unknown = on_unknown(section, inquiry.is_some(), lease);
    let bank_ref = section.optional_text("bank_ref").map(|mut field| {
        require_pointer(source, &mut field);
        let is_whole_answer = field.value.is_empty();
        field.require(source, !is_whole_answer, || "must name a place inside the answer, such as \"/id\"");
        field.value
    });
    let inquires_securely = inquiry.iter().flatten().any(|inquiry| inquiry.url.starts_with("https:"));
    let is_secure = is_secure || inquires_securely;
    let roots = certificates::roots(section, is_secure);
    let client_identity = certificates::client_identity(section, is_secure);
    let signing = section.has("signing").then(|| signing::read(&section.section("signing")));
    let inquiry_url = inquiry.iter().flatten().find_map(|inquiry| inquiry.url_of("key").ok());
    let token_url = token.iter().flatten().map(|token| &token.url);
    let urls = endpoint.iter().chain(&inquiry_url).chain(token_url);
    let networks = addresses::read(section, &urls.filter_map(Uri::host).collect::<Vec<_>>());
    let amount_bounds = amounts::read_most(section);
    let retry = retry::read(&section.section("retry"));
    let mut cool_down = section.duration("cool_down", COOL_DOWN);
    cool_down.within(source, &(Duration::from_millis(100)..=DAY));
    let breaker = breaker::read(section);
    let answer_rules = verdict::read_all(section);
    Some(Arc::new(Channel {
        name: name?,
        endpoint: endpoint?,
        account,
        authorization,
        // `None` also after a complaint, which refuses the whole file.
        token: token.flatten(),
        roots,
        client_identity,
        // `None` also after a complaint, which refuses the whole file.
        signing: signing.flatten(),
        networks,
        limits: limits?,
        timeout: timeout.value,
        connect_timeout: connect_timeout.value,
        idle_timeout: idle_timeout.value,
        lease,
        max_in_flight: u32::try_from(max_in_flight.value).ok()?,
        max_backlog: max_backlog.and_then(|bound| u64::try_from(bound).ok()),
        on_unknown,
        // `None` also for an inquiry that cannot be read; the complaint about it refuses the whole file.
        inquiry: inquiry.flatten(),
        bank_ref,
        accepts_card_numbers: section.is_accepted("card_numbers"),
        amount_bounds,
        retry,
        cool_down: cool_down.value,
        adaptive: section.boolean("adaptive", true).value,
        breaker,
        answer_rules,
    }))
}

fn endpoint(section: &Section<'_>, accepts_plain_http: bool) -> Option<Uri> {
    let why = "it is the address refunds are POSTed to";
    required_uri(section, "endpoint", why, "https://gateway.example/acme/refunds", |field, uri| {
        require_address(section.source, field, uri, &TO_A_BANK, accepts_plain_http);
    })
}

/// The time of a lease. `ahead` is the longest of the limits of sends and of inquiries: both wait under the same lease.
fn lease(
    section: &Section<'_>,
    timeout: &Field<Duration>,
    connect_timeout: &Field<Duration>,
    ahead: Duration,
) -> Duration {
    let source = section.source;
    let default = Channel::default_lease(timeout.value, connect_timeout.value);
    let mut lease = section.duration("lease", default);
    if !(timeout.is_sound() && connect_timeout.is_sound()) {
        return default;
    }
    // A claim may commit `ahead` of its window. The connection opens during that time, so the longer one counts.
    let waiting = ahead.max(connect_timeout.value);
    let waiting_for = if ahead > connect_timeout.value { "ahead" } else { "connect_timeout" };
    let least = timeout.value + waiting + Channel::LEASE_MARGIN;
    let way_out = if default >= least {
        "raise it, or leave it out".to_owned()
    } else {
        format!("set `lease` to at least \"{}\", or lower `{waiting_for}`", say(least))
    };
    lease.require(source, lease.value >= least, || {
        format!(
            "must be at least {}, which is timeout ({}) + {waiting_for} ({}) + {} to spare, or a refund would count \
             as unknown while the bank may still answer; {way_out}",
            say(least),
            say(timeout.value),
            say(waiting),
            say(Channel::LEASE_MARGIN)
        )
    });
    lease.require(
        source,
        lease.value <= DAY,
        || "must be at most 1d: refunds that a dead node was sending wait until their leases end",
    );
    lease.value
}

/// The policy for a refund that may have been executed. `lease` is the longest time that a send takes.
fn on_unknown(section: &Section<'_>, inquires: bool, lease: Duration) -> OnUnknown {
    let source = section.source;
    let mut field = section.text("on_unknown", "review");
    let mut retention = section.optional_duration("key_retention");
    if let Some(retention) = &mut retention {
        retention.require(source, retention.value > lease, || {
            format!(
                "must be longer than one lease ({}), or no refund could ever be sent again in time",
                say(lease)
            )
        });
        retention.require(
            source,
            retention.value <= 366 * DAY,
            || "must be at most 366d; how long does this bank really recognise an `Idempotency-Key`?",
        );
    }
    match field.value.as_str() {
        "review" => OnUnknown::Review,
        "inquire" => {
            field.require(
                source,
                inquires,
                || "needs `inquiry`, which says how refundd asks this bank what became of a refund",
            );
            OnUnknown::Inquire
        }
        "resend" => {
            let faulty = section.has("key_retention");
            field.require(source, faulty, || {
                "needs `key_retention`, how long this bank recognises an `Idempotency-Key`: after that a repeat is a \
                 second refund"
            });
            match retention {
                Some(retention) => OnUnknown::Resend { key_retention: retention.value },
                None => OnUnknown::Review,
            }
        }
        other => {
            let known = ["review", "inquire", "resend"];
            let requirement = match nearest(other, &known) {
                Some(near) => format!("no such policy; did you mean `{near}`?"),
                None => format!("no such policy; use one of {}", listed(&known)),
            };
            field.require(source, false, || requirement);
            OnUnknown::Review
        }
    }
}

//! `[channel.NAME]`: a bank endpoint and how it is to be treated.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::limits::Limits;
use super::section::{Section, listed, nearest};
use super::{duration, secret};
use crate::channel::{Channel, RuleOutcome, VerdictRule};
use crate::limiter::Limit;
use crate::refund::retry::RetryPolicy;
use crate::refund::{ChannelName, LimitName};

const KEYS: [&str; 14] = [
    "endpoint",
    "limits",
    "timeout",
    "connect_timeout",
    "lease",
    "max_in_flight",
    "max_backlog",
    "on_unknown",
    "authorization_file",
    "authorization_credential",
    "retry",
    "cool_down",
    "verdict",
    "inquiry",
];

pub(super) fn read(root: &Section<'_>, limits: &Limits) -> BTreeMap<ChannelName, Arc<Channel>> {
    let mut channels = BTreeMap::new();
    for (name, section) in root.section("channel").sections() {
        match ChannelName::new(&name) {
            Err(error) => section.complain(error.to_string()),
            Ok(name) => {
                if let Some(channel) = channel(&section, &name, limits) {
                    channels.insert(name, Arc::new(channel));
                }
            }
        }
    }
    channels
}

fn channel(section: &Section<'_>, name: &ChannelName, limits: &Limits) -> Option<Channel> {
    let source = section.source;
    section.keys(
        &KEYS[..13],
        &[
            ("inquiry", "comes with a later version; this one shows what is unknown to a person"),
            ("key_retention", "comes with a later version, with on_unknown = \"resend\""),
            ("limit", "name them in a list: limits = [\"acme\"], or limits = [] for unlimited"),
            ("rate", "rates are limits of their own: a [limit.NAME] section, and limits = [\"NAME\"] here"),
            ("url", "is called `endpoint`"),
        ],
    );
    let endpoint = endpoint(section);
    let chosen = chosen_limits(section, limits);
    let mut timeout = section.duration("timeout", Duration::from_secs(10));
    let timeout_holds = timeout.within(source, &(Duration::from_millis(100)..=Duration::from_mins(10)));
    let mut connect = section.duration("connect_timeout", Duration::from_secs(5));
    let connect_holds = connect.within(source, &(Duration::from_millis(100)..=Duration::from_mins(1)));
    let least = timeout.value + connect.value + Channel::LEASE_MARGIN;
    let mut lease = section.duration("lease", Channel::default_lease(timeout.value, connect.value));
    let lease_holds = lease.law(source, !(timeout_holds && connect_holds) || lease.value >= least, || {
        format!(
            "must be at least \"{}\": the lease outlives timeout + connect_timeout by {} s, or a refund under way would be taken for unknown",
            duration::say(least), Channel::LEASE_MARGIN.as_secs()
        )
    });
    let mut in_flight = section.integer("max_in_flight", 16);
    let in_flight_holds = in_flight.within(source, &(1..=10_000));
    let max_backlog = section.optional_integer("max_backlog").map(|mut bound| {
        bound.law(source, bound.value >= 1, || "must be at least 1; leave it out for no bound");
        bound.value
    });
    let mut on_unknown = section.text("on_unknown", "review");
    let policy = on_unknown.value.clone();
    on_unknown.law(source, policy == "review", || match policy.as_str() {
        "inquire" | "resend" => {
            "comes with a later version; this one knows only \"review\": a person decides"
        }
        _ => "must be \"review\"",
    });
    let mut cool_down = section.duration("cool_down", Duration::from_secs(5));
    let cool_down_holds = cool_down.within(source, &(Duration::from_millis(100)..=Duration::from_hours(1)));
    let retry = retry(section);
    let authorization = authorization(section);
    let verdicts: Option<Vec<VerdictRule>> = section.tables("verdict").iter().map(rule).collect();
    if !(timeout_holds
        && connect_holds
        && lease_holds
        && in_flight_holds
        && on_unknown.is_sound()
        && cool_down_holds)
    {
        return None;
    }
    Some(Channel {
        name: name.clone(),
        endpoint: endpoint?,
        authorization: authorization.ok()?,
        limits: chosen?,
        timeout: timeout.value,
        connect_timeout: connect.value,
        lease: lease.value,
        max_in_flight: u32::try_from(in_flight.value).ok()?,
        max_backlog: max_backlog.and_then(|bound| u64::try_from(bound).ok()),
        retry: retry?,
        cool_down: cool_down.value,
        verdicts: verdicts?,
    })
}

fn endpoint(section: &Section<'_>) -> Option<hyper::Uri> {
    let mut field = section.required_text(
        "endpoint",
        "say where refunds are POSTed, such as \"https://gateway.example/acme/refunds\"",
    )?;
    let uri: Option<hyper::Uri> = field.value.parse().ok();
    let whole = uri.as_ref().is_some_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
    });
    let source = section.source;
    let sound = field.law(source, whole, || "must be a whole address that starts with https:// or http://")
        && field.law(
            source,
            uri.as_ref().and_then(hyper::Uri::authority).is_some_and(|a| !a.as_str().contains('@')),
            || "must hold no user and password; put the Authorization header's value into authorization_file",
        );
    uri.filter(|_| sound)
}

fn chosen_limits(section: &Section<'_>, limits: &Limits) -> Option<Vec<Arc<Limit>>> {
    let mut field = section.required_texts(
        "limits",
        "name the limits that must all grant, such as limits = [\"acme\"]; nobody is unlimited by accident, so that is said with limits = []",
    )?;
    let known: Vec<&str> = limits.keys().map(LimitName::as_str).collect();
    let names = field.value.clone();
    let mut chosen: Vec<Arc<Limit>> = Vec::new();
    for name in &names {
        let found = limits.iter().find(|(known, _)| known.as_str() == name);
        let law = || match nearest(name, &known) {
            Some(near) => format!("names `{name}`, and there is no [limit.{name}]; did you mean `{near}`?"),
            None if known.is_empty() => format!("names `{name}`, and there is no [limit.{name}]"),
            None => format!("names `{name}`, and there is no [limit.{name}]; there are {}", listed(&known)),
        };
        field.law(section.source, found.is_some(), law);
        let twice = names.iter().filter(|other| *other == name).count() > 1;
        field.law(section.source, !twice, || format!("names `{name}` twice"));
        chosen.extend(found.and_then(|(_, limit)| limit.clone()));
    }
    field.is_sound().then_some(chosen)
}

fn retry(section: &Section<'_>) -> Option<RetryPolicy> {
    let section = section.section("retry");
    section.keys(&["base", "cap", "sends"], &[]);
    let source = section.source;
    let default = RetryPolicy::default();
    let mut base = section.duration("base", default.base);
    let base_holds = base.within(source, &(Duration::from_millis(10)..=Duration::from_hours(1)));
    let mut cap = section.duration("cap", default.cap.max(base.value));
    let cap_holds = cap.within(source, &(Duration::from_millis(10)..=Duration::from_hours(24)))
        && cap.law(source, cap.value >= base.value, || "must be at least `base`");
    let mut sends = section.integer("sends", i64::from(default.sends));
    let sends_hold = sends.within(source, &(1..=1000));
    (base_holds && cap_holds && sends_hold).then_some(())?;
    Some(RetryPolicy { base: base.value, cap: cap.value, sends: u32::try_from(sends.value).ok()? })
}

/// The value of the Authorization header, `None` if there shall be none, an error if it was complained about.
fn authorization(section: &Section<'_>) -> Result<Option<secrecy::SecretString>, ()> {
    match (section.optional_text("authorization_file"), section.optional_text("authorization_credential")) {
        (None, None) => Ok(None),
        (Some(file), None) => secret::file(section, file).map(Some).ok_or(()),
        (None, Some(name)) => secret::credential_of(section, name).map(Some).ok_or(()),
        (Some(_), Some(mut name)) => {
            name.law(section.source, false, || "and `authorization_file` are both there; keep one");
            Err(())
        }
    }
}

fn rule(section: &Section<'_>) -> Option<VerdictRule> {
    section.keys(&["status", "pointer", "equals", "outcome"], &[]);
    let source = section.source;
    let status = section.required_integer("status", "say which HTTP status the rule speaks of");
    let outcome = section.required_text("outcome", "say what the answer means");
    let pointer = section.optional_text("pointer");
    let equals = section.optional_text("equals");
    let when = match (pointer, equals) {
        (None, None) => Ok(None),
        (Some(mut pointer), Some(equals)) => {
            let holds = pointer.value.is_empty() || pointer.value.starts_with('/');
            pointer
                .law(source, holds, || "must be a JSON pointer (RFC 6901), such as \"/result/code\"")
                .then_some(Some((pointer.value, equals.value)))
                .ok_or(())
        }
        (Some(_), None) | (None, Some(_)) => {
            section.complain(
                "`pointer` and `equals` go together: where in the body to look, and what must stand there",
            );
            Err(())
        }
    };
    let (mut status, mut outcome) = (status?, outcome?);
    let status_holds = status.within(source, &(200..=599));
    let word = outcome.value.clone();
    let read = match word.as_str() {
        "succeeded" => Some(RuleOutcome::Succeeded),
        "accepted" => Some(RuleOutcome::Accepted),
        "rejected" => Some(RuleOutcome::Rejected),
        "not_executed" => Some(RuleOutcome::NotExecuted),
        "unknown" => Some(RuleOutcome::Unknown),
        "review" => Some(RuleOutcome::Review),
        _ => None,
    };
    outcome.law(
        source,
        read.is_some(),
        || "must be \"succeeded\", \"accepted\", \"rejected\", \"not_executed\", \"unknown\" or \"review\"",
    );
    status_holds.then_some(())?;
    Some(VerdictRule { status: u16::try_from(status.value).ok()?, when: when.ok()?, outcome: read? })
}

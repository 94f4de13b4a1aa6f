//! `[caller.NAME]`: a program that may use the HTTP interface, and what it may do.
//!
//! The tokens stand in a file of their own, as SHA-256, so a reader of the configuration can call nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use crate::caller::rate::Rate;
use crate::caller::scope::CallerScope;
use crate::caller::token::StoredToken;
use crate::caller::{Caller, Callers, Names};
use crate::refund::card;
use crate::refund::id::CallerName;

use super::amounts;
use super::field::Field;
use super::http::Http;
use super::http_tls::HttpTls;
use super::secret::contents;
use super::section::{Section, listed, nearest};

pub(super) const KEYS: &[&str] =
    &["tokens_file", "certificate", "may", "channels", "limits", "requests", "per", "max_amount_minor"];
/// The keys that people try first, and why they are refused.
const REFUSED: &[(&str, &str)] = &[
    (
        "token",
        "a secret does not belong in this file; `refundd token` makes one, and its line goes into `tokens_file`",
    ),
    ("tokens", "tokens do not belong in this file; put the lines of `refundd token` into `tokens_file`"),
];

/// One token that is used, and the next one.
const MOST_TOKENS: usize = 2;
const MOST_REQUESTS: i64 = 1_000_000;
const PER: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_hours(1);
/// Stands for all channels or all limits.
const ALL: &str = "*";

/// Reads every caller. Their channels and limits must stand in the same file.
pub(super) fn read_all(root: &Section<'_>) -> Callers {
    let names = |of: &str| root.section(of).names().collect::<Vec<_>>();
    let known = Known { channels: names("channel"), limits: names("limit") };
    let mut taken = Taken::default();
    let callers = root.section("caller").sections().into_iter();
    let callers = callers.filter_map(|(name, section)| read(&name, &section, &known, &mut taken));
    Callers(callers.map(|caller| (caller.name.clone(), Arc::new(caller))).collect())
}

/// Warnings about callers that must show a certificate to a listener that asks for none.
pub(super) fn certificate_warnings(http: &Http, callers: &Callers) -> Vec<String> {
    if http.tls.as_ref().is_some_and(HttpTls::asks_for_certificates) {
        return Vec::new();
    }
    let shown = callers.0.values().filter(|caller| caller.certificate.is_some());
    let warning = |caller: &Arc<Caller>| {
        format!(
            "caller `{}` has a `certificate`, and the listener asks for none, so this caller never gets in; set \
             `client_ca_file` in `tls` of `[http]`",
            caller.name
        )
    };
    shown.map(warning).collect()
}

/// A warning that no scraper gets in: with the first caller, `/metrics` asks for one, too.
pub(super) fn metrics_warning(http: &Http, callers: &Callers) -> Option<String> {
    let may_scrape = callers.0.values().any(|caller| caller.may.contains(&CallerScope::Metrics));
    (!callers.is_empty() && http.admin_listen.is_none() && !may_scrape).then(|| {
        "no caller may read `metrics`, so `/metrics` answers 401 to every scraper, and no alarm sees this node; set `admin_listen` in \
         `[http]` and scrape that address, or add \"metrics\" to the `may` of the scraper's caller"
            .to_owned()
    })
}

/// The names that a caller may name.
struct Known<'a> {
    channels: Vec<&'a str>,
    limits: Vec<&'a str>,
}

/// What the callers before this one have, and no other caller may have. The values are the callers' names.
#[derive(Default)]
struct Taken {
    token_ids: BTreeMap<String, String>,
    certificates: BTreeMap<String, String>,
}

fn read(name: &str, section: &Section<'_>, known: &Known<'_>, taken: &mut Taken) -> Option<Caller> {
    section.keys(KEYS, REFUSED);
    let own = name;
    let name = CallerName::new(name).inspect_err(|error| section.complain(error.to_string())).ok();
    let name = name.filter(|name| {
        let is_card = card::is_in(name.as_str());
        if is_card {
            section.complain(
                "has a name that looks like a card number, and the journal keeps this name; choose another",
            );
        }
        !is_card
    });
    if !section.has("tokens_file") && !section.has("certificate") {
        section.complain("cannot prove who it is; add `tokens_file`, `certificate` or both");
    }
    let tokens = tokens(section, own, &mut taken.token_ids);
    let certificate = certificate(section, own, &mut taken.certificates);
    let may = may(section);
    let channels = names(section, "channels", "channel", &known.channels);
    let limits = names(section, "limits", "limit", &known.limits);
    let lacks = |names: &Option<Names>| *names == Some(Names::These(BTreeSet::new()));
    if let Some(scope) =
        may.iter().flatten().find(|scope| scope.needs_channels()).filter(|_| lacks(&channels))
    {
        section.complain(format!(
            "may `{scope}` and has no channel to do it with; name some in `channels`, or \"*\" for all"
        ));
    }
    if may.iter().flatten().any(|scope| *scope == CallerScope::Acquire) && lacks(&limits) {
        section.complain(
            "may `acquire` and has no limit to acquire from; name some in `limits`, or \"*\" for all",
        );
    }
    let rate = rate(section);
    let most = amounts::read_most(section);
    Some(Caller {
        name: name?,
        tokens,
        certificate,
        may: may?,
        channels: channels?,
        limits: limits?,
        rate,
        most,
    })
}

/// The lines of the `tokens_file`. What is wrong with a line is said without showing it.
fn tokens(section: &Section<'_>, own: &str, ids: &mut BTreeMap<String, String>) -> Vec<StoredToken> {
    let source = section.source;
    let Some(mut field) = section.optional_text("tokens_file") else { return Vec::new() };
    let Some((text, _)) = contents(source, &mut field) else { return Vec::new() };
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    field.require(source, lines.len() <= MOST_TOKENS, || {
        format!(
            "this file has {} tokens; at most {MOST_TOKENS} are allowed, the old one and the new one",
            lines.len()
        )
    });
    let mut tokens = Vec::new();
    for (number, line) in (1..).zip(lines) {
        match StoredToken::read(line) {
            Ok(token) => {
                let other = ids.insert(token.id.clone(), own.to_owned());
                field.require(source, other.is_none(), || {
                    format!(
                        "entry {number} of this file has the token {}, which caller `{}` has, too; give each caller its own",
                        token.id,
                        other.as_deref().unwrap_or_default()
                    )
                });
                tokens.push(token);
            }
            Err(problem) => {
                field.require(source, false, || format!("entry {number} of this file {problem}"));
            }
        }
    }
    tokens
}

fn certificate(section: &Section<'_>, own: &str, taken: &mut BTreeMap<String, String>) -> Option<String> {
    let source = section.source;
    let mut field = section.optional_text("certificate")?;
    let plain = (1..=253).contains(&field.value.len())
        && field.value.bytes().all(|b| b.is_ascii_graphic() && b != b'*');
    field.require(source, plain, || {
        "must be the name in the caller's client certificate, such as \"shop.internal\", without blanks and without `*`"
    });
    let other = taken.insert(field.value.to_ascii_lowercase(), own.to_owned());
    field.require(source, other.is_none(), || {
        format!(
            "is the certificate of caller `{}`, too; each caller needs its own",
            other.as_deref().unwrap_or_default()
        )
    });
    Some(field.value)
}

fn may(section: &Section<'_>) -> Option<BTreeSet<CallerScope>> {
    let source = section.source;
    let all = CallerScope::ALL.map(CallerScope::as_str);
    let why = format!("it says what the caller may do: some of {}", listed(&all));
    let mut field = section.required_texts("may", &why)?;
    let empty = field.value.is_empty();
    field.require(source, !empty, || {
        format!("is empty, so the caller could do nothing; name some of {}", listed(&all))
    });
    let unknown = field.value.iter().find(|name| CallerScope::named(name).is_none()).cloned();
    field.require(source, unknown.is_none(), || {
        let unknown = unknown.unwrap_or_default();
        let meant =
            nearest(&unknown, &all).map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
        format!("has `{unknown}`, which is no scope{meant}; there are {}", listed(&all))
    });
    Some(field.value.iter().filter_map(|name| CallerScope::named(name)).collect())
}

/// The channels or the limits of a caller; `None` after a complaint. `table` is what the file calls one of them.
fn names(section: &Section<'_>, key: &str, table: &str, known: &[&str]) -> Option<Names> {
    let source = section.source;
    let mut field: Field<Vec<String>> = section.texts(key, &[]);
    if field.value.iter().any(|name| name == ALL) {
        let alone = field.value.len() == 1;
        field.require(source, alone, || "has \"*\" beside other names; \"*\" means all and stands alone");
        return field.is_sound().then_some(Names::All);
    }
    let missing = field.value.iter().find(|name| !known.contains(&name.as_str())).cloned();
    field.require(source, missing.is_none(), || {
        let missing = missing.unwrap_or_default();
        match nearest(&missing, known) {
            Some(near) => format!("there is no `[{table}.{missing}]`; did you mean `{near}`?"),
            None if known.is_empty() => format!("there is no `[{table}.{missing}]`, nor any other; add it"),
            None => format!("there is no `[{table}.{missing}]`; add it, or use one of {}", listed(known)),
        }
    });
    field.is_sound().then(|| Names::These(field.value.into_iter().collect()))
}

fn rate(section: &Section<'_>) -> Option<Rate> {
    let source = section.source;
    let (requests, per) = (section.optional_integer("requests"), section.optional_duration("per"));
    if section.has("requests") != section.has("per") {
        section.complain(
            "has only one of `requests` and `per`; a rate needs both, or leave both out for no bound",
        );
    }
    let (mut requests, mut per) = (requests?, per?);
    requests.within(source, &(1..=MOST_REQUESTS));
    per.within(source, &PER);
    Some(Rate { requests: u32::try_from(requests.value).ok()?, per: per.value })
}

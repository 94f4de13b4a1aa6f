//! Derives three things from a configuration: its digest, its public settings, and the keys that
//! need a restart after a reload.

use rustls::pki_types::CertificateDer;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use crate::channel::{AnswerRule, Breaker, Channel, Inquiry};
use crate::limiter::Limit;

use super::Config;
use super::duration::say;
use super::{limit, mask, verdict};

impl Config {
    /// A digest of the channels and limits, 16 hexadecimal digits. Nodes compare it to notice that
    /// their files differ. The `Authorization` headers and the order in the file do not change it.
    #[must_use]
    pub fn digest(&self) -> String {
        let limits = self.limits.values().map(|limit| format!("limit {}\n", limit::shown(limit)));
        let channels = self.channels.values().map(|channel| {
            let Channel { name, endpoint, inquiry, .. } = channel.as_ref();
            let inquiry_url = inquiry.as_ref().map_or("", |inquiry| &inquiry.url);
            format!("channel {name} {endpoint} {inquiry_url} {}\n", Self::public_settings(channel))
        });
        let text: String = limits.chain(channels).collect();
        format!("{:016x}", fnv1a(text.as_bytes()))
    }

    /// A channel and its limits as people may see them. The `Authorization` header is left out, and
    /// so is the query of the endpoint, because some banks want a key there.
    ///
    /// The result is published: nodes write it into `refundd.channels.settings`, where people and `refundd prove` read
    /// it. It is also part of [`Config::digest`]. Two versions of refundd must make one text of one file, so a new
    /// key appears only where the file uses it.
    #[must_use]
    pub fn public_settings(channel: &Channel) -> Value {
        let Channel {
            name: _,
            endpoint,
            account,
            authorization,
            token,
            roots,
            client_identity,
            signing,
            networks,
            limits,
            timeout,
            connect_timeout,
            idle_timeout,
            lease,
            max_in_flight,
            max_backlog,
            on_unknown,
            inquiry,
            bank_ref,
            accepts_card_numbers,
            amount_bounds,
            retry,
            cool_down,
            adaptive,
            breaker,
            answer_rules,
        } = channel;
        let query = if endpoint.query().is_some() { "?****" } else { "" };
        let mut shown = json!({
            "endpoint": format!(
                "{}://{}{}{query}",
                endpoint.scheme_str().unwrap_or_default(),
                endpoint.authority().map_or("", |authority| authority.as_str()),
                endpoint.path(),
            ),
            "authorization": if authorization.is_some() { "set" } else { "none" },
            "limits": limits.iter().map(|limit| limit::shown(limit)).collect::<Vec<_>>(),
            "timeout": say(*timeout),
            "connect_timeout": say(*connect_timeout),
            "lease": say(*lease),
            "max_in_flight": max_in_flight,
            "max_backlog": max_backlog,
            "on_unknown": on_unknown.as_str(),
            "key_retention": on_unknown.key_retention().map(say),
            "inquiry": inquiry.as_ref().map(|inquiry| public_inquiry(inquiry)),
            "bank_ref": bank_ref,
            "retry": { "base": say(retry.base), "cap": say(retry.cap), "sends": retry.sends },
            "cool_down": say(*cool_down),
            "adaptive": adaptive,
            "verdict": answer_rules.iter().map(public_rule).collect::<Vec<_>>(),
        });
        // Newer keys.
        if let Some(account) = account {
            shown["account"] = json!(account);
        }
        if let Some(roots) = roots {
            shown["ca_file"] = json!(public_certificates(&roots.0));
        }
        if let Some(identity) = client_identity {
            shown["client_certificate_file"] = json!(public_certificates(&identity.certificates));
        }
        if let Some(token) = token {
            let url = mask::endpoint(&token.url.to_string());
            shown["token"] = json!({ "url": url, "client_id": token.client_id, "scope": token.scope });
        }
        if let Some(signing) = signing {
            let ids: Vec<&str> = signing.0.iter().map(|key| key.id.as_str()).collect();
            shown["signing"] = json!({ "scheme": "hmac-sha256", "keys": ids });
        }
        if !networks.0.is_empty() {
            shown["addresses"] = json!(networks.0.iter().map(ToString::to_string).collect::<Vec<_>>());
        }
        // The trigger of inserts reads this key: migrations/0035_amounts_have_bounds.sql.
        if !amount_bounds.0.is_empty() {
            shown["max_amount_minor"] = json!(*amount_bounds.0);
        }
        if *breaker != Some(Breaker::default()) {
            shown["breaker"] = breaker.as_ref().map_or_else(|| json!("off"), public_breaker);
        }
        if *accepts_card_numbers {
            shown["card_numbers"] = json!("accepted");
        }
        if *idle_timeout != Channel::IDLE_TIMEOUT {
            shown["idle_timeout"] = json!(say(*idle_timeout));
        }
        shown
    }

    /// A limit as people may see it, and as [`Config::public_settings`] shows it within a channel.
    #[must_use]
    pub fn public_limit(limit: &Limit) -> Value {
        limit::shown(limit)
    }

    /// The keys that differ in `new` and take effect only at a restart. Channels, limits, callers,
    /// `[review]`, `bucket.capacity` and `log.level` are never among them.
    #[must_use]
    pub fn needs_restart(&self, new: &Config) -> Vec<String> {
        let Config {
            node,
            http,
            postgres,
            redis,
            bucket,
            log,
            recovery,
            telemetry,
            limits: _,
            channels: _,
            callers: _,
            second_person_above: _,
            notify,
        } = self;
        let changed = [
            ("node.name", node.name != new.node.name),
            ("http.listen", http.listen != new.http.listen),
            ("http.admin_listen", http.admin_listen != new.http.admin_listen),
            ("http.hosts", http.hosts != new.http.hosts),
            ("http.tls", http.tls.is_some() != new.http.tls.is_some()),
            ("http.handshake_timeout", http.handshake_timeout != new.http.handshake_timeout),
            ("http.header_timeout", http.header_timeout != new.http.header_timeout),
            ("http.body_timeout", http.body_timeout != new.http.body_timeout),
            ("http.answer_timeout", http.answer_timeout != new.http.answer_timeout),
            ("http.max_connections", http.max_connections != new.http.max_connections),
            (
                "http.max_connections_per_address",
                http.max_connections_per_address != new.http.max_connections_per_address,
            ),
            ("postgres.url", differs(&postgres.url, &new.postgres.url)),
            // A reload takes a new password over.
            ("postgres.password_file", postgres.password.is_some() && new.postgres.password.is_none()),
            ("postgres.connections", postgres.connections != new.postgres.connections),
            ("redis.url", differs(&redis.url, &new.redis.url)),
            ("redis.plain", redis.trust.clear_text != new.redis.trust.clear_text),
            ("redis.ca_file", redis.trust.roots != new.redis.trust.roots),
            ("redis.key_prefix", redis.key_prefix != new.redis.key_prefix),
            ("redis.clock_tolerance", redis.clock_tolerance != new.redis.clock_tolerance),
            ("bucket.kind", bucket.kind != new.bucket.kind),
            ("log.format", log.format != new.log.format),
            ("recovery.keep_permits", recovery.keep_permits != new.recovery.keep_permits),
            ("recovery.keep_attempts", recovery.keep_attempts != new.recovery.keep_attempts),
            ("recovery.keep_events", recovery.keep_events != new.recovery.keep_events),
            ("telemetry.otlp", telemetry.otlp != new.telemetry.otlp),
            ("notify", *notify != new.notify),
        ];
        changed.into_iter().filter(|(_, changed)| *changed).map(|(key, _)| key.to_owned()).collect()
    }
}

/// The number of certificates and their digest. It does not show the path, because nodes may keep copies of one file in
/// different places.
fn public_certificates(certificates: &[CertificateDer<'_>]) -> String {
    let bytes: Vec<u8> = certificates.iter().flat_map(|one| one.iter().copied()).collect();
    let digest = fnv1a(&bytes);
    format!("{} certificates, {digest:016x}", certificates.len())
}

fn public_breaker(breaker: &Breaker) -> Value {
    let Breaker { rejected, unknown, unreachable, probe } = breaker;
    json!({ "rejected": rejected, "unknown": unknown, "unreachable": unreachable, "probe": say(*probe) })
}

fn public_rule(rule: &AnswerRule) -> Value {
    let AnswerRule { status, body, outcome } = rule;
    let (pointer, equals) = body.as_ref().map(|(pointer, equals)| (pointer, equals)).unzip();
    json!({ "status": status, "pointer": pointer, "equals": equals, "outcome": verdict::name_of(*outcome) })
}

fn public_inquiry(inquiry: &Inquiry) -> Value {
    let Inquiry { url, authorization, trust, limits, status, status_texts, not_found } = inquiry;
    let mut shown = json!({
        "url": mask::endpoint(url),
        "not_found_is_final": trust.not_found_is_final,
        "grace": say(trust.grace),
        "limits": limits.as_ref().map(|limits| limits.iter().map(|limit| limit::shown(limit)).collect::<Vec<_>>()),
        "status": status,
        "succeeded": status_texts.succeeded,
        "pending": status_texts.pending,
        "rejected": status_texts.rejected,
        "not_found": not_found.as_ref().map(|(pointer, equals)| json!({ "pointer": pointer, "equals": equals })),
    });
    if authorization.is_some() {
        shown["authorization"] = json!("set");
    }
    shown
}

fn differs(old: &SecretString, new: &SecretString) -> bool {
    old.expose_secret() != new.expose_secret()
}

/// FNV-1a with 64 bits. Unlike the standard hasher, it gives one result on every machine and in every version of
/// refundd.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

//! `[notify]`: where refundd delivers the changes of refunds, by Standard Webhooks.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Uri;

use super::address::{require_receiver, required_uri};
use super::secret::contents;
use super::section::Section;
use super::{addresses, certificates};
use crate::bank::{WebhookKey, WebhookTarget};

pub(super) const KEYS: &[&str] = &["url", "secret_file", "ca_file", "addresses"];
const MOST_SECRETS: usize = 2;
/// The bounds of Standard Webhooks.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Reads the section; `None` without a receiver, or after a complaint.
pub(super) fn read(section: &Section<'_>) -> Option<WebhookTarget> {
    section
        .keys(KEYS, &[("secret", "a secret does not belong in this file; name its file with `secret_file`")]);
    if !section.has("url") && !section.has("secret_file") {
        return None;
    }
    let why = "it is the address to which refundd delivers changes";
    let url = required_uri(section, "url", why, "https://shop.example/refunds", |field, uri| {
        require_receiver(section.source, field, uri);
    });
    let keys = keys(section);
    let is_secure = url.as_ref().is_none_or(|url| url.scheme_str() == Some("https"));
    let roots = certificates::roots(section, is_secure);
    let host = url.as_ref().and_then(Uri::host);
    let networks = addresses::read(section, host.as_slice());
    Some(WebhookTarget { url: url?, keys: keys?, roots, networks })
}

/// The secrets: one in each line of the file.
fn keys(section: &Section<'_>) -> Option<Arc<[WebhookKey]>> {
    let source = section.source;
    let mut field =
        section.required_text("secret_file", "it is the file with the secret that signs each message")?;
    let (text, _) = contents(source, &mut field)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let keys: Option<Vec<WebhookKey>> = lines
        .map(|line| {
            let bytes = STANDARD.decode(line.strip_prefix("whsec_")?).ok()?;
            BYTES.contains(&bytes.len()).then(|| WebhookKey(Arc::new(bytes.into())))
        })
        .collect();
    let keys = keys.unwrap_or_default();
    field.require(source, (1..=MOST_SECRETS).contains(&keys.len()), || {
        "this file must hold one secret, or two in lines of their own while the secret is changed; each is `whsec_` and 24 to 64 \
         bytes in base64. To make one: `echo whsec_$(openssl rand -base64 32)`"
    });
    field.is_sound().then(|| keys.into())
}

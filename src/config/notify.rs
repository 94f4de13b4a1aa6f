//! `[notify]`: where refundd delivers the changes of refunds, by Standard Webhooks.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Uri;

use super::address::require_receiver;
use super::secret::contents;
use super::section::Section;
use super::{addresses, certificates, mask};
use crate::bank::{WebhookKey, WebhookTarget};

pub(super) const KEYS: &[&str] = &["url", "secret_file", "ca_file", "addresses"];
const MOST_SECRETS: usize = 2;
/// The bounds of Standard Webhooks.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Reads the section; `None` without a receiver, or after a complaint.
pub(super) fn read(section: &Section<'_>) -> Option<WebhookTarget> {
    let source = section.source;
    section
        .keys(KEYS, &[("secret", "a secret does not belong in this file; name its file with `secret_file`")]);
    if !section.has("url") && !section.has("secret_file") {
        return None;
    }
    let url = section.required_text("url", "it is the address to which refundd delivers changes");
    let url = url.and_then(|mut field| {
        field.shown_as(&mask::endpoint(&field.value));
        let uri: Option<Uri> = field.value.parse().ok();
        field.require(
            source,
            uri.is_some(),
            || "is not an address, such as \"https://shop.example/refunds\"",
        );
        let uri = uri?;
        require_receiver(source, &mut field, &uri);
        field.is_sound().then_some(uri)
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

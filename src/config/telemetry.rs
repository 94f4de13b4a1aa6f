//! `[telemetry]`: where a node sends its spans.

use std::net::IpAddr;

use hyper::Uri;

use super::mask;
use super::section::Section;
use crate::traces::Collector;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Telemetry {
    /// `None` sends no spans.
    pub otlp: Option<Collector>,
}

impl Telemetry {
    pub(super) const KEYS: &'static [&'static str] = &["otlp"];

    pub(super) fn read(section: &Section<'_>) -> Self {
        section.keys(Self::KEYS, &[]);
        let Some(mut field) = section.optional_text("otlp") else { return Telemetry::default() };
        field.shown_as(&mask::endpoint(&field.value));
        let otlp = collector(&field.value);
        field.require(
            section.source,
            otlp.is_some(),
            || "must be http://, an address of this host, and a port, such as \"http://127.0.0.1:4318\", without `/v1/traces`: for a \
                collector elsewhere, run one on this host that passes spans on by TLS",
        );
        Telemetry { otlp }
    }
}

/// The collector that a url names, if it is one of this host.
fn collector(url: &str) -> Option<Collector> {
    let url: Uri = url.parse().ok()?;
    let authority = url.authority()?;
    let host = authority.host();
    let address: Option<IpAddr> = host.trim_start_matches('[').trim_end_matches(']').parse().ok();
    let is_here = host == "localhost" || address.is_some_and(|address| address.to_canonical().is_loopback());
    let path = url.path().trim_end_matches('/');
    let is_plain =
        url.query().is_none() && !authority.as_str().contains('@') && !path.ends_with("/v1/traces");
    let fits = url.scheme_str() == Some("http") && is_here && is_plain && authority.port().is_some();
    fits.then(|| Collector { authority: authority.to_string(), path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::collector;

    #[test]
    fn a_collector_is_on_this_host_and_has_a_port() {
        for (url, named) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://localhost:4318/", "http://localhost:4318/v1/traces"),
            ("http://[::1]:4318/otlp", "http://[::1]:4318/otlp/v1/traces"),
        ] {
            assert_eq!(collector(url).unwrap().to_string(), named);
        }
        for bad in [
            "",
            "127.0.0.1:4318",
            "http://127.0.0.1",
            "https://127.0.0.1:4318",
            "http://collector.example:4318",
            "http://10.0.0.7:4318",
            "http://user:secret@127.0.0.1:4318",
            "http://127.0.0.1:4318/?key=7",
            "http://127.0.0.1:4318/v1/traces",
        ] {
            assert_eq!(collector(bad), None, "{bad}");
        }
    }
}

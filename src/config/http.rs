//! `[http]`: the address and the bounds of the HTTP interface.

use std::net::SocketAddr;

use super::section::Section;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Http {
    pub listen: SocketAddr,
    /// The largest number of open connections, 1 to 65536; `None` for the server's default.
    pub max_connections: Option<u32>,
}

impl Http {
    pub(super) const KEYS: &'static [&'static str] = &["listen", "max_connections"];
    pub(super) const LISTEN: &'static str = "127.0.0.1:8080";

    /// Reads the section; `None` after a complaint.
    pub(super) fn read(section: &Section<'_>) -> Option<Self> {
        let source = section.source;
        section.keys(Self::KEYS, &[]);
        let mut listen = section.text("listen", Self::LISTEN);
        let address: Option<SocketAddr> = listen.value.parse().ok();
        listen.law(
            source,
            address.is_some(),
            || "must be an IP address and a port, such as \"127.0.0.1:8080\" or \"[::1]:8080\"",
        );
        listen.law(source, address.is_none_or(|address| address.ip().is_loopback()), || {
            "must be a loopback address: refundd does not serve TLS yet, so the callers' tokens would cross the network \
             in clear text; use \"127.0.0.1:8080\" and put a proxy with TLS in front of it"
        });
        let mut max_connections = section.optional_integer("max_connections");
        if let Some(field) = &mut max_connections {
            field.within(source, &(1..=65_536));
        }
        Some(Http {
            listen: address?,
            max_connections: max_connections.and_then(|field| u32::try_from(field.value).ok()),
        })
    }
}

//! `[http]`: the addresses and the bounds of the HTTP interface.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustls::pki_types::DnsName;

use super::field::Field;
use super::http_tls::HttpTls;
use super::section::Section;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http {
    pub listen: SocketAddr,
    /// The address for health and metrics alone; `None` if only `listen` serves them.
    pub admin_listen: Option<SocketAddr>,
    /// Names that callers may use for this node in `Host`, beside `localhost` and plain addresses.
    pub hosts: Vec<String>,
    /// How `listen` speaks TLS; `None` for clear text.
    pub tls: Option<HttpTls>,
    pub handshake_timeout: Duration,
    pub header_timeout: Duration,
    pub body_timeout: Duration,
    pub answer_timeout: Duration,
    /// The largest number of open connections, 1 to 65536; `None` for the server's default.
    pub max_connections: Option<u32>,
    /// The largest number of open connections of one address; `None` for no bound.
    pub max_connections_per_address: Option<u32>,
}

impl Http {
    pub(super) const KEYS: &'static [&'static str] = &[
        "listen",
        "admin_listen",
        "hosts",
        "tls",
        "handshake_timeout",
        "header_timeout",
        "body_timeout",
        "answer_timeout",
        "max_connections",
        "max_connections_per_address",
    ];
    pub(super) const LISTEN: &'static str = "127.0.0.1:8080";
    /// Of an address beyond this host, unless the file says more.
    const CONNECTIONS_PER_ADDRESS: u32 = 64;

    /// Reads the section; `None` after a complaint. `has_callers` says that the file has a `[caller.NAME]`.
    pub(super) fn read(section: &Section<'_>, has_callers: bool) -> Option<Self> {
        let source = section.source;
        section.keys(Self::KEYS, &[]);
        let mut listen = section.text("listen", Self::LISTEN);
        let address = address(section, &mut listen);
        let is_local = address.is_none_or(is_local);
        let has_tls = section.has("tls");
        let tls = has_tls.then(|| HttpTls::read(&section.section("tls"))).flatten();
        listen.require(source, is_local || (has_tls && has_callers), || BEYOND_LOOPBACK);
        let mut hosts = section.texts("hosts", &[]);
        let odd = hosts.value.iter().find(|host| !is_name(host)).cloned();
        hosts.require(source, odd.is_none(), || {
            format!(
                "`{}` is no host name: write names such as \"refundd.internal\", without a port; addresses are always accepted",
                odd.unwrap_or_default()
            )
        });
        let admin_listen = section.optional_text("admin_listen").and_then(|mut field| {
            let address = self::address(section, &mut field);
            field.require(source, address.is_none_or(self::is_local), || {
                "must be a loopback address: nobody is authenticated there; programs on other hosts use `listen`"
            });
            address
        });
        if !is_local && listen.is_sound() && !section.has("admin_listen") {
            section.complain(
                "has no `admin_listen`, and `listen` leads beyond this host: set `admin_listen = \"127.0.0.1:9090\"`, so that \
                 callers cannot keep health checks and scrapers out",
            );
        }
        let time = |key, default| {
            let mut field = section.duration(key, default);
            field.within(source, &(Duration::from_millis(100)..=Duration::from_mins(1)));
            field.value
        };
        let number = |key, most| {
            let mut field = section.optional_integer(key)?;
            field.within(source, &(1..=most));
            u32::try_from(field.value).ok()
        };
        let per_address = number("max_connections_per_address", 65_536);
        let max_connections = number("max_connections", 65_536);
        let [handshake_timeout, header_timeout, body_timeout, answer_timeout] = [
            time("handshake_timeout", Duration::from_secs(5)),
            time("header_timeout", Duration::from_secs(5)),
            time("body_timeout", Duration::from_secs(15)),
            time("answer_timeout", Duration::from_secs(30)),
        ];
        // All complaints are made. A configuration with complaints is not used, so a refused value may be left out.
        let listen = address?;
        Some(Http {
            listen,
            admin_listen: admin_listen.filter(|admin| *admin != listen || admin.port() == 0),
            hosts: hosts.value,
            tls,
            handshake_timeout,
            header_timeout,
            body_timeout,
            answer_timeout,
            max_connections,
            max_connections_per_address: per_address.or((!is_local).then_some(Self::CONNECTIONS_PER_ADDRESS)),
        })
    }
}

const BEYOND_LOOPBACK: &str = "is reached from other hosts, which needs `tls` and at least one `[caller.NAME]`: without \
     them anyone who reaches the port could read and order refunds; add both, or use \"127.0.0.1:8080\"";

fn is_local(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

fn is_name(host: &str) -> bool {
    host.parse::<IpAddr>().is_err() && DnsName::try_from(host).is_ok()
}

/// The address that a field names; `None` after a complaint.
fn address(section: &Section<'_>, field: &mut Field<String>) -> Option<SocketAddr> {
    let address: Option<SocketAddr> = field.value.parse().ok();
    field.require(
        section.source,
        address.is_some(),
        || "must be an IP address and a port, such as \"127.0.0.1:8080\" or \"[::1]:8080\"",
    );
    address
}

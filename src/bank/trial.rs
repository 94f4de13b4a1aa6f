//! Tries the connections of a channel or of `[notify]`, for people: it opens one to each server and closes it again.
//!
//! It writes no byte of any request, takes no permit, and gets no access token.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;

use super::BankError;
use super::connect::Dialer;
use super::dial_error::DialError;
use super::settings::ConnectionSettings;
use super::webhook::{Webhook, WebhookTarget};
use crate::channel::{Channel, WhyNot};
use crate::logs::chain;
use crate::refund::Code;

/// One server of a channel or of `[notify]`, and what became of the connection to it.
#[derive(Debug)]
pub struct Trial {
    /// The keys of the configuration that lead there, such as `endpoint`.
    pub keys: Vec<&'static str>,
    /// The scheme, the host and the port.
    pub server: String,
    /// The host, if it is reached in clear text.
    pub clear_text_host: Option<String>,
    /// What DNS says, each address with the reason if the channel may not connect to it.
    pub addresses: Vec<(IpAddr, Option<WhyNot>)>,
    pub connected: Result<Connected, NotConnected>,
}

/// A connection that was opened and closed.
#[derive(Debug)]
pub struct Connected {
    /// DNS, TCP and TLS together.
    pub set_up: Duration,
    pub tcp_connect: Duration,
    /// `None` in clear text.
    pub handshake: Option<Duration>,
    /// When the first certificate that the server showed ends; `None` in clear text.
    pub certificates_end: Option<Timestamp>,
}

/// Why no connection could be opened.
#[derive(Debug)]
pub struct NotConnected {
    pub code: Code,
    /// A fragment after "failed to".
    pub message: String,
}

/// Tries a connection to each server of the channel: of its refunds, of its inquiries, and of its access tokens.
///
/// # Errors
/// When the channel's client cannot be made.
pub async fn of(channel: &Channel) -> Result<Vec<Trial>, BankError> {
    let inquiry = channel
        .inquiry
        .as_ref()
        .map(|inquiry| inquiry.url_of("key").map_err(|_| BankError::endpoint(&channel.endpoint)));
    let mut addresses = vec![("endpoint", channel.endpoint.clone())];
    addresses.extend(inquiry.transpose()?.map(|url| ("inquiry.url", url)));
    addresses.extend(channel.token.as_ref().map(|token| ("token.url", token.url.clone())));
    try_each(&ConnectionSettings::of(channel), &addresses).await
}

/// Tries a connection to the receiver of webhooks.
///
/// # Errors
/// When the receiver's client cannot be made.
pub async fn of_receiver(target: &WebhookTarget) -> Result<Vec<Trial>, BankError> {
    try_each(&Webhook::settings(target), &[("url", target.url.clone())]).await
}

/// Tries each server of these addresses once. Each address has the key of the configuration that names it.
async fn try_each(
    settings: &ConnectionSettings,
    addresses: &[(&'static str, hyper::Uri)],
) -> Result<Vec<Trial>, BankError> {
    let mut trials = Vec::new();
    let mut seen = BTreeSet::new();
    for (_, url) in addresses {
        let server = server_of(url);
        if seen.insert(server.clone()) {
            let same = addresses.iter().filter(|(_, other)| server_of(other) == server);
            let keys = same.map(|(key, _)| *key).collect();
            let is_clear = url.scheme_str() == Some("http");
            let clear_text_host = url.host().filter(|_| is_clear).map(str::to_owned);
            trials.push(try_one(keys, server, clear_text_host, Dialer::new(settings, url)?));
        }
    }
    Ok(futures_util::future::join_all(trials).await)
}

fn server_of(url: &hyper::Uri) -> String {
    let scheme = url.scheme_str().unwrap_or_default();
    let port = url.port_u16().map_or_else(String::new, |port| format!(":{port}"));
    format!("{scheme}://{}{port}", url.host().unwrap_or_default())
}

async fn try_one(
    keys: Vec<&'static str>,
    server: String,
    clear_text_host: Option<String>,
    dialer: Dialer,
) -> Trial {
    let (addresses, connection) = tokio::join!(dialer.addresses(), dialer.dial());
    let connected = connection.map(|connection| Connected {
        set_up: connection.set_up,
        tcp_connect: connection.tcp_connect,
        handshake: connection.handshake,
        certificates_end: connection.certificates_end,
    });
    let connected = connected
        .map_err(|error: DialError| NotConnected { code: error.code(), message: chain(&error).to_string() });
    Trial { keys, server, clear_text_host, addresses: addresses.unwrap_or_default(), connected }
}

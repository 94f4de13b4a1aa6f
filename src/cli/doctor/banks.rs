//! Tries a connection to each bank, and sends nothing on it.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use jiff::Timestamp;

use super::certificates;
use super::finding::{Finding, Severity};
use crate::bank::trial::{self, Connected, NotConnected, Trial};
use crate::bucket::is_this_host;
use crate::channel::Channel;
use crate::config::Config;
use crate::logs::chain;
use crate::refund::Code;
use crate::refund::text::counted;

const CHECK: &str = "bank";

/// How many channels are tried at the same time.
const AT_ONCE: usize = 100;
/// The longest time for all banks together. With many channels and silent banks, the last ones are not tried.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn findings(config: &Config, soon: Duration, now: Timestamp) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut tried = 0;
    let trials = stream::iter(config.channels.values())
        .map(|channel| async move { of_channel(channel, trial::of(channel).await, soon, now) })
        .buffer_unordered(AT_ONCE)
        .take_until(tokio::time::sleep(PATIENCE));
    let mut trials = std::pin::pin!(trials);
    while let Some(of_channel) = trials.next().await {
        tried += 1;
        findings.extend(of_channel);
    }
    findings.sort_by(|one, other| one.subject.cmp(&other.subject));
    let left = config.channels.len() - tried;
    if left > 0 {
        findings.push(Finding::warning(
            CHECK,
            format!(
                "{} {} not tried within {} s",
                counted(left as u64, "channel"),
                if left == 1 { "was" } else { "were" },
                PATIENCE.as_secs()
            ),
            "their banks may not be reached",
            "correct the banks that are reported, and run `refundd doctor` again",
        ));
    }
    findings
}

fn of_channel(
    channel: &Channel,
    trials: Result<Vec<Trial>, crate::bank::BankError>,
    soon: Duration,
    now: Timestamp,
) -> Vec<Finding> {
    let name = format!("channel `{}`", channel.name);
    let mut findings: Vec<Finding> = match trials {
        Ok(trials) => trials.iter().flat_map(|trial| of_server(channel, trial, soon, now)).collect(),
        Err(error) => {
            let why = "no node starts or reloads with this channel";
            let found = format!("failed to {}", chain(&error));
            vec![Finding::broken(CHECK, found, why, "correct what the message names").about(&name)]
        }
    };
    if let Some(identity) = &channel.client_identity {
        let end = crate::certificate::first_end(&identity.certificates);
        let way_out = "get a new certificate from the bank, put it in `client_certificate_file`, and reload";
        findings.push(
            certificates::finding(CHECK, "the client certificate", end, (soon, now), way_out).about(name),
        );
    }
    findings
}

fn of_server(channel: &Channel, trial: &Trial, soon: Duration, now: Timestamp) -> Vec<Finding> {
    let Trial { keys, server, clear_text_host, addresses, connected } = trial;
    let subject = format!("channel `{}`, {}", channel.name, keys.join(" and "));
    let mut findings = Vec::new();
    match connected {
        Ok(connected) => {
            findings.push(set_up(channel, server, connected));
            if connected.handshake.is_some() {
                let whose = format!("the certificate of {server}");
                let way_out = "ask the bank for its new certificate; if `ca_file` pins the old one, add the new root before";
                findings.push(certificates::finding(
                    CHECK,
                    &whose,
                    connected.certificates_end,
                    (soon, now),
                    way_out,
                ));
            }
        }
        Err(failed) => findings.push(not_connected(failed)),
    }
    let refused: Vec<String> =
        addresses.iter().filter_map(|(ip, refused)| Some(format!("{ip} {}", (*refused)?))).collect();
    // If all are refused, the connection says so.
    if !refused.is_empty() && refused.len() < addresses.len() {
        findings.push(Finding::warning(
            CHECK,
            format!("DNS names addresses of {server} that the channel does not use: {}", refused.join(", ")),
            "the fewer addresses are left, the sooner the bank is unreachable; a wrong address may be an attack on DNS",
            "name the range in `addresses` if it belongs to the bank, or correct DNS",
        ));
    }
    if clear_text_host.as_ref().is_some_and(|host| !is_this_host(host)) {
        findings.push(Finding::warning(
            CHECK,
            format!("{server} is reached in clear text: `plain_http = \"accepted\"`"),
            "anyone on the way can read and change refunds",
            "use `https://`, and remove `plain_http`",
        ));
    }
    findings.into_iter().map(|finding| finding.about(&subject)).collect()
}

fn set_up(channel: &Channel, server: &str, connected: &Connected) -> Finding {
    let Connected { set_up, tcp_connect, handshake, certificates_end: _ } = connected;
    let ms = |span: &Duration| format!("{:.1} ms", span.as_secs_f64() * 1000.0);
    let tls = handshake.as_ref().map_or_else(String::new, |span| format!(", TLS {}", ms(span)));
    let found = format!("{server} is connected in {} (TCP {}{tls})", ms(set_up), ms(tcp_connect));
    if *set_up * 2 > channel.connect_timeout {
        let why =
            "connections that take longer than `connect_timeout` are given up, and nothing is sent meanwhile";
        let found = format!("{found}; `connect_timeout` is {:?}", channel.connect_timeout);
        return Finding::warning(
            CHECK,
            found,
            why,
            "raise `connect_timeout`, or find out what slows the way to the bank",
        );
    }
    Finding::ok(CHECK, found)
}

fn not_connected(NotConnected { code, message }: &NotConnected) -> Finding {
    let way_out = match code {
        Code::DnsFailed => "correct the host's name, or the DNS of this machine",
        Code::AddressRefused => "name the range in `addresses` if it belongs to the bank, or correct DNS",
        Code::TlsFailed => {
            "name the bank's root in `ca_file`, or the client certificate that the bank asks for; if the bank's certificate ended, only the bank can renew it"
        }
        Code::ConnectTimeout => "open the way from this machine to the bank, or raise `connect_timeout`",
        _ => "see whether the bank is up, and open the way from this machine to it",
    };
    Finding {
        severity: Severity::Broken,
        ..Finding::warning(
            CHECK,
            format!("failed to {message}"),
            "the channel sends nothing while no connection can be opened; its refunds wait",
            way_out,
        )
    }
}

//! Tries a connection to the receiver of webhooks, and sends nothing on it.

use std::time::Duration;

use jiff::Timestamp;

use super::certificates;
use super::finding::Finding;
use crate::bank::trial::{self, NotConnected, Trial};
use crate::config::Config;
use crate::logs::chain;
use crate::refund::Code;

const REACH: &str = "notify.reach";
const TLS: &str = "notify.tls";

pub(super) async fn findings(config: &Config, soon: Duration, now: Timestamp) -> Vec<Finding> {
    let Some(target) = &config.notify else { return Vec::new() };
    match trial::of_receiver(target).await {
        Ok(trials) => trials.iter().flat_map(|trial| of_server(trial, soon, now)).collect(),
        Err(error) => {
            vec![undelivered(REACH, &chain(&error).to_string(), "correct what the message names")]
        }
    }
}

fn of_server(Trial { server, connected, .. }: &Trial, soon: Duration, now: Timestamp) -> Vec<Finding> {
    let connected = match connected {
        Ok(connected) => connected,
        Err(NotConnected { code: Code::TlsFailed, message }) => {
            let way_out = "renew the receiver's certificate, or name its root in `[notify] ca_file`";
            return vec![undelivered(TLS, message, way_out)];
        }
        Err(NotConnected { message, .. }) => {
            let way_out = "see whether the receiver is up, and open the way from this machine to it";
            return vec![undelivered(REACH, message, way_out)];
        }
    };
    let tls = if connected.handshake.is_some() {
        let whose = format!("the certificate of {server}");
        let way_out = "renew the receiver's certificate; if `[notify] ca_file` pins the old one, add the new root before";
        certificates::finding(TLS, &whose, connected.certificates_end, (soon, now), way_out)
    } else {
        Finding::ok(TLS, "the receiver of webhooks is on this host")
    };
    vec![Finding::ok(REACH, format!("{server} is connected")), tls]
}

/// `failed` is a fragment after "failed to".
fn undelivered(check: &'static str, failed: &str, way_out: &str) -> Finding {
    let why = "no change of a refund is delivered; the changes wait until the receiver takes them";
    Finding::broken(check, format!("failed to {failed}"), why, way_out)
}

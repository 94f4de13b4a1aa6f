//! Checks this machine: the modes of the configuration file, the listener's certificate, and the bound of open files.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use rustix::process::{Resource, getrlimit};

use super::certificates;
use super::finding::Finding;
use crate::channel::{Channel, Inquiry};
use crate::config::Config;
use crate::http::server::Bounds;

const FILES: &str = "host.files";
const OPEN_FILES: &str = "host.open_files";
const HTTP_TLS: &str = "host.http_tls";

/// Files for Redis, for health checks, for time zones, for logs, and for connections that are about to close.
const SPARE_FILES: u64 = 128;

pub(super) fn findings(config: &Config, path: &Path, soon: Duration, now: Timestamp) -> Vec<Finding> {
    let mut findings = vec![mode(config, path)];
    if let Some(tls) = &config.http.tls {
        let way_out = "renew the file of `[http] tls`, and reload";
        findings.push(certificates::finding(
            HTTP_TLS,
            "the certificate of the listener",
            tls.certificates_end(),
            (soon, now),
            way_out,
        ));
    }
    findings.push(open_files(config));
    findings
}

fn mode(config: &Config, path: &Path) -> Finding {
    let shown = path.display();
    let mode = match std::fs::metadata(path) {
        Ok(found) => found.mode() & 0o7777,
        Err(error) => {
            let found = format!("the mode of {shown} cannot be read: {error}");
            return Finding::warning(FILES, found, "others may have rights to it", "look at it with `ls -l`");
        }
    };
    if mode & 0o022 != 0 {
        let why = "others can raise a limit or lead refunds to another address at the next reload";
        let found = format!("others than its owner may write {shown}: its mode is {mode:04o}");
        return Finding::broken(FILES, found, why, &format!("`chmod go-w {shown}`"));
    }
    // systemd guards the folder of credentials by other means than modes.
    let is_credential =
        std::env::var_os("CREDENTIALS_DIRECTORY").is_some_and(|folder| path.starts_with(folder));
    if mode & 0o004 == 0 || is_credential {
        let found = format!("the mode of {shown} is {mode:04o}, and no file of a secret is open to others");
        return Finding::ok(FILES, found);
    }
    if let Some(key) = address_with_query(config) {
        let why = "some banks want a key in the query, and every user of this machine can read it";
        let way_out = format!(
            "`chgrp GROUP {shown} && chmod 640 {shown}` with a group of the node's user; leave the mode if no query has a key"
        );
        let found =
            format!("others may read {shown}, where `{key}` has a query: the mode of the file is {mode:04o}");
        return Finding::warning(FILES, found, why, &way_out);
    }
    let found = format!(
        "the mode of {shown} is {mode:04o}: others may read it, and no address in it has a password, or a query that may have a key"
    );
    Finding::ok(FILES, found)
}

/// The first key whose address has a query, which refundd shows to nobody.
fn address_with_query(config: &Config) -> Option<String> {
    let of_notify = || {
        let has_query = config.notify.as_ref().is_some_and(|target| target.url.query().is_some());
        has_query.then(|| "notify.url".to_owned())
    };
    config.channels.values().find_map(|channel| address_of_channel_with_query(channel)).or_else(of_notify)
}

fn address_of_channel_with_query(channel: &Channel) -> Option<String> {
    let Channel { name, endpoint, inquiry, token, .. } = channel;
    let keys = [
        ("endpoint", endpoint.query().is_some()),
        ("inquiry.url", inquiry.as_ref().is_some_and(|inquiry| asks_for_more_than_the_id(&inquiry.url))),
        ("token.url", token.as_ref().is_some_and(|token| token.url.query().is_some())),
    ];
    let (key, _) = keys.into_iter().find(|(_, has_query)| *has_query)?;
    Some(format!("channel.{name}.{key}"))
}

/// Whether the query of an inquiry has more than the request id, which is no secret.
fn asks_for_more_than_the_id(url: &str) -> bool {
    let (_, query) = url.split_once('?').unwrap_or_default();
    let is_id = |parameter: &str| parameter.rsplit('=').next() == Some(Inquiry::KEY);
    !query.is_empty() && !query.split('&').all(is_id)
}

/// Whether the node may open as many files as it has connections at the most.
fn open_files(config: &Config) -> Finding {
    let of_channels: u64 = config
        .channels
        .values()
        // Inquiries have slots of their own, a quarter as many.
        .map(|channel| u64::from(channel.max_in_flight) + u64::from(channel.max_in_flight.div_ceil(4)))
        .sum();
    let callers = u64::from(config.http.max_connections.unwrap_or(Bounds::default().connections));
    let postgres = u64::from(config.postgres.connections);
    let needed = of_channels + callers + postgres + SPARE_FILES;
    // A node raises its soft limit to the hard limit.
    let most = getrlimit(Resource::Nofile).maximum;
    let found = format!(
        "a node with this file opens at most {needed} files: {of_channels} for banks, {callers} for callers, {postgres} for \
         Postgres, {SPARE_FILES} spare; this process may open {}",
        most.map_or_else(|| "any number".to_owned(), |most| most.to_string())
    );
    if most.is_some_and(|most| most < needed) {
        let why = "without a free file no connection can be opened: callers, Postgres and banks are cut off";
        let way_out = format!(
            "`LimitNOFILE={}` in the unit (systemd/refundd.service has 65536; the limit of this shell may be another), or lower `max_in_flight`",
            needed.next_power_of_two()
        );
        return Finding::warning(OPEN_FILES, found, why, &way_out);
    }
    Finding::ok(OPEN_FILES, found)
}

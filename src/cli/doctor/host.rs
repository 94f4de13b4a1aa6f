//! Checks this machine: the modes of the configuration file, the listener's certificate, and the bound of open files.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use rustix::process::{Resource, getrlimit};

use super::certificates;
use super::finding::Finding;
use crate::config::Config;
use crate::http::server::Bounds;

const FILES: &str = "host.files";
const OPEN_FILES: &str = "host.open_files";
const HTTP_TLS: &str = "host.http_tls";

/// Files for Redis, for health checks, for time zones, for logs, and for connections that are about to close.
const SPARE_FILES: u64 = 128;

pub(super) fn findings(config: &Config, path: &Path, soon: Duration, now: Timestamp) -> Vec<Finding> {
    let mut findings = vec![mode(path)];
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

fn mode(path: &Path) -> Finding {
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
    let found = format!("the mode of {shown} is {mode:04o}, and no file of a secret is open to others");
    Finding::ok(FILES, found)
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

//! Checks whether the way to Postgres is closed to others, and how long the server's certificate is good.

use std::time::Duration;

use jiff::Timestamp;
use secrecy::ExposeSecret;

use crate::bucket::is_this_host;
use crate::certificate::first_end;
use crate::cli::doctor::certificates;
use crate::cli::doctor::finding::Finding;
use crate::config::Config;
use crate::store::{Store, unchecked_host};

const TLS: &str = "postgres.tls";

pub(super) async fn findings(config: &Config, store: &Store, soon: Duration, now: Timestamp) -> Vec<Finding> {
    match unchecked_host(config.postgres.url.expose_secret()) {
        Some(host) if is_this_host(&host) => vec![Finding::ok(TLS, "Postgres is on this host")],
        Some(host) => vec![Finding::warning(
            TLS,
            format!("the certificate of `{host}` is not checked: `plain = \"accepted\"`"),
            "anyone on the way can read and change refunds and permits",
            "set `tls = \"verify-full\"` in `[postgres]` and remove `plain`",
        )],
        None if store.uses_socket() => vec![Finding::ok(TLS, "Postgres is reached by a Unix socket")],
        None => of_server(store, soon, now).await,
    }
}

async fn of_server(store: &Store, soon: Duration, now: Timestamp) -> Vec<Finding> {
    let shown = tokio::time::timeout(Duration::from_secs(5), store.certificates()).await;
    let end = shown.ok().and_then(Result::ok).and_then(|certificates| first_end(&certificates));
    let way_out = "renew the certificate on Postgres's machine, then `select pg_reload_conf()`";
    vec![
        Finding::ok(TLS, "TLS is used, and the server's name is checked"),
        certificates::finding(TLS, "Postgres's certificate", end, (soon, now), way_out),
    ]
}

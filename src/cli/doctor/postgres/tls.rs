//! Checks whether the way to Postgres is closed to others, and how long the certificates of both its ends are good.

use std::time::Duration;

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use secrecy::ExposeSecret;

use crate::bucket::is_this_host;
use crate::certificate::first_end;
use crate::cli::doctor::certificates;
use crate::cli::doctor::finding::Finding;
use crate::config::Config;
use crate::store::{ClientPem, Store, client_certificate, unchecked_host};

const TLS: &str = "postgres.tls";

pub(super) async fn findings(config: &Config, store: &Store, soon: Duration, now: Timestamp) -> Vec<Finding> {
    let url = config.postgres.url.expose_secret();
    let mut findings = match unchecked_host(url) {
        Some(host) if is_this_host(&host) => vec![Finding::ok(TLS, "Postgres is on this host")],
        Some(host) => vec![Finding::warning(
            TLS,
            format!("the certificate of `{host}` is not checked: `plain = \"accepted\"`"),
            "anyone on the way can read and change refunds and permits",
            "set `tls = \"verify-full\"` in `[postgres]` and remove `plain`",
        )],
        None if store.uses_socket() => return vec![Finding::ok(TLS, "Postgres is reached by a Unix socket")],
        None => of_server(store, soon, now).await,
    };
    let shown = client_certificate(url, std::env::var("PGSSLCERT").ok());
    findings.extend(shown.map(|shown| of_node(&shown, soon, now)));
    findings
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

/// The certificate that the node shows. One in a file is read from there, as the client does at each connection.
fn of_node(shown: &ClientPem, soon: Duration, now: Timestamp) -> Finding {
    let (certificates, way_out) = match shown {
        ClientPem::InFile(file) => (
            CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>),
            format!("put a new certificate and its key in place of {} and its key", file.display()),
        ),
        ClientPem::Pem(text) => (
            CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>(),
            "put a new certificate into `PGSSLCERT` and its key into `PGSSLKEY`, and restart the node"
                .to_owned(),
        ),
    };
    let end = certificates.ok().and_then(|certificates| first_end(&certificates));
    let whose = "the certificate that this node shows to Postgres";
    certificates::finding(TLS, whose, end, (soon, now), &way_out)
}

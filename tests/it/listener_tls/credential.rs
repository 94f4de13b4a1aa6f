//! A listener whose private key is a systemd credential.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};

use rustix::process::Signal;
use rustls::version::{TLS12, TLS13};

use super::{OURS, call, with_http};
use crate::cli::{file, text};
use crate::harness::certificates::Issued;
use crate::harness::{NodeProcess, Scratch};

/// What a node says that ends by itself, because its service was not given what its file needs.
fn run(config: &str, credentials: Option<&Path>) -> Output {
    let config = file(config);
    let mut program = Command::new("timeout");
    program.args(["20", env!("CARGO_BIN_EXE_refundd"), "--config"]).arg(config.path()).arg("run");
    program.env_remove("CREDENTIALS_DIRECTORY");
    program.envs(credentials.map(|folder| ("CREDENTIALS_DIRECTORY", folder)));
    program.output().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_key_is_a_systemd_credential_answers_over_tls_and_names_a_missing_one() {
    let (scratch, ours, folder) = (Scratch::new().await, Issued::new(), tempfile::tempdir().unwrap());
    let own = ours.identity(OURS);
    let certificate = own.certificate.display();
    let tls =
        format!("tls = {{ certificate_file = \"{certificate}\", key_credential = \"listener-key\" }}\n");
    let config = with_http(&scratch, &tls);
    for credentials in [None, Some(folder.path())] {
        let refused = run(&config, credentials);
        assert_eq!(refused.status.code(), Some(1), "{credentials:?}: {}", text(&refused));
        let why = "field `http.tls.key_credential` = \"listener-key\": the service was not given this systemd credential; \
                   add `LoadCredential=` to its unit";
        assert!(text(&refused).contains(why), "{credentials:?}: {}", text(&refused));
    }
    fs::copy(&own.key, folder.path().join("listener-key")).unwrap();
    let credentials = ("CREDENTIALS_DIRECTORY", folder.path().to_str().unwrap());
    let mut node = NodeProcess::spawn_file(&config, [credentials]);
    node.wait_for_line("HTTP on");
    let address: SocketAddr = node.address().unwrap().parse().unwrap();
    let answer = call(address, &ours.client(None, &[&TLS12, &TLS13]), "localhost").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    node.signal(Signal::TERM);
    assert!(node.wait().success());
}

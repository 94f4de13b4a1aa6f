//! The system's root certificates, which channels without a `ca_file` trust.

use playground::{Authority, PretendBank};
use refundd::refund::State;
use rustix::process::Signal;

use crate::harness::{NodeProcess, Scratch, until};

/// As when a bank moves to a new authority, and `update-ca-certificates` has installed it.
#[tokio::test(flavor = "multi_thread")]
async fn a_reload_reads_the_systems_roots_again() {
    let (new, old) = (Authority::new().unwrap(), Authority::new().unwrap());
    let mut scratch = Scratch::new().await;
    let here = "127.0.0.1:0".parse().unwrap();
    scratch.bank = PretendBank::start_secure(here, new.identity().unwrap()).unwrap();
    let roots = tempfile::NamedTempFile::new().unwrap();
    std::fs::copy(old.file(), roots.path()).unwrap();
    let channel = "[channel.acme]\nendpoint = \"https://{bank}/acme/refunds\"\nlimits = []\n";
    let installed = [("SSL_CERT_FILE", roots.path().to_str().unwrap())];
    let node = NodeProcess::spawn_where(&scratch, "a", channel, installed);
    node.wait_for_line("HTTP on");
    scratch.insert("acme", "R-", 3).await;
    std::fs::copy(new.file(), roots.path()).unwrap();
    node.signal(Signal::HUP);
    until("all are sent", async || scratch.count(State::Succeeded).await == 3).await;
}

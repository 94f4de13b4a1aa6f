//! Signed requests: the pretend bank checks each signature with code of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use playground::bank::Step;
use refundd::config::Config;
use refundd::refund::State;

use crate::harness::{Scratch, TestNode, until};

const OLD: &[u8] = b"an old key of 32 bytes, in text..";
const NEW: &[u8] = &[0xff, 0, 7, 0xfe, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
/// `NEW` as its file has it.
const NEW_IN_FILE: &str = "base64:/wAH/gECAwQFBgcICQoLDA0ODxA=\n";

fn keys() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("acme-2", NEW_IN_FILE.as_bytes()), ("acme-1", OLD)] {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    folder
}

fn acme(folder: &tempfile::TempDir, names: &[&str]) -> String {
    let files: Vec<String> =
        names.iter().map(|name| format!("\"{}\"", folder.path().join(name).display())).collect();
    format!(
        "[channel.acme]\nendpoint = \"http://{{bank}}/acme/refunds?key=7\"\nlimits = []\n\
         inquiry = {{ url = \"http://{{bank}}/acme/refunds/{{request_id}}?key=7\" }}\n\
         signing = {{ scheme = \"hmac-sha256\", key_files = [{}] }}\n",
        files.join(", ")
    )
}

#[tokio::test]
async fn a_bank_that_demands_signatures_executes_sends_and_answers_inquiries() {
    let (scratch, folder) = (Scratch::new().await, keys());
    scratch.bank.demands_signatures("acme", &[("acme-1", OLD)]);
    scratch.bank.next("acme", [Step::pending().decided_after(std::time::Duration::ZERO)]);
    let node = TestNode::start(&scratch, "a", &acme(&folder, &["acme-1"])).await;
    scratch.insert("acme", "R-", 5).await;
    until("all are sent", async || {
        scratch.count(State::Succeeded).await + scratch.count(State::Accepted).await == 5
    })
    .await;
    scratch.sql("update refundd.refunds set inquire_at = now() where state = 'accepted'").await;
    until("the inquiry is answered", async || scratch.count(State::Succeeded).await == 5).await;
    let settings = scratch.text("select settings ->> 'signing' from refundd.channels").await;
    assert_eq!(settings, r#"{"keys": ["acme-1"], "scheme": "hmac-sha256"}"#);
    node.stop().await;
}

#[tokio::test]
async fn the_bank_may_change_to_the_new_key_at_any_moment_while_two_keys_sign() {
    let (scratch, folder) = (Scratch::new().await, keys());
    scratch.bank.demands_signatures("acme", &[("acme-1", OLD)]);
    let config = |names: &[&str]| {
        Config::parse(&scratch.file("a", &acme(&folder, names)), "test.toml", &|_| None).unwrap()
    };
    let node = TestNode::run(config(&["acme-1"])).await;
    let paid = async |count: u32| {
        scratch.insert("acme", &format!("R-{count}-"), 5).await;
        until("all are paid", async || scratch.count(State::Succeeded).await == i64::from(count)).await;
    };
    paid(5).await;
    node.daemon.reload(config(&["acme-2", "acme-1"])).await.unwrap();
    paid(10).await;
    scratch.bank.demands_signatures("acme", &[("acme-2", NEW)]);
    paid(15).await;
    node.daemon.reload(config(&["acme-2"])).await.unwrap();
    paid(20).await;
    assert_eq!(scratch.bank.ledger().all().len(), 20, "no request was refused");
    node.stop().await;
}

#[tokio::test]
async fn a_request_signed_by_a_key_that_the_bank_does_not_know_executes_nothing_and_pauses_the_channel() {
    let (scratch, folder) = (Scratch::new().await, keys());
    scratch.bank.demands_signatures("acme", &[("acme-1", NEW)]);
    let node = TestNode::start(&scratch, "a", &acme(&folder, &["acme-1"])).await;
    scratch.insert("acme", "R-", 1).await;
    until("the channel is paused", async || scratch.suspensions().await == 1).await;
    let why = "select reason from refundd.suspended";
    assert!(scratch.text(why).await.contains("the signature by `acme-1` is another"));
    until("it is ready again", async || scratch.count(State::Ready).await == 1).await;
    assert_eq!(scratch.number("select attempts::bigint from refundd.refunds").await, 0);
    node.stop().await;
}

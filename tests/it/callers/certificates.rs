//! A caller that shows a client certificate: real handshakes, and the name in the certificate selects the caller.

use std::net::SocketAddr;

use refundd::caller::token::Token;
use refundd::config::Config;
use rustls::version::{TLS12, TLS13};
use serde_json::Value;
use tokio_rustls::TlsConnector;

use super::{CallerTables, TWO_CHANNELS, ask_on};
use crate::harness::certificates::Issued;
use crate::harness::node::refund;
use crate::harness::{Scratch, TestNode};
use crate::listener_tls::{OURS, connect, tls};

/// The status and the body of one request over TLS; an error if there is no handshake.
async fn ask(
    address: SocketAddr,
    client: &TlsConnector,
    token: Option<&Token>,
    request: &str,
    body: &str,
) -> std::io::Result<(u16, Value)> {
    let (status, answer) = ask_on(connect(address, client, "localhost").await?, token, request, body).await?;
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    Ok((status, serde_json::from_str(body).unwrap_or_default()))
}

#[tokio::test]
async fn the_name_in_a_client_certificate_selects_the_caller() {
    let (scratch, ours, theirs, strangers) =
        (Scratch::new().await, Issued::new(), Issued::new(), Issued::new());
    let mut callers = CallerTables::new();
    let desk =
        callers.caller("desk", "certificate = \"desk.internal\"\nmay = [\"look\"]\nchannels = [\"other\"]");
    let may = "may = [\"enqueue\", \"look\", \"cancel\"]\nchannels = [\"acme\"]";
    let shops = format!(
        "[caller.shop]\ncertificate = \"shop.internal\"\n{may}\n[caller.kiosk]\ncertificate = \"kiosk.internal\"\n{may}\n"
    );
    let lines = tls(&ours.identity(OURS), Some(&theirs));
    let text = scratch
        .file("a", &(callers.with_channels(TWO_CHANNELS) + &shops))
        .replace("[http]\n", &format!("[http]\n{lines}"));
    let config = Config::parse(&text, "t.toml", &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let node = TestNode::run(config).await;
    for channel in ["acme", "other"] {
        scratch.pause(channel, "so that nothing is sent", "test").await;
    }
    scratch.insert("other", "foreign-", 1).await;
    let address = node.daemon.address();
    let client =
        |issuer: &Issued, names: &[&str]| ours.client(Some(&issuer.identity(names)), &[&TLS12, &TLS13]);
    let list = "GET /v1/refunds";

    let shop = client(&theirs, &["shop.internal"]);
    let order = refund("R-1", "acme").to_string();
    let (status, saved) = ask(address, &shop, None, "POST /v1/refunds", &order).await.unwrap();
    assert_eq!(status, 201, "{saved}");
    let (status, listed) = ask(address, &shop, None, list, "").await.unwrap();
    assert_eq!(
        (status, listed["refunds"].as_array().map(Vec::len)),
        (200, Some(1)),
        "only its own channel: {listed}"
    );
    let cancel = format!("POST /v1/refunds/{}/cancel", saved["id"]);
    let (status, cancelled) = ask(address, &shop, None, &cancel, "").await.unwrap();
    assert_eq!((status, &cancelled["reason"]), (200, &Value::from("cancelled by shop")), "{cancelled}");

    // The names are compared without regard to case, and a certificate may have others beside.
    let other_form = client(&theirs, &["Shop.Internal", "www.example"]);
    assert_eq!(ask(address, &other_form, None, list, "").await.unwrap().0, 200);
    let wrong: [(&str, &[&str]); 7] = [
        ("the name of nobody", &["unknown.internal"]),
        ("no caller's whole name", &["internal"]),
        ("a name below a caller's", &["x.shop.internal"]),
        ("a wildcard", &["*.internal"]),
        ("the names of two callers", &["shop.internal", "kiosk.internal"]),
        ("the name of a caller that needs a token, too", &["desk.internal"]),
        ("no name, only an address", &["127.0.0.1"]),
    ];
    for (what, names) in wrong {
        let (status, answer) = ask(address, &client(&theirs, names), None, list, "").await.unwrap();
        assert_eq!(status, 401, "{what}: {answer}");
    }
    for (what, identity) in [
        ("of an unknown authority", strangers.identity(&["shop.internal"])),
        ("of the listener's authority", ours.identity(&["shop.internal"])),
        ("that has ended", theirs.expired(&["shop.internal"])),
    ] {
        for version in [&TLS12, &TLS13] {
            let refused = ask(address, &ours.client(Some(&identity), &[version]), None, list, "").await;
            assert!(refused.is_err(), "a certificate {what}: {refused:?}");
        }
    }
    // A token and a certificate of two callers are neither.
    let token = Some(&desk);
    assert_eq!(ask(address, &shop, token, list, "").await.unwrap().0, 401);
    let (status, listed) = ask(address, &client(&theirs, &["desk.internal"]), token, list, "").await.unwrap();
    assert_eq!((status, &listed["refunds"][0]["refund_ref"]), (200, &Value::from("foreign-1")), "{listed}");
    node.stop().await;
}

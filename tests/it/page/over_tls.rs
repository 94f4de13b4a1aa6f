//! The page over TLS: what somebody on the network path, who gives a browser pages in clear text, cannot make it do.

use std::net::SocketAddr;

use refundd::config::Config;
use rustls::version::{TLS12, TLS13};
use tokio_rustls::TlsConnector;

use crate::dispatch::UNLIMITED;
use crate::harness::certificates::Issued;
use crate::harness::http::ask_on;
use crate::harness::{Scratch, TestNode};
use crate::listener_tls::{OURS, connect, tls};

async fn ask(
    address: SocketAddr,
    client: &TlsConnector,
    request: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> String {
    let stream = connect(address, client, "localhost").await.unwrap();
    ask_on(stream, &format!("localhost:{}", address.port()), request, headers, body).await.unwrap()
}

#[tokio::test]
async fn over_tls_a_form_counts_only_with_a_secure_cookie_and_from_a_page_that_came_by_tls() {
    let (scratch, ours) = (Scratch::new().await, Issued::new());
    let http = format!("[http]\n{}", tls(&ours.identity(OURS), None));
    let file = scratch.file("a", UNLIMITED).replace("[http]\n", &http);
    let node = TestNode::run(Config::parse(&file, "t.toml", &|_| None).unwrap()).await;
    let (address, client) = (node.daemon.address(), ours.client(None, &[&TLS12, &TLS13]));
    let page = ask(address, &client, "GET /channels/acme", &[("accept", "text/html")], "").await;
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    assert!(page.contains("\r\nstrict-transport-security: max-age=31536000\r\n"), "{page}");
    let cookie = page.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let (pair, attributes) = cookie.split_once("; ").unwrap();
    assert!(pair.starts_with("__Host-refundd_form="), "{cookie}");
    for needed in ["Secure", "Path=/", "HttpOnly", "SameSite=Lax"] {
        assert!(attributes.split("; ").any(|attribute| attribute == needed), "{cookie}");
    }
    let key = pair.split_once('=').unwrap().1;
    let planted = format!("refundd_form={key}");
    let pause = async |origin: &str, cookie: &str| {
        let headers =
            [("content-type", "application/x-www-form-urlencoded"), ("origin", origin), ("cookie", cookie)];
        let fields = format!("key={key}&reason=r&by=ann");
        ask(address, &client, "POST /channels/acme/pause", &headers, &fields).await
    };
    let (own, clear) =
        (format!("https://localhost:{}", address.port()), format!("http://localhost:{}", address.port()));
    for (what, origin, cookie, kind) in [
        ("a page in clear text", &clear, pair, "foreign-origin"),
        ("a cookie that was set in clear text", &own, &planted, "foreign-form"),
    ] {
        let refused = pause(origin, cookie).await;
        assert!(refused.starts_with("HTTP/1.1 403") && refused.contains(kind), "{what}: {refused}");
        assert!(refused.contains("strict-transport-security"), "{refused}");
    }
    assert_eq!(scratch.suspensions().await, 0);
    let paused = pause(&own, pair).await;
    assert!(paused.starts_with("HTTP/1.1 303"), "{paused}");
    assert_eq!(scratch.suspensions().await, 1);
    node.stop().await;
}

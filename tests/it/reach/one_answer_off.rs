//! A proxy before the bank that sent one answer too many: each later answer on that connection is about the refund before.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use refundd::refund::State;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::harness::{Scratch, TestNode, until};

/// The bank behind such a proxy. It answers one kind of requests, and 500 to the other.
struct OffBank {
    address: SocketAddr,
    answers: Method,
    books: Mutex<OffBooks>,
}

#[derive(Default)]
struct OffBooks {
    /// The refund of each key.
    refunds: HashMap<String, i64>,
    /// The connection that is one answer off after its first answer.
    off: Option<usize>,
    /// The refund in the last request on that connection.
    last: Option<i64>,
    /// Whether each answer went over that connection.
    answered: Vec<bool>,
}

impl OffBank {
    async fn start(answers: Method) -> Arc<OffBank> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let bank = Arc::new(OffBank { address, answers, books: Mutex::default() });
        let accepting = Arc::clone(&bank);
        tokio::spawn(async move {
            for nth in 0.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                let bank = Arc::clone(&accepting);
                tokio::spawn(async move {
                    let service = service_fn(|request| answer(Arc::clone(&bank), nth, request));
                    let server = hyper::server::conn::http1::Builder::new();
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        bank
    }

    /// A node whose channel has one connection at a time, and keeps it while it is idle.
    async fn node(&self, scratch: &Scratch, more: &str) -> TestNode {
        let address = self.address;
        let channel = format!(
            "[channel.acme]\nendpoint = \"http://{address}/acme/refunds\"\nlimits = []\nmax_in_flight = 1\nidle_timeout = \"10m\"\n{more}"
        );
        TestNode::start(scratch, "a", &channel).await
    }

    /// Of three refunds the second got the answer about the first, and the third is not touched by that.
    async fn got_one_wrong(&self, scratch: &Scratch) {
        let states = "select string_agg(state::text, ' ' order by id) from refundd.refunds";
        assert_eq!(scratch.text(states).await, "succeeded review succeeded");
        let reason = scratch.text("select reason from refundd.refunds where state = 'review'").await;
        assert!(reason.starts_with("echo_differs"), "{reason}");
        assert_eq!(self.books.lock().unwrap().answered, [true, true, false]);
    }
}

async fn answer(
    bank: Arc<OffBank>,
    nth: usize,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let mut books = bank.books.lock().unwrap();
    let refund = if head.method == Method::POST {
        let key = head.headers["idempotency-key"].to_str().unwrap().to_owned();
        let refund = serde_json::from_slice::<Value>(&body).unwrap()["refund_id"].as_i64().unwrap();
        books.refunds.insert(key, refund);
        refund
    } else {
        books.refunds[head.uri.path().rsplit('/').next().unwrap()]
    };
    if head.method != bank.answers {
        return Ok(Response::builder().status(500).body(Full::default()).unwrap());
    }
    let is_off = *books.off.get_or_insert(nth) == nth;
    books.answered.push(is_off);
    let about = if is_off { books.last.replace(refund).unwrap_or(refund) } else { refund };
    let says = json!({ "status": "succeeded", "refund_id": about });
    Ok(Response::new(Full::from(says.to_string())))
}

async fn are_settled(scratch: &Scratch, count: i64) {
    let settled = "select count(*) from refundd.refunds where state in ('succeeded', 'review')";
    until(&format!("{count} are settled"), async || scratch.number(settled).await == count).await;
}

#[tokio::test]
async fn a_connection_that_is_one_answer_off_gets_one_refund_wrong_and_the_next_goes_over_a_new_one() {
    let scratch = Scratch::new().await;
    let bank = OffBank::start(Method::POST).await;
    let node = bank.node(&scratch, "").await;
    for nth in 1..=3 {
        scratch.insert("acme", &format!("R-{nth}-"), 1).await;
        are_settled(&scratch, nth).await;
    }
    bank.got_one_wrong(&scratch).await;
    node.stop().await;
}

#[tokio::test]
async fn an_inquiry_whose_answer_is_about_another_refund_is_the_last_on_its_connection() {
    let scratch = Scratch::new().await;
    let bank = OffBank::start(Method::GET).await;
    let url = format!("http://{}/acme/refunds/{{request_id}}", bank.address);
    let asks = format!("on_unknown = \"inquire\"\ninquiry = {{ url = \"{url}\" }}\n");
    let node = bank.node(&scratch, &asks).await;
    for nth in 1..=3 {
        scratch.insert("acme", &format!("R-{nth}-"), 1).await;
        until("it is unknown", async || scratch.count(State::Unknown).await == 1).await;
        scratch
            .sql(
                "update refundd.refunds set inquire_at = now() - interval '1 second' where state = 'unknown'",
            )
            .await;
        are_settled(&scratch, nth).await;
    }
    bank.got_one_wrong(&scratch).await;
    node.stop().await;
}

//! A node in this process, and a plain HTTP client to talk to it.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, StatusCode};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use refundd::config::Config;
use refundd::daemon::{Daemon, Stopped};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::Scratch;

pub struct TestNode {
    pub daemon: Daemon,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// An answer of ours.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: hyper::HeaderMap,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

impl TestNode {
    pub async fn start(scratch: &Scratch, name: &str, channels: &str) -> TestNode {
        TestNode::start_at(scratch, name, channels, &scratch.redis_url).await
    }

    /// Starts one that reaches Redis at another address than the scratch's.
    pub async fn start_at(scratch: &Scratch, name: &str, channels: &str, redis_url: &str) -> TestNode {
        TestNode::run(scratch.config_at(name, channels, redis_url)).await
    }

    pub async fn run(config: Config) -> TestNode {
        let daemon = Daemon::start(config, || {}).await.unwrap();
        // A node closes an idle connection after 5 s. A request that meets the close would fail.
        let idle = Duration::from_secs(1);
        let client = Client::builder(TokioExecutor::new()).pool_idle_timeout(idle).build_http();
        TestNode { daemon, client }
    }

    pub async fn stop(self) -> Stopped {
        self.daemon.stop(CancellationToken::new()).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.request(Method::GET, path, "", "").await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.request(Method::POST, path, "application/json", &body.to_string()).await
    }

    /// Asks for permits until some are handed out: at the end of a window a call is answered 429, and 503 when the
    /// ledger was slower than a permit lives.
    pub async fn acquire(&self, limit: &str, wanted: &Value) -> Answer {
        for _ in 0..3_000 {
            let answer = self.post(&format!("/v1/limits/{limit}/acquire"), wanted).await;
            if !matches!(answer.status.as_u16(), 429 | 503) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("limit {limit} handed out no permit");
    }

    pub async fn request(&self, method: Method, path: &str, content_type: &str, body: &str) -> Answer {
        let headers = [("content-type", content_type)];
        self.request_with(method, path, &headers[usize::from(content_type.is_empty())..], body).await
    }

    pub async fn request_with(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut request =
            Request::builder().method(method).uri(format!("http://{}{path}", self.daemon.address()));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
        let (head, body) = self.client.request(request).await.unwrap().into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answer {
            status: head.status,
            headers: head.headers,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }
}

/// A refund as a caller writes it.
pub fn refund(refund_ref: &str, channel: &str) -> Value {
    serde_json::json!({
        "refund_ref": refund_ref, "channel": channel, "payment_ref": "P-1", "amount_minor": 1250, "currency": "EUR",
    })
}

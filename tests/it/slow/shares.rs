//! A caller that does not read takes its own share of the room for unread answers, and nothing of the other callers' room.

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::{connect, fill, node_with};
use crate::callers::{CallerTables, get, post};
use crate::dispatch::UNLIMITED;
use crate::harness::node::refund;
use crate::harness::{Scratch, until};

/// Its long lists leave less than a list of 1 MiB, and its shorter ones less than the answer to the batch.
#[tokio::test]
async fn a_caller_that_does_not_read_takes_no_room_of_other_callers_answers() {
    let scratch = Scratch::new().await;
    let mut callers = CallerTables::new();
    let reader = callers.caller("reader", "may = [\"look\"]\nchannels = [\"acme\"]");
    let shop = callers.caller("shop", "may = [\"enqueue\", \"look\"]\nchannels = [\"acme\"]");
    let http = "answer_timeout = \"1m\"\nheader_timeout = \"1m\"";
    let node = node_with(&scratch, http, &callers.with_channels(UNLIMITED)).await;
    scratch.pause("acme", "so that nothing is sent", "test").await;
    fill(&scratch, 1_500_000).await;
    let mut unread = Vec::new();
    for limit in [1000, 12] {
        let path = format!("/v1/refunds?limit={limit}");
        let list = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n",
            reader.expose()
        );
        let streams = (0..60).map(|_| async {
            let mut stream = connect(&node).await;
            stream.write_all(list.as_bytes()).await.unwrap();
            stream
        });
        unread.extend(join_all(streams).await);
        until("its own lists are refused", async || {
            let refused = get(&node, &reader, &path).await;
            refused.status == 503 && refused.text.contains("urn:refundd:problem:busy")
        })
        .await;
    }
    let batch: Vec<Value> = (0..2000).map(|n| refund(&format!("B-{n:0>150}"), "acme")).collect();
    let saved = post(&node, &shop, "/v1/refunds/batch", &json!(batch)).await;
    assert_eq!(saved.status, 200, "{}", saved.text.len());
    assert!(saved.text.len() > 300_000, "{} bytes are no large answer", saved.text.len());
    for path in ["/v1/refunds?limit=1000", "/v1/channels", "/"] {
        assert_eq!(get(&node, &shop, path).await.status, 200, "{path}");
    }
    drop(unread);
    node.stop().await;
}

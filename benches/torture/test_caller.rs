//! A test caller: another service that shares limits with refundd. It gets permits from the nodes and sends its own
//! requests to the same bank, each within the span of its permit.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::producer::Http;
use crate::world::World;

/// The limits that it shares: one of each kind that lets two callers send at once, and one that does not.
pub const LIMITS: &[&str] = &["paced", "bucket", "twins", "asked"];
/// Limits whose next permit opens up to a second after it was granted. A second test caller waits for these.
pub const SLOW_LIMITS: &[&str] = &["slow", "slower"];
const PREFIX: &str = "test-caller-of-";
/// Its name in the ledger of permits.
pub const CALLER: &str = "test-caller";

/// The limit of a test caller's request, by the channel name at the bank; `None` for refundd's requests.
pub fn limit_of(channel: &str) -> Option<&'static str> {
    let name = channel.strip_prefix(PREFIX)?;
    LIMITS.iter().chain(SLOW_LIMITS).copied().find(|limit| *limit == name)
}

/// Runs until `enough`, and returns how many permits it was granted.
pub async fn visit(
    world: Arc<World>,
    limits: &'static [&'static str],
    mut dice: fastrand::Rng,
    enough: CancellationToken,
) -> anyhow::Result<usize> {
    let client: Http = Client::builder(TokioExecutor::new()).build_http();
    let bank = world.stage.bank.address();
    let (mut granted, mut number) = (0, 0);
    while !enough.is_cancelled() {
        tokio::time::sleep(Duration::from_millis(dice.u64(5..60))).await;
        let limit = limits[dice.usize(..limits.len())];
        let want = if ["paced", "slow", "slower"].contains(&limit) { 1 } else { dice.usize(1..4) };
        let Some(node) = world.somewhere(&mut dice) else { continue };
        let started = Instant::now();
        let Some(answer) = acquire(&client, node, limit, want).await else { continue };
        granted += want;
        // The node counts from the time of its answer. That time lies between `started` and now.
        let ms = |name: &str| Duration::from_millis(answer.get(name).and_then(Value::as_u64).unwrap_or(0));
        let closes = started + ms("valid_for_ms");
        let opens = Instant::now() + ms("opens_in_ms");
        // Connects before the permit opens, so that the whole span is left for the request.
        let mut connections = Vec::new();
        for _ in 0..want {
            // A permit without a connection stays unused.
            connections.extend(connect(bank).await);
        }
        tokio::time::sleep_until(opens.into()).await;
        for connection in connections {
            number += 1;
            send(connection, limit, number, closes)?;
        }
    }
    Ok(granted)
}

/// Opens a connection and waits until it can be written to.
async fn connect(bank: SocketAddr) -> io::Result<TcpStream> {
    let connection = TcpStream::connect(bank).await?;
    connection.set_nodelay(true)?;
    connection.writable().await?;
    Ok(connection)
}

/// Sends one request, unless its permit has closed. Nothing runs between the check of the clock and the first byte.
fn send(mut connection: TcpStream, limit: &str, number: usize, closes: Instant) -> io::Result<()> {
    let request = format!(
        "POST /{PREFIX}{limit}/refunds HTTP/1.1\r\nhost: bank\r\nidempotency-key: test-caller-{limit}-{number}\r\n\
         content-length: 0\r\nconnection: close\r\n\r\n"
    );
    if Instant::now() < closes {
        connection.try_write(request.as_bytes())?;
        tokio::spawn(async move { connection.read_to_end(&mut Vec::new()).await });
    }
    Ok(())
}

async fn acquire(client: &Http, node: SocketAddr, limit: &str, want: usize) -> Option<Value> {
    let body = serde_json::json!({ "permits": want, "caller": CALLER });
    let request = Request::post(format!("http://{node}/v1/limits/{limit}/acquire"))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())))
        .ok()?;
    let answer = tokio::time::timeout(Duration::from_secs(8), client.request(request)).await.ok()?.ok()?;
    if answer.status() != hyper::StatusCode::OK {
        return None;
    }
    let body = answer.into_body().collect().await.ok()?.to_bytes();
    serde_json::from_slice(&body).ok()
}

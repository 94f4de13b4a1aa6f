//! Another service that shares limits with refundd: it asks the nodes for permits and makes its own requests
//! to the same bank, each under a permit and within that permit's span.

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

/// Whose permits it shares: one of each kind of limit that lets two callers go at once, and one that does not.
pub const LIMITS: &[&str] = &["paced", "bucket", "twins", "asked"];
/// Those whose next permit opens up to a second after it is granted; for them it waits in a life of its own.
pub const SLOW_LIMITS: &[&str] = &["slow", "slower"];
const PREFIX: &str = "guest-of-";
/// The name under which it stands in the ledger of permits.
pub const CALLER: &str = "guest";

/// The limit of a request that a guest made, by what the bank calls its channel.
pub fn limit_of(channel: &str) -> Option<&'static str> {
    let name = channel.strip_prefix(PREFIX)?;
    LIMITS.iter().chain(SLOW_LIMITS).copied().find(|limit| *limit == name)
}

/// Answers how many permits it was granted.
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
        let asked = Instant::now();
        let Some(answer) = acquire(&client, node, limit, want).await else { continue };
        granted += want;
        // The node counts from when it answered, which is between these two moments.
        let ms = |name: &str| Duration::from_millis(answer.get(name).and_then(Value::as_u64).unwrap_or(0));
        let closes = asked + ms("valid_for_ms");
        let opens = Instant::now() + ms("opens_in_ms");
        // Whoever connects only when the permit is there has less time left to use it.
        let mut lines = Vec::new();
        for _ in 0..want {
            lines.push(connect(bank).await?);
        }
        tokio::time::sleep_until(opens.into()).await;
        for line in lines {
            number += 1;
            send(line, limit, number, closes)?;
        }
    }
    Ok(granted)
}

/// A connection that can be written to.
async fn connect(bank: SocketAddr) -> io::Result<TcpStream> {
    let line = TcpStream::connect(bank).await?;
    line.set_nodelay(true)?;
    line.writable().await?;
    Ok(line)
}

/// Sends one request, unless its permit is over; between the last look at the clock and the first byte there
/// is nothing.
fn send(mut line: TcpStream, limit: &str, number: usize, closes: Instant) -> io::Result<()> {
    let request = format!(
        "POST /{PREFIX}{limit}/refunds HTTP/1.1\r\nhost: bank\r\nidempotency-key: guest-{limit}-{number}\r\n\
         content-length: 0\r\nconnection: close\r\n\r\n"
    );
    if Instant::now() < closes {
        line.try_write(request.as_bytes())?;
        tokio::spawn(async move { line.read_to_end(&mut Vec::new()).await });
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

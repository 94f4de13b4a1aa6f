//! Measures what the bank and the network allow: connections that send one request after the other and store nothing.

use std::time::Instant;

use anyhow::bail;
use bytes::Bytes;
use futures_util::future::try_join_all;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use playground::PretendBank;
use tokio::net::TcpStream;

pub const IN_FLIGHT: u32 = 64;

pub async fn rate(requests: u32) -> anyhow::Result<f64> {
    let bank = PretendBank::start_here()?;
    send(&bank, 0, 2_000).await?;
    let began = Instant::now();
    send(&bank, 2_000, requests).await?;
    let took = began.elapsed();
    let arrived = bank.close().all().len();
    if arrived != (2_000 + requests) as usize {
        bail!("{arrived} requests arrived");
    }
    Ok(f64::from(requests) / took.as_secs_f64())
}

async fn send(bank: &PretendBank, from: u32, count: u32) -> anyhow::Result<()> {
    let address = bank.address();
    let connections = (0..IN_FLIGHT).map(|nth| {
        tokio::spawn(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            for n in (from + nth..from + count).step_by(IN_FLIGHT as usize) {
                let request = Request::post("/acme/refunds")
                    .header("host", address.to_string())
                    .header("content-type", "application/json")
                    .header("idempotency-key", format!("00000000-0000-4000-8000-{n:012}"))
                    .header("refundd-attempt", "1")
                    .body(Full::new(body(n)))?;
                let answer = sender.send_request(request).await?;
                let status = answer.status();
                answer.into_body().collect().await?;
                if status != 200 {
                    bail!("status {status}");
                }
            }
            Ok(())
        })
    });
    for ended in try_join_all(connections).await? {
        ended?;
    }
    Ok(())
}

/// The body that refundd sends for a refund.
fn body(n: u32) -> Bytes {
    let body = format!(
        "{{\"refund_id\":{n},\"refund_ref\":\"R-{n}\",\"channel\":\"acme\",\"payment_ref\":\"P-{n}\",\"amount_minor\":{n},\
         \"currency\":\"EUR\",\"requested_at\":\"2026-01-01T00:00:00.000000Z\"}}"
    );
    Bytes::from(body)
}

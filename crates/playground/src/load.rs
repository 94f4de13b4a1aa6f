//! Load for measurements on a stage: saves many refunds by SQL or over HTTP, and waits until they arrive at the bank.
//!
//! All refunds go through the channel `acme`, except those of [`save_in`].

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, StatusCode};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use sqlx::{Connection, PgConnection};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

pub use super::stage::ANY;
use super::stage::{NodeProcess, Stage};

/// The channel of all refunds.
pub const CHANNEL: &str = "acme";
/// Saves refunds by SQL, as docs/sql.md says.
const SAVE: &str = "
    insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
    select $1 || n, $2, 'P-' || n, n, 'EUR' from generate_series($3, $4) n
        on conflict (refund_ref) do nothing";
/// Refunds in one commit.
const AT_ONCE: u32 = 10_000;

/// The configuration of a channel under a limit of `permits` a second, with at most `in_flight` requests in progress.
#[must_use]
pub fn limited(permits: u32, in_flight: u32) -> String {
    format!(
        "[limit.acme]\npermits = {permits}\nper = \"1s\"\n[channel.acme]\nendpoint = \"http://{{bank}}/acme/refunds\"\n\
         limits = [\"acme\"]\nmax_in_flight = {in_flight}\n"
    )
}

/// The configuration of a channel without limits, with at most `in_flight` requests in progress.
#[must_use]
pub fn unlimited(in_flight: u32) -> String {
    format!(
        "[channel.acme]\nendpoint = \"http://{{bank}}/acme/refunds\"\nlimits = []\nmax_in_flight = {in_flight}\n\
         timeout = \"5s\"\nconnect_timeout = \"1s\"\nlease = \"11s\"\n"
    )
}

/// Saves `count` refunds by SQL and returns their refund refs. Fails if a ref exists already.
pub async fn save(stage: &Stage, prefix: &str, count: u32) -> anyhow::Result<Vec<String>> {
    let mut database = PgConnection::connect(&stage.database_url()).await?;
    for first in (1..=count).step_by(AT_ONCE as usize) {
        let last = count.min(first + AT_ONCE - 1);
        insert(&mut database, prefix, CHANNEL, first..=last).await?;
    }
    database.close().await?;
    Ok((1..=count).map(|n| format!("{prefix}{n}")).collect())
}

/// Saves refunds of any channel by SQL, in one commit. Their refund refs are `CHANNEL-NUMBER`. Fails if a ref exists
/// already.
pub async fn save_in(
    database: &mut PgConnection,
    channel: &str,
    numbers: RangeInclusive<u32>,
) -> anyhow::Result<()> {
    insert(database, &format!("{channel}-"), channel, numbers).await
}

async fn insert(
    database: &mut PgConnection,
    prefix: &str,
    channel: &str,
    numbers: RangeInclusive<u32>,
) -> anyhow::Result<()> {
    let (first, last) = numbers.into_inner();
    let save = sqlx::query(SAVE).bind(prefix).bind(channel).bind(i64::from(first)).bind(i64::from(last));
    let saved = save.execute(database).await.context("failed to save the refunds")?;
    if saved.rows_affected() != u64::from(last + 1 - first) {
        bail!("not all were saved");
    }
    Ok(())
}

/// Waits until `count` requests reached the bank. Fails after `limit`.
pub async fn arrived(stage: &Stage, count: usize, limit: Duration) -> anyhow::Result<()> {
    if stage.bank.until(limit, |l| l.all().len() >= count).await {
        return Ok(());
    }
    bail!("{} of {count} arrived within {limit:?}", stage.bank.look(|l| l.all().len()))
}

/// Stops the nodes and then the servers.
pub async fn end(stage: Stage, nodes: Vec<NodeProcess>) -> anyhow::Result<()> {
    for node in nodes {
        node.stop().await?;
    }
    stage.strike().await
}

/// An HTTP client of one node. It opens as many connections as it has requests in progress.
#[derive(Debug, Clone)]
pub struct Caller {
    node: SocketAddr,
    client: hyper_util::client::legacy::Client<HttpConnector, Full<Bytes>>,
}

impl Caller {
    /// A client of the node at this address.
    #[must_use]
    pub fn of(node: SocketAddr) -> Caller {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
        Caller { node, client }
    }

    /// POSTs JSON and returns the status and the whole body.
    pub async fn post(&self, path: &str, body: impl Into<Bytes>) -> anyhow::Result<(StatusCode, Bytes)> {
        let request = Request::post(format!("http://{}{path}", self.node))
            .header("content-type", "application/json")
            .body(Full::new(body.into()))?;
        let answer = self.client.request(request).await?;
        Ok((answer.status(), answer.into_body().collect().await?.to_bytes()))
    }

    /// Saves one refund with this refund ref. Fails unless the status is 201.
    pub async fn save(&self, name: &str) -> anyhow::Result<()> {
        let (status, _) = self.post("/v1/refunds", body(name).to_string()).await?;
        if status != StatusCode::CREATED {
            bail!("{name}: {status}");
        }
        Ok(())
    }
}

/// An HTTP client with one connection to a node, in clear text or over TLS, and with a token or without.
#[derive(Debug)]
pub struct SingleCaller {
    requests: SendRequest<Full<Bytes>>,
    host: String,
    authorization: Option<String>,
}

impl SingleCaller {
    /// Connects to the node in clear text.
    pub async fn in_clear(node: SocketAddr) -> anyhow::Result<SingleCaller> {
        Self::over(connect(node).await?, node, None).await
    }

    /// Connects to the node over TLS, and shows this token with each request.
    pub async fn over_tls(node: SocketAddr, tls: &TlsConnector, token: &str) -> anyhow::Result<SingleCaller> {
        let name = ServerName::IpAddress(node.ip().into());
        let stream = tls.connect(name, connect(node).await?).await?;
        Self::over(stream, node, Some(format!("Bearer {token}"))).await
    }

    async fn over(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        node: SocketAddr,
        authorization: Option<String>,
    ) -> anyhow::Result<SingleCaller> {
        let (requests, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(SingleCaller { requests, host: node.to_string(), authorization })
    }

    /// Saves one refund with this refund ref. Fails unless the status is 201.
    pub async fn save(&mut self, name: &str) -> anyhow::Result<()> {
        let mut request = Request::post("/v1/refunds")
            .header("host", &self.host)
            .header("content-type", "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let request = request.body(Full::new(body(name).to_string().into()))?;
        let answer = self.requests.send_request(request).await?;
        let status = answer.status();
        let text = answer.into_body().collect().await?.to_bytes();
        if status != StatusCode::CREATED {
            bail!("{name}: {status}: {}", String::from_utf8_lossy(&text));
        }
        Ok(())
    }
}

async fn connect(node: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(node).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The JSON of a refund with this refund ref.
#[must_use]
pub fn body(name: &str) -> serde_json::Value {
    serde_json::json!({ "refund_ref": name, "channel": CHANNEL, "payment_ref": "P", "amount_minor": 5, "currency": "EUR" })
}

/// How many commands clients sent to Redis. Commands inside scripts are not counted.
pub async fn redis_calls(url: &str) -> anyhow::Result<u64> {
    let client = redis::Client::open(url)?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await?;
    let of = |line: &str| -> Option<u64> {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(':')?;
        // `llen` and `lindex` also run inside scripts. Clients send them in pairs, each with one `lindex`.
        let outside = matches!(name, "evalsha" | "eval" | "lindex" | "ping" | "script|load");
        outside.then(|| rest.strip_prefix("calls=")?.split(',').next()?.parse().ok())?
    };
    Ok(stats.lines().filter_map(of).sum())
}

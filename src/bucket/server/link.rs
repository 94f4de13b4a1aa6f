//! Keeps the connection to one Redis. The whole node shares it; in a cluster there is one to each master. The first
//! call makes the connection, and an error that makes it useless ends it.
//!
//! A link never repeats a call; the caller decides. A demoted server still answers, with READONLY to every write. So
//! READONLY also ends the connection, and the next connection goes to the new primary.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, ServerErrorKind};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::kind::refuse_too_old;
use super::sentinel::ServerOrigin;
use super::trust::ServerTrust;

#[derive(Debug)]
pub(in crate::bucket) struct Link {
    origin: ServerOrigin,
    trust: ServerTrust,
    config: AsyncConnectionConfig,
    now: Mutex<Now>,
}

#[derive(Debug, Default)]
struct Now {
    /// How many connections were made.
    number: u64,
    connection: Option<Connected>,
    /// When the last attempt to connect failed, and why.
    failed: Option<(Instant, RedisError)>,
}

#[derive(Debug, Clone)]
struct Connected(MultiplexedConnection);

impl Link {
    /// A call without an answer after this time fails. It may have run.
    pub const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);
    const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
    /// All calls share one failed connection attempt for this time. So a thousand channel workers try once.
    const TRY_AGAIN: Duration = Duration::from_millis(100);

    /// Prepares the link. It does not connect, so a node can start while Redis is away.
    pub fn new(url: &str, trust: ServerTrust) -> Result<Self, RedisError> {
        Ok(Self::to(ServerOrigin::of(url)?, trust))
    }

    pub(super) fn to(origin: ServerOrigin, trust: ServerTrust) -> Self {
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(Some(Self::RESPONSE_TIMEOUT))
            .set_connection_timeout(Some(Self::CONNECT_TIMEOUT));
        Link { origin, trust, config, now: Mutex::default() }
    }

    /// Whether sentinels name the server.
    pub(super) fn is_watched(&self) -> bool {
        self.origin.is_watched()
    }

    /// Makes one call on the present connection, or on a new one.
    pub async fn ask<T>(
        &self,
        question: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<T, RedisError>,
    ) -> Result<T, RedisError> {
        let (number, mut connection) = self.connection().await?;
        let answer = question(&mut connection).await;
        if let Err(error) = &answer
            && is_the_end(error)
        {
            self.give_up(number).await;
        }
        answer
    }

    async fn connection(&self) -> Result<(u64, MultiplexedConnection), RedisError> {
        let mut now = self.now.lock().await;
        if let Some(Connected(connection)) = &now.connection {
            return Ok((now.number, connection.clone()));
        }
        if let Some((at, error)) = &now.failed
            && at.elapsed() < Self::TRY_AGAIN
        {
            return Err(error.clone());
        }
        let made = timeout(Self::CONNECT_TIMEOUT, self.connect()).await.unwrap_or_else(|_| {
            let late = std::io::Error::new(std::io::ErrorKind::TimedOut, "Redis did not answer in time");
            Err(late.into())
        });
        match made {
            Ok(connection) => {
                now.number += 1;
                now.failed = None;
                now.connection = Some(Connected(connection.clone()));
                Ok((now.number, connection))
            }
            Err(error) => {
                now.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let info = self.origin.find(&self.config, &self.trust).await?;
        self.trust.clear_text.check(&info)?;
        let address = info.addr().clone();
        let made = self.trust.client(with_tcp(info))?;
        let made = made.get_multiplexed_async_connection_with_config(&self.config).await;
        let mut connection = made.map_err(|error| at(&address, error))?;
        refuse_too_old(&mut connection).await?;
        if self.origin.is_watched() {
            let role: Vec<redis::Value> = redis::cmd("ROLE").query_async(&mut connection).await?;
            let role = role.first().and_then(|role| redis::from_redis_value_ref::<String>(role).ok());
            if role.as_deref() != Some("master") {
                let why = "the sentinels name a server that is no primary";
                return Err((ErrorKind::Server(ServerErrorKind::ReadOnly), why).into());
            }
        }
        Ok(connection)
    }

    /// Ends the connection with this number. A newer connection stays.
    async fn give_up(&self, number: u64) {
        let mut now = self.now.lock().await;
        if now.number == number {
            now.connection = None;
        }
    }
}

/// The error of a connection that could not be made, with the address. The error keeps its kind.
fn at(address: &ConnectionAddr, error: RedisError) -> RedisError {
    if !error.is_io_error() {
        return error;
    }
    let kind = match (error.is_timeout(), error.is_connection_refusal()) {
        (true, _) => std::io::ErrorKind::TimedOut,
        (_, true) => std::io::ErrorKind::ConnectionRefused,
        _ => std::io::ErrorKind::Other,
    };
    std::io::Error::new(kind, format!("{address}: {error}")).into()
}

fn with_tcp(info: ConnectionInfo) -> ConnectionInfo {
    info.set_tcp_settings(TcpSettings::default().set_nodelay(true).set_user_timeout(Duration::from_secs(2)))
}

/// Whether the error makes its connection useless.
pub(super) fn is_the_end(error: &RedisError) -> bool {
    use ServerErrorKind::{BusyLoading, ClusterDown, MasterDown, ReadOnly};
    match error.kind() {
        ErrorKind::Server(ReadOnly | BusyLoading | MasterDown | ClusterDown) => true,
        // Before Redis 7, the error of a script on a replica has another code, and READONLY only in its text.
        ErrorKind::Server(_) => error.to_string().contains("READONLY"),
        // Redis has error codes that the crate does not know. They refuse one call, except NOAUTH.
        ErrorKind::Extension => error.code() == Some("NOAUTH"),
        // Time-outs, closed connections, and bytes that are not the protocol.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_one_question_keeps_the_connection() {
        let said = |kind| RedisError::from((kind, "said"));
        for kind in [
            ErrorKind::Io,
            ErrorKind::Parse,
            ErrorKind::Server(ServerErrorKind::ReadOnly),
            ErrorKind::Server(ServerErrorKind::BusyLoading),
            ErrorKind::Server(ServerErrorKind::MasterDown),
        ] {
            assert!(is_the_end(&said(kind)), "{kind:?}");
        }
        let script = "Error running script: -READONLY You can't write against a read only replica.";
        let script = (ErrorKind::Server(ServerErrorKind::ResponseError), "said", script.to_owned());
        assert!(is_the_end(&RedisError::from(script)));
        for kind in [ErrorKind::Server(ServerErrorKind::ResponseError), ErrorKind::Extension] {
            assert!(!is_the_end(&said(kind)), "{kind:?}");
        }
    }
}

//! Opens the reading of announced addresses to [`crate::fuzzing`].

use redis::{ConnectionAddr, ConnectionInfo, Value};

use super::cluster::{address, slots};
use super::sentinel::ServerOrigin;

/// What a node of a cluster or a sentinel announces, and the connection that a node makes of it.
#[derive(Debug)]
pub struct Announced {
    /// As `host:port`.
    pub place: String,
    /// The host, the port and the login of the connection; `None` if no connection can be made of it.
    pub connection: Option<ReadConnection>,
}

/// One connection of a node.
#[derive(Debug, PartialEq, Eq)]
pub struct ReadConnection {
    pub host: String,
    pub port: u16,
    pub has_tls: bool,
    pub user: Option<String>,
    pub password: Option<String>,
}

fn connection(info: &ConnectionInfo) -> Option<ReadConnection> {
    let (host, port, has_tls) = match info.addr() {
        ConnectionAddr::Tcp(host, port) => (host.clone(), *port, false),
        ConnectionAddr::TcpTls { host, port, .. } => (host.clone(), *port, true),
        _ => return None,
    };
    let login = info.redis_settings();
    let (user, password) = (login.username().map(str::to_owned), login.password().map(str::to_owned));
    Some(ReadConnection { host, port, has_tls, user, password })
}

/// The places that an answer announces to a node whose file has this url. The answer is that of a sentinel, the table of
/// slots of a cluster, or the text of a redirection. `None` if the url is of another kind, or the answer is not used.
#[must_use]
pub fn announced(url: &str, answer: &Value) -> Option<Vec<Announced>> {
    if let Some(address) = address::of(url) {
        let address = address.ok()?;
        let node = address.seeds.first()?;
        let places = match answer {
            Value::SimpleString(to) => vec![slots::redirect(to, node)?],
            table => {
                let ranges = slots::read(table, node)?;
                let count: u64 =
                    ranges.iter().map(|range| u64::from(range.last.saturating_sub(range.first)) + 1).sum();
                assert!(count <= u64::from(slots::SLOTS), "a node learns {count} slots");
                ranges.into_iter().map(|range| range.master).collect()
            }
        };
        let make = |place: String| {
            let connection = address.node(&place).ok().as_ref().and_then(connection);
            Announced { place, connection }
        };
        return Some(places.into_iter().map(make).collect());
    }
    let Ok(ServerOrigin::Sentinels(sentinels)) = ServerOrigin::of(url) else { return None };
    let (host, port): (String, u16) = redis::from_redis_value_ref::<Option<_>>(answer).ok()??;
    let connection = sentinels.primary(&host, port).ok().as_ref().and_then(connection);
    Some(vec![Announced { place: format!("{host}:{port}"), connection }])
}

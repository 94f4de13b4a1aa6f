//! The root certificates that certificates of Redis servers, sentinels and cluster nodes are checked by.

use std::sync::Arc;

use redis::{Client, ConnectionAddr, ConnectionInfo, RedisError, TlsCertificates};

/// Roots as PEM; `None` for the system's. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct ServerRoots(pub Option<Arc<[u8]>>);

impl ServerRoots {
    /// A client that trusts these roots only. Servers in clear text have no certificate to check.
    pub(super) fn client(&self, info: ConnectionInfo) -> Result<Client, RedisError> {
        match &self.0 {
            Some(pem) if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) => {
                let certificates = TlsCertificates { client_tls: None, root_cert: Some(pem.to_vec()) };
                Client::build_with_tls(info, certificates)
            }
            _ => Client::open(info),
        }
    }
}

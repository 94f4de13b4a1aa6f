//! What a node trusts on its way to Redis servers, sentinels and cluster nodes: root certificates, and clear text.

use std::sync::Arc;

use redis::{Client, ConnectionAddr, ConnectionInfo, RedisError, TlsCertificates};

use crate::bucket::clear_text::ClearText;

/// Cheap to clone. The default trusts the system's roots, and clear text on this host only.
#[derive(Debug, Clone, Default)]
pub struct ServerTrust {
    /// The only roots by which the servers' certificates are checked, as PEM; `None` for the system's.
    pub roots: Option<Arc<[u8]>>,
    pub clear_text: ClearText,
}

impl ServerTrust {
    /// A client that trusts these roots only. Servers in clear text have no certificate to check.
    pub(super) fn client(&self, info: ConnectionInfo) -> Result<Client, RedisError> {
        match &self.roots {
            Some(pem) if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) => {
                let certificates = TlsCertificates { client_tls: None, root_cert: Some(pem.to_vec()) };
                Client::build_with_tls(info, certificates)
            }
            _ => Client::open(info),
        }
    }
}

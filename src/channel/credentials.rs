//! What a channel shows to its bank, and the certificates by which it knows its bank. No `Debug` text has a secret.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use secrecy::{ExposeSecret, SecretSlice, SecretString};

use super::Channel;

/// The value of an `Authorization` header. Its `Debug` text hides the value.
#[derive(Debug, Clone)]
pub struct Authorization(pub SecretString);

/// Two values are compared when a file is reloaded, never with what a caller sent.
impl PartialEq for Authorization {
    fn eq(&self, other: &Self) -> bool {
        self.0.expose_secret() == other.0.expose_secret()
    }
}

impl Eq for Authorization {}

/// Root certificates: at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots(pub Arc<[CertificateDer<'static>]>);

/// The certificate that the channel shows to a bank that asks for one, and its private key. The `Debug` text of the key
/// hides the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The channel's own certificate first, then the certificates that signed it.
    pub certificates: Arc<[CertificateDer<'static>]>,
    pub key: Arc<PrivateKeyDer<'static>>,
}

/// The keys that sign each request to the bank: one, or two while keys are changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signing(pub Arc<[SigningKey]>);

/// One key and the name by which the bank knows it. The `Debug` text hides the key.
#[derive(Debug, Clone)]
pub struct SigningKey {
    /// Printable characters of ASCII, without `"` and `\`.
    pub id: String,
    pub secret: Arc<SecretSlice<u8>>,
}

/// Two values are compared when a file is reloaded, never with what a caller sent.
impl PartialEq for SigningKey {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.secret.expose_secret() == other.secret.expose_secret()
    }
}

impl Eq for SigningKey {}

/// Where a channel gets access tokens: OAuth 2.0 with client credentials.
#[derive(Clone)]
pub struct TokenSource {
    pub url: hyper::Uri,
    pub client_id: String,
    pub client_secret: SecretString,
    pub scope: Option<String>,
}

/// Without the path of its URL, whose query may have a key.
impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("TokenSource");
        shown.field("host", &self.url.host()).field("client_id", &self.client_id).field("scope", &self.scope);
        shown.finish_non_exhaustive()
    }
}

/// Two values are compared when a file is reloaded, never with what a caller sent.
impl PartialEq for TokenSource {
    fn eq(&self, other: &Self) -> bool {
        (&self.url, &self.client_id, &self.scope) == (&other.url, &other.client_id, &other.scope)
            && self.client_secret.expose_secret() == other.client_secret.expose_secret()
    }
}

impl Eq for TokenSource {}

impl Channel {
    /// Whether both ask the bank at the same addresses and with the same credentials. A bank that does not let the one in
    /// says nothing about the other if they differ.
    #[must_use]
    pub fn has_access_of(&self, other: &Channel) -> bool {
        let inquiry_url = self.inquiry.as_ref().map(|inquiry| &inquiry.url);
        self.endpoint == other.endpoint
            && self.authorization == other.authorization
            && self.token == other.token
            && self.signing == other.signing
            && self.client_identity == other.client_identity
            && inquiry_url == other.inquiry.as_ref().map(|inquiry| &inquiry.url)
            && self.inquiry_authorization() == other.inquiry_authorization()
    }
}

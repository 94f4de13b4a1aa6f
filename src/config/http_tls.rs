//! `tls` of `[http]`: the certificate and the key of the listener, and the roots of its callers' certificates.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, version};

use super::certificates::certificates_of;
use super::field::Field;
use super::secret::{contents, named_credential};
use super::section::Section;
use crate::certificate::{first_end, provider};

/// How the listener speaks TLS. Two are equal if they have the same certificates and the same key.
#[derive(Clone)]
pub struct HttpTls {
    server: Arc<ServerConfig>,
    certificates: Vec<CertificateDer<'static>>,
    key: Arc<PrivateKeyDer<'static>>,
    /// Empty if callers need no certificate.
    client_roots: Vec<CertificateDer<'static>>,
}

impl HttpTls {
    pub(super) const KEYS: &'static [&'static str] =
        &["certificate_file", "key_file", "key_credential", "client_ca_file"];

    /// The value that rustls takes.
    #[must_use]
    pub fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }

    /// When the first certificate that the listener shows ends.
    #[must_use]
    pub fn certificates_end(&self) -> Option<Timestamp> {
        first_end(&self.certificates)
    }

    /// Whether a caller must show a certificate.
    pub fn asks_for_certificates(&self) -> bool {
        !self.client_roots.is_empty()
    }

    /// Reads the section; `None` after a complaint.
    pub(super) fn read(section: &Section<'_>) -> Option<Self> {
        let source = section.source;
        section.keys(Self::KEYS, &[]);
        let why = "name the file with the listener's certificate and those of its issuers, in PEM";
        let mut chain_field = section.required_text("certificate_file", why);
        let certificates =
            chain_field.as_mut().map(|field| certificates_of(source, field)).unwrap_or_default();
        let verifier = verifier(section);
        let key = key(section);
        let mut chain_field = chain_field.filter(Field::is_sound)?;
        let ((verifier, client_roots), (mut key_field, key)) = (verifier?, key?);
        let server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])
            .map(|builder| builder.with_client_cert_verifier(verifier))
            .and_then(|builder| builder.with_single_cert(certificates.clone(), key.clone_key()));
        match server {
            Err(rustls::Error::InconsistentKeys(_)) => {
                key_field.require(
                    source,
                    false,
                    || "is not the key of the first certificate in `certificate_file`",
                );
                None
            }
            Err(error) => {
                chain_field.require(source, false, || format!("cannot be used with this key: {error}"));
                None
            }
            Ok(mut server) => {
                server.alpn_protocols = vec![b"http/1.1".to_vec()];
                // Each connection shows its certificate again: a resumed session could outlive it.
                server.session_storage = Arc::new(NoServerSessionStorage {});
                server.send_tls13_tickets = 0;
                Some(HttpTls { server: Arc::new(server), certificates, key: Arc::new(key), client_roots })
            }
        }
    }
}

/// Checks the certificates of callers against `client_ca_file`, with the roots in it. Without that key callers need no
/// certificate. `None` after a complaint.
fn verifier(section: &Section<'_>) -> Option<(Arc<dyn ClientCertVerifier>, Vec<CertificateDer<'static>>)> {
    let Some(mut field) = section.optional_text("client_ca_file") else {
        return Some((WebPkiClientVerifier::no_client_auth(), Vec::new()));
    };
    let roots = certificates_of(section.source, &mut field);
    let mut store = RootCertStore::empty();
    let added = roots.iter().try_for_each(|root| store.add(root.clone()));
    field.require(section.source, added.is_ok(), || "this file has a certificate that is broken");
    let built = WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider()).build();
    Some((built.ok()?, roots)).filter(|_| field.is_sound())
}

/// The private key, with the field that names it; `None` after a complaint.
fn key(section: &Section<'_>) -> Option<(Field<String>, PrivateKeyDer<'static>)> {
    let source = section.source;
    if section.has("key_file") == section.has("key_credential") {
        section.complain("needs the private key: give either `key_file` or `key_credential`");
        return None;
    }
    let (mut field, text) = if let Some(mut field) = section.optional_text("key_file") {
        let (text, _) = contents(source, &mut field)?;
        (field, text)
    } else {
        let mut field = section.optional_text("key_credential")?;
        let text = named_credential(source, &mut field)?;
        (field, text)
    };
    let key = PrivateKeyDer::from_pem_slice(text.as_bytes());
    field.require(source, key.is_ok(), || {
        "has no private key in PEM: it must hold `-----BEGIN PRIVATE KEY-----`, and no password may protect it"
    });
    Some((field, key.ok()?))
}

impl PartialEq for HttpTls {
    fn eq(&self, other: &Self) -> bool {
        let HttpTls { server: _, certificates, key, client_roots } = self;
        *certificates == other.certificates && *key == other.key && *client_roots == other.client_roots
    }
}

impl Eq for HttpTls {}

impl fmt::Display for HttpTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (own, roots) = (self.certificates.len(), self.client_roots.len());
        match roots {
            0 => write!(f, "{own} certificates of its own, and callers need none"),
            _ => {
                write!(f, "{own} certificates of its own, and {roots} roots for the certificates of callers")
            }
        }
    }
}

/// Shows neither the key nor the certificates.
impl fmt::Debug for HttpTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpTls({self})")
    }
}

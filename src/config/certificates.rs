//! The certificates of a channel: `ca_file`, the only roots that it trusts, and `client_certificate_file` with
//! `client_key_file`, which it shows to a bank that asks for them. `[notify]` has a `ca_file`, too.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::certificate::provider;
use crate::channel::{ClientIdentity, Roots};

use super::field::Field;
use super::named_file::NamedFile;
use super::secret::contents;
use super::section::Section;
use super::source::Source;

/// The root certificates; `None` when the channel trusts the system's, or after a complaint. `is_secure` says that an
/// address of the channel starts with `https://`.
pub(super) fn roots(section: &Section<'_>, is_secure: bool) -> Option<Roots> {
    let source = section.source;
    let mut field = section.optional_text("ca_file")?;
    only_with_tls(source, &mut field, is_secure);
    let certificates = certificates_of(source, &mut field);
    let mut store = RootCertStore::empty();
    let usable = certificates.iter().all(|root| store.add(root.clone()).is_ok());
    field.require(source, usable, || NO_CERTIFICATES);
    field.is_sound().then(|| Roots(certificates.into()))
}

/// The client certificate and its key; `None` when the channel shows none, or after a complaint.
pub(super) fn client_identity(section: &Section<'_>, is_secure: bool) -> Option<ClientIdentity> {
    let source = section.source;
    if section.has("client_certificate_file") != section.has("client_key_file") {
        section.complain(
            "`client_certificate_file` and `client_key_file` go together: give both, or neither to show the bank no \
             certificate",
        );
        return None;
    }
    let mut field = section.optional_text("client_certificate_file")?;
    only_with_tls(source, &mut field, is_secure);
    let certificates = certificates_of(source, &mut field);
    let mut key_field = section.optional_text("client_key_file")?;
    let (text, _) = contents(source, &mut key_field)?;
    let key = PrivateKeyDer::from_pem_slice(text.as_bytes());
    key_field.require(source, key.is_ok(), || {
        "this file is no private key in PEM: it must hold `-----BEGIN PRIVATE KEY-----`, and no password may protect it"
    });
    let key = key.ok()?;
    if field.is_sound() {
        let pair = CertifiedKey::from_der(certificates.clone(), key.clone_key(), &provider());
        key_field.require(source, pair.is_ok(), || match &pair {
            Err(rustls::Error::InconsistentKeys(_)) => {
                "is not the key of the first certificate in `client_certificate_file`".to_owned()
            }
            Err(error) => format!("this key cannot be used: {error}"),
            Ok(_) => String::new(),
        });
    }
    let is_sound = field.is_sound() && key_field.is_sound();
    is_sound.then(|| ClientIdentity { certificates: certificates.into(), key: Arc::new(key) })
}

const NO_CERTIFICATES: &str = "this file is no list of certificates in PEM: it must hold `-----BEGIN CERTIFICATE-----` at least once, and each must be whole";

fn only_with_tls(source: &Source<'_>, field: &mut Field<String>, is_secure: bool) {
    field.require(
        source,
        is_secure,
        || "is only for TLS, and no address of this section starts with `https://`",
    );
}

/// The root certificates of a server's section, as PEM; `None` after a complaint.
pub(super) fn server_roots(source: &Source<'_>, field: &mut Field<String>) -> Option<Vec<u8>> {
    let (certificates, text) = read_certificates(source, field);
    let mut store = RootCertStore::empty();
    let usable = certificates.into_iter().all(|root| store.add(root).is_ok());
    field.require(source, usable, || NO_CERTIFICATES);
    field.is_sound().then_some(text)
}

/// The certificates in a file; none after a complaint.
pub(super) fn certificates_of(
    source: &Source<'_>,
    field: &mut Field<String>,
) -> Vec<CertificateDer<'static>> {
    read_certificates(source, field).0
}

/// The certificates in a file, and its bytes; none after a complaint.
fn read_certificates(
    source: &Source<'_>,
    field: &mut Field<String>,
) -> (Vec<CertificateDer<'static>>, Vec<u8>) {
    let read = NamedFile::open(&source.path(&field.value)).and_then(NamedFile::bytes);
    field.require(source, read.is_ok(), || match &read {
        Err(error) => format!("this file cannot be read: {error}"),
        Ok(_) => String::new(),
    });
    let text = read.unwrap_or_default();
    let certificates: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_slice_iter(&text).collect();
    let certificates = certificates.unwrap_or_default();
    field.require(source, !certificates.is_empty(), || NO_CERTIFICATES);
    (certificates, text)
}

//! `ca_file` of a channel: the only root certificates that refundd trusts for its bank.

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::channel::Roots;

use super::field::Field;
use super::section::Section;
use super::source::Source;

/// The root certificates; `None` when the channel trusts the system's, or after a complaint. `is_secure` says that an
/// address of the channel starts with `https://`.
pub(super) fn read(section: &Section<'_>, is_secure: bool) -> Option<Roots> {
    let source = section.source;
    let mut field = section.optional_text("ca_file")?;
    field.law(
        source,
        is_secure,
        || "is only for banks that use TLS, and no address of this channel starts with `https://`",
    );
    let certificates = certificates_of(source, &mut field);
    let mut store = RootCertStore::empty();
    let usable = certificates.iter().all(|root| store.add(root.clone()).is_ok());
    field.law(source, usable, || NO_CERTIFICATES);
    field.is_sound().then(|| Roots(certificates.into()))
}

const NO_CERTIFICATES: &str = "this file is no list of certificates in PEM: it must hold `-----BEGIN CERTIFICATE-----` at least once, and each must be whole";

/// The certificates in a file; none after a complaint.
pub(super) fn certificates_of(
    source: &Source<'_>,
    field: &mut Field<String>,
) -> Vec<CertificateDer<'static>> {
    let read = std::fs::read(source.path(&field.value));
    field.law(source, read.is_ok(), || match &read {
        Err(error) => format!("this file cannot be read: {error}"),
        Ok(_) => String::new(),
    });
    let text = read.unwrap_or_default();
    let certificates: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_slice_iter(&text).collect();
    let certificates = certificates.unwrap_or_default();
    field.law(source, !certificates.is_empty(), || NO_CERTIFICATES);
    certificates
}

//! `ca_file` of a channel: the only root certificates by which its bank is trusted.

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::channel::Roots;

use super::section::Section;

/// `None` when the channel trusts the system's roots, or when a complaint says why.
pub(super) fn read(section: &Section<'_>, is_secure: bool) -> Option<Roots> {
    let source = section.source;
    let mut field = section.optional_text("ca_file")?;
    field.law(source, is_secure, || {
        "says by which roots a bank is trusted that speaks TLS, and no address of this channel starts with `https://`"
    });
    let read = std::fs::read(source.path(&field.value));
    field.law(source, read.is_ok(), || match &read {
        Err(error) => format!("this file cannot be read: {error}"),
        Ok(_) => String::new(),
    });
    let text = read.unwrap_or_default();
    let certificates: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_slice_iter(&text).collect();
    let certificates = certificates.unwrap_or_default();
    let mut store = RootCertStore::empty();
    let usable = certificates.iter().all(|root| store.add(root.clone()).is_ok());
    field.law(source, usable && !certificates.is_empty(), || {
        "this file is no list of certificates in PEM: it must hold `-----BEGIN CERTIFICATE-----` at least once, and each must be whole"
    });
    field.is_sound().then(|| Roots(certificates.into()))
}

//! Certificates: when they end, which ones a server shows, and the TLS provider.
//!
//! It does not judge whom to trust: `bank`, `store` and `bucket` check certificates when they connect.

use std::io;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use crate::lock::Lock;

/// The one TLS provider of the whole program.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// When the first of these certificates ends; `None` without a certificate that can be read.
#[must_use]
pub fn first_end(certificates: &[CertificateDer<'_>]) -> Option<Timestamp> {
    certificates.iter().filter_map(|certificate| end(certificate)).min()
}

/// When a chain ends that was checked at `now`: with its first certificate, or with an issuer before. An issuer that had ended at
/// `now` was no part of the check, so it does not count.
#[must_use]
pub fn end_of_chain(chain: &[CertificateDer<'_>], now: Timestamp) -> Option<Timestamp> {
    let (own, issuers) = chain.split_first()?;
    let of_issuers = issuers.iter().filter_map(|issuer| end(issuer)).filter(|end| *end > now);
    end(own).into_iter().chain(of_issuers).min()
}

/// When a certificate ends: `notAfter` of RFC 5280, section 4.1.
fn end(certificate: &[u8]) -> Option<Timestamp> {
    let mut parts = Der(Der(Der(certificate).next()?.1).next()?.1);
    // The version is left out in certificates of version 1. The serial number follows.
    if parts.next()?.0 == VERSION {
        parts.next()?;
    }
    let (_signature_algorithm, _issuer) = (parts.next()?, parts.next()?);
    let mut validity = Der(parts.next()?.1);
    let _begin = validity.next()?;
    let (tag, text) = validity.next()?;
    time(tag, std::str::from_utf8(text).ok()?)
}

const VERSION: u8 = 0xA0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

fn time(tag: u8, text: &str) -> Option<Timestamp> {
    let (year, rest) = match tag {
        UTC_TIME => {
            let year: i16 = text.get(..2)?.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, text.get(2..)?)
        }
        GENERALIZED_TIME => (text.get(..4)?.parse().ok()?, text.get(4..)?),
        _ => return None,
    };
    let two = |at: usize| rest.get(at..at + 2)?.parse::<i8>().ok();
    let at = DateTime::new(year, two(0)?, two(2)?, two(4)?, two(6)?, two(8)?, 0).ok()?;
    at.to_zoned(TimeZone::UTC).ok().map(|at| at.timestamp())
}

/// Values in DER that stand one after the other.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The tag and the bytes of the next value.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = if first < 0x80 {
            (usize::from(first), rest)
        } else {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7F))?;
            let longer =
                |length: usize, byte: &u8| length.checked_mul(256).map(|length| length | usize::from(*byte));
            (bytes.iter().try_fold(0, longer)?, rest)
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, value))
    }
}

/// The certificates that a server shows, also those that nobody should trust. Makes a handshake, sends nothing after it,
/// and ends the connection.
///
/// # Errors
/// When the server shows no certificate.
pub async fn shown_by<S>(host: &str, stream: S) -> io::Result<Vec<CertificateDer<'static>>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let provider = provider();
    let recorder =
        Arc::new(CertificateRecorder { certificates: Mutex::default(), provider: Arc::clone(&provider) });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&recorder) as Arc<dyn ServerCertVerifier>)
        .with_no_client_auth();
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(host).map_err(io::Error::other)?;
    let shaken = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    let certificates = std::mem::take(&mut *recorder.certificates.locked());
    match shaken {
        // A server that demands a certificate of ours has shown its own before it hangs up.
        Err(error) if certificates.is_empty() => Err(error),
        Ok(_) | Err(_) => Ok(certificates),
    }
}

/// Notes the certificates of a handshake, and lets every server pass: nothing is sent to it.
#[derive(Debug)]
struct CertificateRecorder {
    certificates: Mutex<Vec<CertificateDer<'static>>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for CertificateRecorder {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        issuers: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let all = std::iter::once(own).chain(issuers);
        *self.certificates.locked() = all.map(|certificate| certificate.clone().into_owned()).collect();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn certificate(year: i32) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["bank.example".to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, 3, 29);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn the_first_end_of_a_chain_counts_in_both_forms_of_time() {
        let (near, far) = (certificate(2031), certificate(2096));
        assert_eq!(first_end(std::slice::from_ref(&near)), Some("2031-03-29T00:00:00Z".parse().unwrap()));
        assert_eq!(first_end(std::slice::from_ref(&far)), Some("2096-03-29T00:00:00Z".parse().unwrap()));
        assert_eq!(first_end(&[far, near]), Some("2031-03-29T00:00:00Z".parse().unwrap()));
        assert_eq!(first_end(&[]), None);
    }

    #[test]
    fn a_chain_ends_with_its_own_certificate_or_an_issuer_before_and_an_issuer_of_the_past_does_not_count() {
        let (past, near, far) = (certificate(2031), certificate(2041), certificate(2096));
        let now = "2035-01-01T00:00:00Z".parse().unwrap();
        let end = |chain: &[&CertificateDer<'static>]| {
            let chain: Vec<CertificateDer<'_>> = chain.iter().map(|one| (*one).clone()).collect();
            end_of_chain(&chain, now).map(|end| end.to_string())
        };
        let near_end = Some("2041-03-29T00:00:00Z".to_owned());
        assert_eq!(end(&[&near, &far]), near_end);
        assert_eq!(end(&[&far, &near]), near_end);
        assert_eq!(end(&[&far, &past, &near]), near_end);
        assert_eq!(end(&[&past, &near]), Some("2031-03-29T00:00:00Z".to_owned()));
        assert_eq!(end(&[]), None);
    }

    #[test]
    fn bytes_that_are_no_certificate_have_no_end() {
        let whole = certificate(2031);
        for length in 0..whole.len() {
            let _ = end(&whole[..length]);
        }
        assert_eq!(end(&whole[..whole.len() / 2]), None);
        for bytes in [&[0x30, 0xFF][..], &[0x30, 0x84, 0xFF, 0xFF, 0xFF, 0xFF], &[0x30, 0x00], &[0x30]] {
            assert_eq!(end(bytes), None);
        }
    }
}

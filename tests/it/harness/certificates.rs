//! Certificates for the listener and its callers, made anew for each test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use playground::place::write_private;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio_rustls::TlsConnector;

/// An authority, with a folder for its certificate and for those that it signs.
pub struct Issued {
    issuer: Issuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

/// One certificate and its key, as files.
#[derive(Clone)]
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Issued {
    pub fn new() -> Issued {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Issued { issuer: Issuer::new(params, key), folder }
    }

    /// The certificate of the authority itself.
    pub fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A certificate for these names.
    pub fn identity(&self, names: &[&str]) -> Identity {
        self.issue(names, "good", |params| params.not_after = date_time_ymd(4096, 1, 1))
    }

    /// A certificate for these names that ended years ago.
    pub fn expired(&self, names: &[&str]) -> Identity {
        self.issue(names, "expired", |params| params.not_after = date_time_ymd(2020, 1, 1))
    }

    /// A certificate for these names that ends at this second since 1970.
    pub fn ending(&self, names: &[&str], second: u64) -> Identity {
        let end = date_time_ymd(1970, 1, 1) + Duration::from_secs(second);
        self.issue(names, "ending", |params| params.not_after = end)
    }

    fn issue(&self, names: &[&str], kind: &str, set_end: impl FnOnce(&mut CertificateParams)) -> Identity {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let file = |suffix: &str| self.folder.path().join(format!("{}-{kind}.{suffix}", names.join("+")));
        let made = Identity { certificate: file("pem"), key: file("key") };
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(names.clone()).unwrap();
        set_end(&mut params);
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(&made.certificate, signed.pem()).unwrap();
        write_private(&made.key, &key.serialize_pem()).unwrap();
        made
    }

    /// A client that trusts this authority and, if one is given, shows this certificate.
    pub fn client(
        &self,
        shown: Option<&Identity>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates(&self.ca()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
        let builder = builder.with_root_certificates(roots);
        let config = match shown {
            None => builder.with_no_client_auth(),
            Some(shown) => {
                let key = PrivateKeyDer::from_pem_file(&shown.key).unwrap();
                builder.with_client_auth_cert(certificates(&shown.certificate), key).unwrap()
            }
        };
        TlsConnector::from(Arc::new(config))
    }
}

impl Identity {
    /// Puts this certificate and key in the place of another one's.
    pub fn replace(&self, other: &Identity) {
        fs::copy(&self.certificate, &other.certificate).unwrap();
        write_private(&other.key, &fs::read_to_string(&self.key).unwrap()).unwrap();
    }
}

/// The certificates in a file.
pub fn certificates(file: &Path) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(file).unwrap().map(Result::unwrap).collect()
}

//! Certificates for pretend banks, made anew for each run and trusted by nobody else.

use std::path::PathBuf;

use playground::Identity;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use tempfile::TempDir;

/// An authority of our own, and the file that channels name as `ca_file`.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let root = params.self_signed(&key).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), root.pem()).unwrap();
        Authority { issuer: Issuer::new(params, key), folder }
    }

    /// For a bank on this machine.
    pub fn identity(&self) -> Identity {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        Identity { certificates: vec![certificate.der().clone()], key }
    }

    pub fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// These channels, with every `http://{bank}` spoken to by TLS and trusted by this authority.
    pub fn secured(&self, channels: &str) -> String {
        let trusted = format!("ca_file = \"{}\"\nendpoint = \"https://{{bank}}", self.file().display());
        channels.replace("endpoint = \"http://{bank}", &trusted).replace("http://{bank}", "https://{bank}")
    }
}

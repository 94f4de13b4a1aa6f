//! Certificates for pretend banks and private servers. Each run makes new ones, and no other program trusts them.

use std::path::PathBuf;

use anyhow::Context;
use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tempfile::TempDir;

use super::Identity;

/// A certificate authority, and the file that channels name as `ca_file`.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    /// Makes an authority and writes its certificate to a temporary file.
    pub fn new() -> anyhow::Result<Authority> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        let root = params.self_signed(&key)?;
        let folder = tempfile::tempdir().context("failed to make a temporary folder")?;
        std::fs::write(folder.path().join("ca.pem"), root.pem())
            .context("failed to write the authority's certificate")?;
        Ok(Authority { issuer: Issuer::new(params, key), folder })
    }

    /// A certificate and a key for a server on `127.0.0.1` and `localhost`, both as PEM.
    pub fn pem(&self) -> anyhow::Result<(String, String)> {
        let (certificate, key) = self.sign(false)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    /// A certificate and a key for a bank on `127.0.0.1` and `localhost`.
    pub fn identity(&self) -> anyhow::Result<Identity> {
        self.identity_that(false)
    }

    /// The same, with a certificate that ended long ago.
    pub fn expired_identity(&self) -> anyhow::Result<Identity> {
        self.identity_that(true)
    }

    fn sign(&self, is_over: bool) -> anyhow::Result<(Certificate, KeyPair)> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        if is_over {
            params.not_after = date_time_ymd(2020, 1, 1);
        }
        Ok((params.signed_by(&key, &self.issuer)?, key))
    }

    fn identity_that(&self, is_over: bool) -> anyhow::Result<Identity> {
        let (certificate, key) = self.sign(is_over)?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok(Identity { certificates: vec![certificate.der().clone()], key })
    }

    /// The path of the authority's certificate. The file is removed when the authority is dropped.
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Changes a configuration of channels: each `http://{bank}` becomes `https://{bank}`, with this `ca_file`.
    pub fn secured(&self, channels: &str) -> String {
        let trusted = format!("ca_file = \"{}\"\nendpoint = \"https://{{bank}}", self.file().display());
        channels.replace("endpoint = \"http://{bank}", &trusted).replace("http://{bank}", "https://{bank}")
    }
}

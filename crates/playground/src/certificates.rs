//! Certificates for pretend banks and private servers. Each run makes new ones, and no other program trusts them.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use jiff::civil::{Date, date};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio_rustls::TlsConnector;

use super::Identity;
use super::place::write_private;

const LONG_AGO: Date = date(2020, 1, 1);

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
        let (certificate, key) = self.sign(None)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    /// The same, with a certificate that ended long ago.
    pub fn expired_pem(&self) -> anyhow::Result<(String, String)> {
        self.pem_until(LONG_AGO)
    }

    /// The same, with a certificate that ends at the beginning of this day.
    pub fn pem_until(&self, end: Date) -> anyhow::Result<(String, String)> {
        let (certificate, key) = self.sign(Some(end))?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    /// A certificate and a key for a server of another name, both as PEM.
    pub fn pem_of(&self, name: &str) -> anyhow::Result<(String, String)> {
        let (certificate, key) = self.sign_for([name.to_owned()], None)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    /// A certificate and a key for a bank on `127.0.0.1` and `localhost`.
    pub fn identity(&self) -> anyhow::Result<Identity> {
        Ok(identity(self.sign(None)?))
    }

    /// The same, with a certificate that ended long ago.
    pub fn expired_identity(&self) -> anyhow::Result<Identity> {
        self.identity_until(LONG_AGO)
    }

    /// The same, with a certificate that ends at the beginning of this day.
    pub fn identity_until(&self, end: Date) -> anyhow::Result<Identity> {
        Ok(identity(self.sign(Some(end))?))
    }

    /// A certificate and a key for another name.
    pub fn identity_of(&self, name: &str) -> anyhow::Result<Identity> {
        Ok(identity(self.sign_for([name.to_owned()], None)?))
    }

    /// Writes a certificate and a key that a client shows, each to a file of its own beside the authority's. Only the
    /// owner may read the key. The files are removed when the authority is dropped.
    pub fn client_files(&self, name: &str) -> anyhow::Result<(PathBuf, PathBuf)> {
        let (certificate, key) = self.sign_for([name.to_owned()], None)?;
        let file = |kind: &str| self.folder.path().join(format!("{name}.{kind}"));
        std::fs::write(file("pem"), certificate.pem()).context("failed to write a client's certificate")?;
        write_private(&file("key"), &key.serialize_pem()).context("failed to write a client's key")?;
        Ok((file("pem"), file("key")))
    }

    /// The authority's certificate, for a server that demands certificates which the authority signed.
    pub fn roots(&self) -> anyhow::Result<Arc<RootCertStore>> {
        let mut roots = RootCertStore::empty();
        for root in
            CertificateDer::pem_file_iter(self.file()).context("failed to read the authority's file")?
        {
            roots.add(root?)?;
        }
        Ok(Arc::new(roots))
    }

    /// A client that trusts servers whose certificates the authority signed.
    pub fn client(&self) -> anyhow::Result<TlsConnector> {
        let config = ClientConfig::builder().with_root_certificates(self.roots()?).with_no_client_auth();
        Ok(TlsConnector::from(Arc::new(config)))
    }

    fn sign(&self, end: Option<Date>) -> anyhow::Result<(Certificate, KeyPair)> {
        self.sign_for(["127.0.0.1".to_owned(), "localhost".to_owned()], end)
    }

    fn sign_for(
        &self,
        names: impl Into<Vec<String>>,
        end: Option<Date>,
    ) -> anyhow::Result<(Certificate, KeyPair)> {
        let key = KeyPair::generate()?;
        let names = names.into();
        let mut subject = DistinguishedName::new();
        // With the authority's own subject, OpenSSL takes the certificate for one that signed itself.
        subject.push(DnType::CommonName, names.first().map_or("", String::as_str));
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = subject;
        if let Some(end) = end {
            let (month, day) = (end.month().unsigned_abs(), end.day().unsigned_abs());
            params.not_after = date_time_ymd(i32::from(end.year()), month, day);
        }
        Ok((params.signed_by(&key, &self.issuer)?, key))
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

fn identity((certificate, key): (Certificate, KeyPair)) -> Identity {
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    Identity { certificates: vec![certificate.der().clone()], key }
}

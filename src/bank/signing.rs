//! Signs a request by the standard HTTP Message Signatures (RFC 9421), with HMAC-SHA-256.
//!
//! The signature covers the method, the address, the key of the refund and the exact bytes of the body. The bank finds the
//! time and the key's name in the header `Signature-Input`. With two keys the request has two signatures, so that the
//! bank may change to the new key at any moment.

use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use hyper::header::{HeaderName, HeaderValue, InvalidHeaderValue};
use hyper::{HeaderMap, Method, Uri};
use secrecy::{ExposeSecret, SecretSlice};
use sha2::{Digest, Sha256};

use crate::channel::Signing;

const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");
const SIGNATURE: HeaderName = HeaderName::from_static("signature");
const SIGNATURE_INPUT: HeaderName = HeaderName::from_static("signature-input");
/// The headers that a signature covers where the request has them.
const COVERED: [&str; 3] = ["idempotency-key", "content-type", "content-digest"];

/// Signs the requests to one address.
#[derive(Debug)]
pub(super) struct Signer {
    keys: Signing,
    /// Host and port as RFC 9421 compares them: small letters, and no port that is the scheme's own.
    authority: String,
}

impl Signer {
    pub fn new(keys: &Signing, address: &Uri) -> Self {
        let host = address.host().unwrap_or_default().to_ascii_lowercase();
        let usual = if address.scheme_str() == Some("https") { 443 } else { 80 };
        let authority = match address.port_u16().filter(|port| *port != usual) {
            Some(port) => format!("{host}:{port}"),
            None => host,
        };
        Signer { keys: keys.clone(), authority }
    }

    /// Adds the signature headers to the headers of a request. `created` counts seconds since 1970.
    ///
    /// # Errors
    /// When a key's name does not fit into a header. The configuration check refuses such a name.
    pub fn sign(
        &self,
        method: &Method,
        path: &Uri,
        headers: &mut HeaderMap,
        body: &[u8],
        created: u64,
    ) -> Result<(), InvalidHeaderValue> {
        if !body.is_empty() {
            let digest = STANDARD.encode(Sha256::digest(body));
            headers.insert(CONTENT_DIGEST, HeaderValue::try_from(format!("sha-256=:{digest}:"))?);
        }
        let (names, lines) = self.covered(method, path, headers);
        let (mut inputs, mut signatures) = (Vec::new(), Vec::new());
        for (number, key) in (1..).zip(self.keys.0.iter()) {
            let input = format!("({names});created={created};keyid=\"{}\";alg=\"hmac-sha256\"", key.id);
            let base = format!("{lines}\"@signature-params\": {input}");
            inputs.push(format!("sig{number}={input}"));
            signatures.push(format!("sig{number}=:{}:", STANDARD.encode(mac(&key.secret, base.as_bytes()))));
        }
        headers.insert(SIGNATURE_INPUT, HeaderValue::try_from(inputs.join(", "))?);
        headers.insert(SIGNATURE, HeaderValue::try_from(signatures.join(", "))?);
        Ok(())
    }

    /// The names of the covered parts, and the lines of the signature base that have their values.
    fn covered(&self, method: &Method, path: &Uri, headers: &HeaderMap) -> (String, String) {
        let query = format!("?{}", path.query().unwrap_or_default());
        let parts = [
            ("@method", method.as_str()),
            ("@authority", self.authority.as_str()),
            ("@path", path.path()),
            ("@query", query.as_str()),
        ];
        let present = COVERED.into_iter().filter_map(|name| Some((name, headers.get(name)?.to_str().ok()?)));
        let (mut names, mut lines) = (Vec::new(), String::new());
        for (name, value) in parts.into_iter().chain(present) {
            names.push(format!("\"{name}\""));
            let _ = writeln!(lines, "\"{name}\": {value}");
        }
        (names.join(" "), lines)
    }
}

/// The HMAC-SHA-256 of these bytes.
pub(super) fn mac(secret: &SecretSlice<u8>, bytes: &[u8]) -> Vec<u8> {
    // HMAC takes keys of any length.
    Hmac::<Sha256>::new_from_slice(secret.expose_secret())
        .map(|mac| mac.chain_update(bytes).finalize().into_bytes().to_vec())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hyper::header::CONTENT_TYPE;

    use super::*;
    use crate::channel::SigningKey;

    fn key(id: &str, secret: &[u8]) -> SigningKey {
        SigningKey { id: id.to_owned(), secret: Arc::new(secret.to_vec().into()) }
    }

    /// The example of RFC 9421, B.2.5.
    #[test]
    fn the_signature_of_the_standards_example_is_the_standards() {
        let secret = STANDARD
            .decode(
                "uzvJfB4u3N0Jy4T7NZ75MDVcr8zSTInedJtkgcu46YW4XByzNJjxBdtjUkdJPBtbmHhIDi6pcl8jsasjlTMtDQ==",
            )
            .unwrap();
        let base = "\"date\": Tue, 20 Apr 2021 02:07:55 GMT\n\"@authority\": example.com\n\
                    \"content-type\": application/json\n\
                    \"@signature-params\": (\"date\" \"@authority\" \"content-type\");created=1618884473;keyid=\"test-shared-secret\"";
        let signed = STANDARD.encode(mac(&secret.into(), base.as_bytes()));
        assert_eq!(signed, "pxcQw6G3AjtMBQjwo8XzkZf/bws5LelbaMk5rGIGtE8=");
    }

    #[test]
    fn both_keys_sign_the_method_the_address_the_refunds_key_and_the_body() {
        let keys = Signing([key("new", b"1"), key("old", b"2")].into());
        let signer = Signer::new(&keys, &"https://Bank.example:443/a".parse().unwrap());
        let mut headers = HeaderMap::new();
        headers.insert("idempotency-key", HeaderValue::from_static("k-1"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let path: Uri = "/acme/refunds?key=7".parse().unwrap();
        let (_, lines) = signer.covered(&Method::POST, &path, &headers);
        assert_eq!(
            lines,
            "\"@method\": POST\n\"@authority\": bank.example\n\"@path\": /acme/refunds\n\"@query\": ?key=7\n\
             \"idempotency-key\": k-1\n\"content-type\": application/json\n"
        );
        signer.sign(&Method::POST, &path, &mut headers, b"{\"hello\": \"world\"}", 7).unwrap();
        // The example of RFC 9530, D.1 has this body.
        assert_eq!(headers[CONTENT_DIGEST], "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:");
        let input = headers[SIGNATURE_INPUT].to_str().unwrap();
        let covered = "(\"@method\" \"@authority\" \"@path\" \"@query\" \"idempotency-key\" \"content-type\" \"content-digest\")";
        assert_eq!(
            input,
            format!(
                "sig1={covered};created=7;keyid=\"new\";alg=\"hmac-sha256\", sig2={covered};created=7;keyid=\"old\";alg=\"hmac-sha256\""
            )
        );
        let signature = headers[SIGNATURE].to_str().unwrap();
        assert!(signature.starts_with("sig1=:") && signature.contains(", sig2=:"), "{signature}");
    }

    #[test]
    fn a_request_without_a_body_has_no_digest() {
        let signer = Signer::new(&Signing([key("one", b"1")].into()), &"http://b:8080/".parse().unwrap());
        let mut headers = HeaderMap::new();
        signer.sign(&Method::GET, &"/r/1".parse().unwrap(), &mut headers, b"", 7).unwrap();
        assert_eq!(
            headers[SIGNATURE_INPUT],
            "sig1=(\"@method\" \"@authority\" \"@path\" \"@query\");created=7;keyid=\"one\";alg=\"hmac-sha256\""
        );
        assert!(!headers.contains_key(CONTENT_DIGEST));
    }
}

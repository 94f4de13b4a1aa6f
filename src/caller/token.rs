//! Tokens: how a caller proves its name. The caller keeps the token; refundd keeps only its SHA-256.
//!
//! A token has 256 random bits, so its SHA-256 needs neither salt nor a slow function: nobody can try them all. Its id is
//! no secret and stands in logs.

use std::fmt;

use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The start of every token, so that scanners for leaked secrets can find it.
const PREFIX: &str = "rfd_";
const ID_BYTES: usize = 4;
const SECRET_BYTES: usize = 32;

/// A new token, before it is given to its caller. Its `Debug` text hides it.
#[derive(Debug)]
pub struct Token(SecretString);

impl Token {
    /// Makes a token from the system's random numbers.
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub fn mint() -> Result<Token, getrandom::Error> {
        let mut random = [0; ID_BYTES + SECRET_BYTES];
        getrandom::fill(&mut random)?;
        let (id, secret) = random.split_at(ID_BYTES);
        Ok(Token(format!("{PREFIX}{}_{}", hex::encode(id), hex::encode(secret)).into()))
    }

    /// The token itself, to be shown once.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// What refundd keeps of it.
    #[must_use]
    pub fn stored(&self, expires: Timestamp) -> StoredToken {
        let token = self.expose();
        StoredToken { id: id_of(token).unwrap_or_default().to_owned(), sha256: sha256(token), expires }
    }
}

/// One line of a `tokens_file`. Its `Debug` text leaves the SHA-256 out.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredToken {
    pub id: String,
    sha256: [u8; 32],
    /// From this moment on the token is refused.
    pub expires: Timestamp,
}

impl StoredToken {
    /// Whether this is the token. The time of the answer does not depend on how much of it is right.
    #[must_use]
    pub fn is(&self, token: &str) -> bool {
        sha256(token)[..].ct_eq(&self.sha256[..]).into()
    }

    /// Reads a line of a `tokens_file`.
    ///
    /// # Errors
    /// With the second half of a message, which shows nothing of the line.
    pub fn read(line: &str) -> Result<StoredToken, &'static str> {
        if line.contains(PREFIX) {
            return Err(
                "holds a token itself; the caller keeps the token, and here belongs the line that `refundd token` prints beside it",
            );
        }
        let parts: Vec<&str> = line.split_whitespace().collect();
        let [id, sha256, expires] = parts[..] else {
            return Err("must have three parts, ID SHA256 EXPIRY, as `refundd token` prints them");
        };
        if !is_hex(id, ID_BYTES) {
            return Err("must begin with a token's id, 8 hexadecimal digits, as `refundd token` prints it");
        }
        let sha256 =
            bytes(sha256).ok_or("must have a SHA-256 of 64 hexadecimal digits in its second place")?;
        let expires =
            expires.parse().map_err(|_| "must end with the time of expiry, such as 2030-01-31T12:00:00Z")?;
        Ok(StoredToken { id: id.to_owned(), sha256, expires })
    }
}

impl fmt::Display for StoredToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.id, hex::encode(self.sha256), self.expires)
    }
}

impl fmt::Debug for StoredToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredToken")
            .field("id", &self.id)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

/// The id of a text that has the form of a token.
#[must_use]
pub fn id_of(token: &str) -> Option<&str> {
    let (id, secret) = token.strip_prefix(PREFIX)?.split_once('_')?;
    (is_hex(id, ID_BYTES) && is_hex(secret, SECRET_BYTES)).then_some(id)
}

fn is_hex(text: &str, bytes: usize) -> bool {
    text.len() == 2 * bytes && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn sha256(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

fn bytes(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    (is_hex(text, bytes.len()) && hex::decode_to_slice(text, &mut bytes).is_ok()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_recognised_by_its_line_and_no_other_is() {
        let (token, other) = (Token::mint().unwrap(), Token::mint().unwrap());
        let stored = token.stored("2030-01-31T12:00:00Z".parse().unwrap());
        let read = StoredToken::read(&stored.to_string()).unwrap();
        assert!(read == stored && read.is(token.expose()) && !read.is(other.expose()));
        assert_eq!(token.expose().len(), "rfd_".len() + 8 + 1 + 64);
    }

    #[test]
    fn neither_a_token_nor_its_hash_stands_in_a_debug_text() {
        let token = Token::mint().unwrap();
        let stored = token.stored(Timestamp::UNIX_EPOCH);
        let shown = format!("{token:?} {stored:?}");
        let (_, secret) = token.expose().rsplit_once('_').unwrap();
        assert!(!shown.contains(secret) && !shown.contains(&hex::encode(stored.sha256)), "{shown}");
    }

    #[test]
    fn a_line_that_is_wrong_is_refused_without_being_shown() {
        let token = Token::mint().unwrap();
        // A fixed line: of a random one, the id may have no letter to write large.
        let good = format!("0123abcd {} 2030-01-31T12:00:00Z", "0a".repeat(32));
        assert!(StoredToken::read(&good).is_ok());
        for (bad, said) in [
            (token.expose().to_owned(), "holds a token itself"),
            (good.replace(' ', ""), "three parts"),
            (good.to_uppercase(), "token's id"),
            (good[1..].to_owned(), "token's id"),
            (good.replacen(' ', " 0", 1), "SHA-256"),
            (format!("{good}x"), "time of expiry"),
        ] {
            let problem = StoredToken::read(&bad).unwrap_err();
            assert!(problem.contains(said), "{problem}");
        }
    }

    #[test]
    fn only_the_form_of_a_token_has_an_id() {
        let secret = "0".repeat(64);
        assert_eq!(id_of(&format!("rfd_0123abcd_{secret}")), Some("0123abcd"));
        for bad in [
            "",
            "rfd_",
            "rfd_0123abcd_",
            "rfd_0123abcd",
            &format!("rfd_0123ABCD_{secret}"),
            &format!("RFD_0123abcd_{secret}"),
        ] {
            assert_eq!(id_of(bad), None, "{bad}");
        }
    }
}

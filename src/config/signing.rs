//! `signing` of a channel: the keys that sign its requests.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::channel::{Signing, SigningKey};

use super::field::Field;
use super::mask;
use super::secret::contents;
use super::section::Section;

pub(super) const KEYS: &[&str] = &["scheme", "key_files"];
const SCHEME: &str = "hmac-sha256";
const MOST_KEYS: usize = 2;
/// A shorter key could be found by trying.
const LEAST_BYTES: usize = 16;

/// Reads the keys; `None` after a complaint.
pub(super) fn read(section: &Section<'_>) -> Option<Signing> {
    let source = section.source;
    let complaints_before = source.complaint_count();
    section.keys(KEYS, &[("key_file", "name the files in a list: `key_files = [\"new\", \"old\"]`")]);
    let mut scheme = section.required_text("scheme", "it must be \"hmac-sha256\"")?;
    let known = scheme.value == SCHEME;
    scheme.require(source, known, || "no such scheme; use \"hmac-sha256\"");
    let mut files =
        section.required_texts("key_files", "it names the file of the key, and of a second one")?;
    // Some write the key where the name of its file belongs.
    files.shown_as(mask::HIDDEN);
    let count = files.value.len();
    files.require(
        source,
        (1..=MOST_KEYS).contains(&count),
        || "must name one file, or two while keys are changed: the new key first",
    );
    let mut keys: Vec<SigningKey> = Vec::new();
    for name in files.value.clone() {
        let Some(key) = key(section, &mut files, &name) else { continue };
        let is_new = keys.iter().all(|other| other.id != key.id);
        files.require(
            source,
            is_new,
            || "names two files of one name, and a file's name is the name of its key",
        );
        keys.push(key);
    }
    (source.complaint_count() == complaints_before).then(|| Signing(keys.into()))
}

fn key(section: &Section<'_>, files: &mut Field<Vec<String>>, name: &str) -> Option<SigningKey> {
    let source = section.source;
    let mut file = files.one_of(name.to_owned());
    let (text, path) = contents(source, &mut file)?;
    let id = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:@=+".contains(c);
    let plain = (1..=100).contains(&id.len()) && id.chars().all(is_plain);
    file.require(source, plain, || {
        "the name of this file is the key's name for the bank, so it must be 1 to 100 of a-z, A-Z, 0-9 and -_.:@=+"
    });
    let secret = match text.strip_prefix("base64:") {
        Some(coded) => STANDARD.decode(coded.trim()).unwrap_or_default(),
        None => text.into_bytes(),
    };
    file.require(source, secret.len() >= LEAST_BYTES, || {
        format!(
            "the key in this file must have at least {LEAST_BYTES} bytes; it is the text itself, or its bytes in base64 \
             after `base64:`"
        )
    });
    file.is_sound().then(|| SigningKey { id, secret: Arc::new(secret.into()) })
}

//! The `Authorization` header of a channel or of its inquiry, from a file or a systemd credential.

use hyper::header::HeaderValue;
use secrecy::SecretString;

use super::secret::{contents, named_credential};
use super::section::Section;

/// The key that people try first, and why it is refused.
pub(super) const REFUSED: (&str, &str) = (
    "authorization",
    "a secret does not belong in this file; name its file with `authorization_file`, or a systemd credential with \
     `authorization_credential`",
);

/// Reads the header of a channel or of its inquiry; `None` when none is sent, or after a complaint.
pub(super) fn read(section: &Section<'_>) -> Option<SecretString> {
    let source = section.source;
    let file = section.optional_text("authorization_file");
    let named = section.optional_text("authorization_credential");
    if file.is_some() && named.is_some() {
        section.complain("has both `authorization_file` and `authorization_credential`; keep one of them");
        return None;
    }
    let (mut field, header) = match (file, named) {
        (Some(mut field), _) => contents(source, &mut field).map(|(header, _)| (field, header))?,
        (None, Some(mut field)) => {
            let header = named_credential(source, &mut field)?;
            (field, header)
        }
        (None, None) => return None,
    };
    let sound = HeaderValue::from_str(&header).is_ok();
    field.require(source, sound, || "its content is not a header: it must be one line of plain characters");
    sound.then(|| header.into())
}

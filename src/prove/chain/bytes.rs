//! The bytes and the digests of lines and seals. docs/prove.md has the format, so that other programs can compute it.
//!
//! The bytes are those of Postgres's `record_send()`, by which `refundd.seal_journal()` seals. They are made here from each
//! column's own bytes, and not by that function.

use sha2::{Digest, Sha256};

/// The bytes of SHA-256.
pub type Hash = [u8; 32];

/// The columns of a line that its digest covers, with the number of their type in Postgres.
pub const LINE: &[(&str, u32)] = &[
    ("id", INT8),
    ("refund_id", INT8),
    ("channel", TEXT),
    ("kind", TEXT),
    ("number", INT4),
    ("lease_epoch", INT8),
    ("node", TEXT),
    ("permit", TEXT),
    ("started_at", TIMESTAMPTZ),
    ("finished_at", TIMESTAMPTZ),
    ("outcome", TEXT),
    ("moved_to", TEXT),
    ("status", INT2),
    ("code", TEXT),
    ("message", TEXT),
];

/// The columns of a seal that its hash covers.
pub const SEAL: &[(&str, u32)] = &[
    ("format", INT2),
    ("channel", TEXT),
    ("number", INT8),
    ("after_id", INT8),
    ("to_id", INT8),
    ("month", TIMESTAMPTZ),
    ("sealed_at", TIMESTAMPTZ),
    ("total", INT8),
    ("previous", BYTEA),
    ("lines", BYTEA),
];

const BYTEA: u32 = 17;
const INT8: u32 = 20;
const INT2: u32 = 21;
const INT4: u32 = 23;
const TEXT: u32 = 25;
const TIMESTAMPTZ: u32 = 1184;

/// One column: the number of its type, and its value in Postgres's binary format; `None` for null.
#[derive(Debug, Clone, Copy)]
pub struct SealedColumn<'a> {
    pub oid: u32,
    pub bytes: Option<&'a [u8]>,
}

/// The digest of some columns. Each length stands before its value, so no two rows give the same bytes.
#[must_use]
pub fn digest(fields: &[SealedColumn<'_>]) -> Hash {
    let mut text = Vec::with_capacity(512);
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes();
    text.extend(number(fields.len()));
    for field in fields {
        text.extend(field.oid.to_be_bytes());
        match field.bytes {
            Some(bytes) => {
                text.extend(number(bytes.len()));
                text.extend(bytes);
            }
            None => text.extend((-1i32).to_be_bytes()),
        }
    }
    Sha256::digest(&text).into()
}

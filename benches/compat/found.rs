//! What a row of the table found.

/// What a row found.
#[derive(Debug)]
pub struct Found {
    /// The part's name and version, as the part says it.
    pub version: String,
    pub outcome: String,
}

//! `[bucket]`: the place and the size of the buckets.

use super::section::Section;
use crate::bucket::BucketKind;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketSection {
    pub kind: BucketKind,
    /// The ids that each channel's bucket may hold; the rest of the backlog waits in Postgres.
    pub capacity: u32,
}

impl BucketSection {
    pub(super) const KEYS: &'static [&'static str] = &["kind", "capacity"];
    pub(super) const CAPACITY: u32 = 1_000;

    pub(super) fn read(section: &Section<'_>) -> Self {
        let source = section.source;
        section.keys(Self::KEYS, &[]);
        let mut kind = section.text("kind", BucketKind::Redis.as_str());
        let read = BucketKind::named(&kind.value);
        kind.require(
            source,
            read.is_some(),
            || "must be \"redis\", or \"memory\" for a single node without Redis",
        );
        let mut capacity = section.integer("capacity", i64::from(Self::CAPACITY));
        capacity.within(source, &(1..=100_000));
        BucketSection {
            kind: read.unwrap_or(BucketKind::Redis),
            capacity: u32::try_from(capacity.value).unwrap_or(Self::CAPACITY),
        }
    }
}

//! `[bucket]`: the waiting lines.

use super::section::Section;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    pub kind: BucketKind,
    /// Ids in line for each channel; the rest of the backlog waits in Postgres.
    pub capacity: u32,
}

/// Where the lines stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BucketKind {
    Redis,
}

impl Bucket {
    pub(super) const KEYS: &'static [&'static str] = &["kind", "capacity"];
    pub(super) const CAPACITY: u32 = 1_000;

    pub(super) fn read(section: &Section<'_>) -> Self {
        let source = section.source;
        section.keys(Self::KEYS, &[]);
        let mut kind = section.text("kind", "redis");
        let memory = kind.value == "memory";
        kind.law(
            source,
            !memory,
            || "a bucket in memory is not in this version; use \"redis\", which is the default",
        );
        let redis = kind.value == "redis";
        kind.law(source, redis, || "must be \"redis\", the only kind in this version");
        let mut capacity = section.integer("capacity", i64::from(Self::CAPACITY));
        capacity.within(source, &(1..=100_000));
        Bucket { kind: BucketKind::Redis, capacity: u32::try_from(capacity.value).unwrap_or(Self::CAPACITY) }
    }
}

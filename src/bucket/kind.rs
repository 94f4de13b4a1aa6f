//! The place of the buckets: Redis, or the memory of one process.

/// The place of the buckets and of the counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BucketKind {
    Redis,
    /// The memory of this process; only one node can run.
    Memory,
}

impl BucketKind {
    /// The kind that a file or a node's row names.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "redis" => Some(BucketKind::Redis),
            "memory" => Some(BucketKind::Memory),
            _ => None,
        }
    }

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            BucketKind::Redis => "redis",
            BucketKind::Memory => "memory",
        }
    }
}

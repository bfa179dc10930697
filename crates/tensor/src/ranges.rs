//! One tensor's rows over several shards: which of them has which, and where each answer lands.

/// Shards by the first of their rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges {
    starts: Vec<u64>,
}

/// What one shard is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The shard.
    pub shard: usize,
}

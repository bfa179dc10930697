//! Figures about a region.

/// What a region holds at one moment; all sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The limit `arena_bytes_max`, on `mapped_bytes`.
    pub limit_bytes: u64,
    /// Asked for by live blocks.
    pub live_bytes: u64,
    /// The most that `live_bytes` has been; where several threads are at work, up to what lies on shelves more or less.
    pub live_bytes_peak: u64,
    /// Size of all chunks. Address space: untouched pages take no memory.
    pub mapped_bytes: u64,
    /// The most that `mapped_bytes` has been.
    pub mapped_bytes_peak: u64,
    /// Of the mapped bytes, those in huge pages from the machine's pool.
    pub hugetlb_bytes: u64,
    /// Of the mapped bytes, those in pages that the kernel may join to huge ones; the others are in plain ones.
    pub transparent_bytes: u64,
    /// Mapped and not asked for: free pieces, and the rounding of blocks.
    pub waste_bytes: u64,
    /// Live blocks.
    pub blocks: u64,
    /// Freed blocks that threads keep for their next allocations.
    pub shelved_blocks: u64,
    /// What those take; part of `waste_bytes`.
    pub shelved_bytes: u64,
    /// Of the live blocks, those that the kernel or a peer may still write, after the operation was given up.
    pub quarantined_blocks: u64,
    /// Asked for by blocks in quarantine; part of `live_bytes`.
    pub quarantined_bytes: u64,
    /// Chunks, which is also the number of descriptors and of mappings.
    pub chunks: u64,
    /// Allocations since the region was made. Not the last generation: threads take numbers in advance.
    pub allocations: u64,
}

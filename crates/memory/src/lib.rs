//! Regions of memory: memfd chunks, blocks, leases.

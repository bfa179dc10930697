//! The frames of a stream: little endian, no padding.
mod request;
mod response;

pub(crate) use request::{Entry, Kind, RequestHeader};
pub(crate) use response::{ResponseHeader, Status};

/// What a push does with the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Replace them by the values.
    Set,
    /// Add the values to them; a row that is named twice is added to twice. Integers wrap around.
    Add,
}

/// Bytes of a request's header.
pub(crate) const REQUEST_BYTES: usize = 16;
/// Bytes of an entry of a request.
pub(crate) const ENTRY_BYTES: usize = 24;
/// Bytes of a response's header.
pub(crate) const RESPONSE_BYTES: usize = 24;
/// Most entries of a request.
pub(crate) const ENTRIES_MAX: usize = 256;
/// Longest text of a response that refuses.
pub(crate) const REFUSAL_TEXT_BYTES_MAX: usize = 1024;
/// The slot field of a liveness probe, which uses no slot.
pub(crate) const NO_SLOT: u32 = u32::MAX;

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

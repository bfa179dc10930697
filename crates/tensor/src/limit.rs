//! Limits on which several modules agree.

/// Longest text in the answer about a name: of a dtype, or of the names similar to an unknown one.
pub(crate) const DESCRIPTION_TEXT_BYTES_MAX: usize = 1024;
/// Handshakes of a server at once: each holds a descriptor and a buffer, even if its peer sends nothing.
pub(crate) const HANDSHAKES_MAX: usize = 256;
/// Most dimensions of a shape, as in numpy.
pub(crate) const DIMENSIONS_MAX: usize = 64;

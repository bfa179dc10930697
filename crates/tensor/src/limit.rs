//! Limits on which several modules agree.

/// Longest text of a dtype, or of the names similar to an unknown one.
pub(crate) const TEXT_BYTES_MAX: usize = 1024;
/// Most dimensions of a shape, as in numpy.
pub(crate) const DIMENSIONS_MAX: usize = 64;

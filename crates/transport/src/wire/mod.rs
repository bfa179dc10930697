//! What the bytes of a connection mean.

pub(crate) mod decoder;
pub(crate) mod frame;
pub(crate) mod preface;
pub(crate) mod role;

pub use decoder::{Decoder, Event};
pub use frame::{Codec, Header, Incoming, Kind, Reason};
pub use preface::Preface;
pub use role::Role;

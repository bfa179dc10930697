//! What the bytes of a connection mean.

pub mod decoder;
pub mod frame;
pub mod preface;

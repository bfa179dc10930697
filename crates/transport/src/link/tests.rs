//! The link over a scripted stream.

//! A completion queue with one eventfd: how Rust threads reach an event loop.

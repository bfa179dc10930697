//! What tests do with memory and the heap that needs `unsafe`.
#![allow(unsafe_code)]
#[path = "../../../blockio/tests/sys/counting.rs"]
pub mod counting;
pub mod loan;

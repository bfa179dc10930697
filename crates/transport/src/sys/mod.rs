//! The only module of this crate with `unsafe`: memory without zeroing, shared memory, numbered descriptors.
#![allow(unsafe_code)]

pub mod buffer;
pub mod descriptor;
pub mod events;
pub mod filling;
pub mod shared;
pub mod shelf;

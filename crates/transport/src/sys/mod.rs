//! The only place of this crate with `unsafe`: memory without zeroing, the fork mark, numbered descriptors.
#![allow(unsafe_code)]

pub mod buffer;
pub mod descriptor;
pub mod events;
pub mod filling;
pub mod process;
pub mod shared;
pub mod shelf;

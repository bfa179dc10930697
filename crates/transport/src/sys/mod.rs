//! The only place of this crate with `unsafe`: memory without zeroing, and the fork mark.
#![allow(unsafe_code)]

pub mod buffer;
pub mod filling;
pub mod process;
pub mod shared;

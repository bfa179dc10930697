//! All the unsafe code of the binding.
#![allow(unsafe_code)]

mod descriptor;
mod fork;

pub use descriptor::{borrow, own};
pub use fork::HOOKS;

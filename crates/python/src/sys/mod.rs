//! All the unsafe code of the binding.
#![allow(unsafe_code)]

pub mod descriptor;
pub mod exports;
mod fork;
pub mod frame;
pub mod given;
pub mod kept;
pub mod lent;
pub mod loan;

pub use fork::HOOKS;

//! The only place of the binding with `unsafe`: the buffer protocol, in both directions.
#![allow(unsafe_code)]

pub mod descriptor;
pub mod frame;
pub mod lent;

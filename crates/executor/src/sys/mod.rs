//! All the `unsafe` of the crate.
#![allow(unsafe_code)]

mod interrupt;
mod words;

pub(crate) use interrupt::interrupt;
pub(crate) use words::Words;

//! All the `unsafe` of the crate.
#![allow(unsafe_code)]

mod words;

pub(crate) use words::Words;

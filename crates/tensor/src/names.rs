//! What a name means: id, generation, dtype, shape.
use crate::table::{Description, Key};

/// The numbers that can be added, by what numpy calls their kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Number {
    /// Nothing that can be added: it can be set.
    Opaque = 0,
    /// `i1` to `i8`.
    Signed = 1,
    /// `u1` to `u8`.
    Unsigned = 2,
    /// `f2`, `f4`, `f8`.
    Float = 3,
    /// `c8`, `c16`.
    Complex = 4,
}

/// The type of a tensor's elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dtype {
    /// What can be added.
    pub number: Number,
    /// Bytes of an element.
    pub item_bytes: u32,
    /// How the program that published the tensor writes it, such as `<f4`; at most 4096 bytes. Only passed on.
    pub text: String,
}

/// What a name means at one server until the tensor is dropped or replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// How requests name it.
    pub key: Key,
    /// What it holds.
    pub description: Description,
    /// Its version when it was looked up.
    pub version: u64,
}

impl Meaning {
    /// Rows of the tensor.
    pub fn rows(&self) -> u64 {
        self.description.rows()
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> u64 {
        self.description.row_bytes()
    }
}

/// A name that the server does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// The nearest names that there are, nearest first.
    pub nearest: Vec<String>,
}

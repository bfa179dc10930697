//! What a name means: id, generation, dtype, shape.
pub(crate) mod frame;

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

impl Number {
    /// The kind with this number on the wire.
    pub(crate) fn decode(number: u8) -> Option<Self> {
        let all = [
            Self::Opaque,
            Self::Signed,
            Self::Unsigned,
            Self::Float,
            Self::Complex,
        ];
        all.get(usize::from(number)).copied()
    }
}

/// The type of a tensor's elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dtype {
    /// What can be added.
    pub number: Number,
    /// Bytes of an element.
    pub item_bytes: u32,
    /// How the program that published the tensor writes it, such as `<f4`; at most 1024 bytes. Only passed on.
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

/// The names that have most in common with `name` at both ends, best first.
///
/// Cost: one look at every name, as only a mistake is answered so.
pub(crate) fn nearest<'a>(name: &str, among: impl Iterator<Item = &'a str>) -> Vec<String> {
    const NAMES: usize = 3;
    let mut best: Vec<(usize, &str)> = Vec::with_capacity(NAMES + 1);
    for other in among {
        let score = likeness(name.as_bytes(), other.as_bytes());
        if score > 0 {
            // Of two that are as near the one that comes first stays first.
            let at = best.partition_point(|&(found, _)| found >= score);
            best.insert(at, (score, other));
            best.truncate(NAMES);
        }
    }
    best.into_iter().map(|(_, name)| name.to_owned()).collect()
}

fn likeness(a: &[u8], b: &[u8]) -> usize {
    let front = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let back = a
        .iter()
        .rev()
        .zip(b.iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    front + back
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_names_are_those_that_begin_and_end_alike() {
        let names = ["dense/0", "emb/10", "emb/11", "emb/20", "xyz"];
        assert_eq!(
            nearest("emb/12", names.into_iter()),
            ["emb/10", "emb/11", "emb/20"]
        );
        assert!(nearest("q", names.into_iter()).is_empty());
    }
}

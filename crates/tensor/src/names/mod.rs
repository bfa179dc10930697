//! The result of a look-up by name: id, generation, dtype, shape.
pub(crate) mod frame;

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::table::{Description, Key};

/// The tensor that a name means at one server, until it is dropped or replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// Identifies it in requests.
    pub key: Key,
    /// Its dtype and shape.
    pub description: Description,
    /// Its version at the look-up.
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

/// The server has no tensor of this name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unknown {
    /// The most similar names, best first; empty if more than two names of the request are unknown.
    pub nearest: Vec<String>,
}

/// How many names are compared with an unknown one: its neighbours in sorted order, which share its beginning.
const LOOKED_AT: usize = 256;

/// The names that have most in common with `name` at both ends, best first.
///
/// Cost: compares 256 names at most, since any peer may look unknown names up.
pub(crate) fn nearest<T>(name: &str, among: &BTreeMap<String, T>) -> Vec<String> {
    const NAMES: usize = 3;
    let mut best: Vec<(usize, &str)> = Vec::with_capacity(NAMES + 1);
    for other in around(name, among) {
        let score = likeness(name.as_bytes(), other.as_bytes());
        if score > 0 {
            // Of two with equal scores the first stays first.
            let at = best.partition_point(|&(found, _)| found >= score);
            best.insert(at, (score, other));
            best.truncate(NAMES);
        }
    }
    best.into_iter().map(|(_, name)| name.to_owned()).collect()
}

fn around<'a, T>(name: &'a str, among: &'a BTreeMap<String, T>) -> impl Iterator<Item = &'a str> {
    let from = |bound| among.range::<str, _>((bound, Bound::Unbounded));
    let before = among.range::<str, _>((Bound::Unbounded, Bound::Excluded(name)));
    let first = before.rev().take(LOOKED_AT / 2).last();
    let first = first.map_or(name, |(first, _)| first.as_str());
    from(Bound::Included(first))
        .take(LOOKED_AT)
        .map(|(name, _)| name.as_str())
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
        let names = BTreeMap::from(names.map(|name| (name.to_owned(), 0)));
        assert_eq!(nearest("emb/12", &names), ["emb/10", "emb/11", "emb/20"]);
        assert!(nearest("q", &names).is_empty());
    }

    #[test]
    #[cfg_attr(miri, ignore = "60,000 names, which take miri many minutes")]
    fn of_very_many_names_those_around_are_looked_at() {
        let name = |number: u32| format!("table/{number:05}");
        let names: BTreeMap<_, u32> = (0..60_000).map(|number| (name(number), number)).collect();
        for (unknown, first) in [("a", 0), ("table/300000", 29_873), ("x", 59_872)] {
            let looked_at: Vec<_> = around(unknown, &names).collect();
            assert_eq!(looked_at[0], name(first));
            assert!(
                (128..=LOOKED_AT).contains(&looked_at.len()),
                "{}",
                looked_at.len()
            );
        }
        assert_eq!(nearest("table/300000", &names)[0], name(30_000));
        assert!(nearest("", &BTreeMap::<_, u32>::new()).is_empty());
    }
}

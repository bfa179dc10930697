//! The kinds of services that programs have named, and their templates.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::limit::KINDS_MAX;
use crate::machine;
use crate::wire::shared::Kind;

/// All kinds and templates, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    by_number: Vec<Kind>,
    /// Numbers of kinds, by their digest.
    keys: BTreeMap<Vec<u8>, machine::Key>,
    /// Numbers of templates, by their digest.
    templates: BTreeMap<Vec<u8>, u32>,
    /// Templates that were described, to which keeper.
    described: Vec<(u64, u32)>,
}

impl Kinds {
    /// The number of a kind, new or known.
    ///
    /// # Errors
    /// `Limit` for a new one above `KINDS_MAX`.
    pub fn intern(&mut self, kind: Kind) -> Result<machine::Key> {
        if let Some(&key) = self.keys.get(&kind.digest) {
            return Ok(key);
        }
        if self.by_number.len() >= KINDS_MAX {
            return Err(Error::Limit {
                limit: "kinds_max",
                maximum: KINDS_MAX as u64,
                value: KINDS_MAX as u64 + 1,
                next: "restart forebay serve: it has seen too many classes, arguments and versions",
            });
        }
        let key = self.count();
        if !kind.template.is_empty() {
            let number = u32::try_from(self.templates.len()).unwrap_or(u32::MAX);
            self.templates
                .entry(kind.template.clone())
                .or_insert(number);
        }
        self.keys.insert(kind.digest.clone(), key);
        self.by_number.push(kind);
        Ok(key)
    }

    /// How many there are: their numbers are below that.
    pub fn count(&self) -> machine::Key {
        // Bounded by `KINDS_MAX`.
        machine::Key::try_from(self.by_number.len()).unwrap_or(machine::Key::MAX)
    }

    /// The kind of a number that was given out.
    pub fn get(&self, key: machine::Key) -> &Kind {
        &self.by_number[key as usize]
    }

    /// The number of the template that forks services of a kind, if one does.
    pub fn template_of(&self, kind: &Kind) -> Option<u32> {
        self.templates.get(&kind.template).copied()
    }

    /// Whether the keeper of an epoch knows a template.
    pub fn is_described(&self, epoch: u64, template: u32) -> bool {
        self.described.contains(&(epoch, template))
    }

    /// The keeper of an epoch knows a template now; what earlier ones knew is gone with them.
    pub fn note_described(&mut self, epoch: u64, template: u32) {
        self.described.retain(|&(known, _)| known == epoch);
        self.described.push((epoch, template));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_digests_are_one_kind_and_equal_templates_one_template() {
        let mut kinds = Kinds::default();
        let first = Kind {
            digest: vec![1],
            template: vec![9],
            ..Kind::default()
        };
        let other = Kind {
            digest: vec![2],
            ..first.clone()
        };
        let numbers = [&first, &other, &first].map(|kind| kinds.intern(kind.clone()).ok());
        assert_eq!(numbers, [Some(0), Some(1), Some(0)]);
        assert_eq!(kinds.templates.len(), 1);
    }

    #[test]
    fn a_new_keeper_knows_no_template_of_the_one_before() {
        let mut kinds = Kinds::default();
        kinds.note_described(1, 0);
        assert!(kinds.is_described(1, 0) && !kinds.is_described(2, 0));
        kinds.note_described(2, 0);
        assert!(kinds.is_described(2, 0) && !kinds.is_described(1, 0));
    }
}

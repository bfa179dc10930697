//! The kinds of services that programs have named, and their templates.

use std::collections::BTreeMap;

use super::BorrowerId;
use crate::error::{Error, Result};
use crate::limit::KINDS_MAX;
use crate::machine;
use crate::wire::shared::Kind;

/// All kinds and templates, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    by_number: Vec<Kind>,
    /// Leases of each kind so far.
    leases: Vec<u64>,
    /// Numbers of kinds, by their digest.
    keys: BTreeMap<Vec<u8>, machine::Key>,
    /// Numbers of templates, by their digest.
    templates: BTreeMap<Vec<u8>, u32>,
    /// Templates that were described, to which keeper.
    described: Vec<(u64, u32)>,
    /// Private kinds, and the program whose they are; the number of one that has left is given out again.
    private: BTreeMap<machine::Key, Option<BorrowerId>>,
}

impl Kinds {
    /// The number of a kind that a program names, new or known. No service of a kind that is not `in_use` lives.
    ///
    /// # Errors
    /// `Limit` for a new one above `KINDS_MAX`.
    pub fn intern(
        &mut self,
        program: BorrowerId,
        kind: Kind,
        in_use: impl Fn(machine::Key) -> bool,
    ) -> Result<machine::Key> {
        if let Some(&key) = self.keys.get(&kind.digest) {
            return Ok(key);
        }
        if kind.private {
            let left = |(&key, &owner): (_, &Option<BorrowerId>)| {
                (owner.is_none() && !in_use(key)).then_some(key)
            };
            if let Some(key) = self.private.iter().find_map(left) {
                self.private.insert(key, Some(program));
                self.keys.insert(kind.digest.clone(), key);
                self.by_number[key as usize] = kind;
                return Ok(key);
            }
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
        if kind.private {
            self.private.insert(key, Some(program));
        }
        self.keys.insert(kind.digest.clone(), key);
        self.by_number.push(kind);
        self.leases.push(0);
        Ok(key)
    }

    /// A program has left: the kinds that nobody else can use.
    pub fn leave(&mut self, program: BorrowerId) -> Vec<machine::Key> {
        let mut left = Vec::new();
        for (&key, owner) in &mut self.private {
            if *owner == Some(program) {
                *owner = None;
                self.keys.remove(&self.by_number[key as usize].digest);
                left.push(key);
            }
        }
        left
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

    /// A service of a kind was lent.
    pub fn note_lease(&mut self, key: machine::Key) {
        self.leases[key as usize] += 1;
    }

    /// Leases of a kind so far.
    pub fn leases(&self, key: machine::Key) -> u64 {
        self.leases[key as usize]
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
        let numbers =
            [&first, &other, &first].map(|kind| kinds.intern(1, kind.clone(), |_| false).ok());
        assert_eq!(numbers, [Some(0), Some(1), Some(0)]);
        assert_eq!(kinds.templates.len(), 1);
    }

    #[test]
    fn the_number_of_a_private_kind_is_given_out_again_once_its_services_are_gone() {
        let mut kinds = Kinds::default();
        let private = |digest| Kind {
            digest: vec![digest],
            private: true,
            ..Kind::default()
        };
        let intern = |kinds: &mut Kinds, program, digest, in_use: bool| {
            let key = kinds.intern(program, private(digest), |_| in_use);
            key.expect("below the limit")
        };
        assert_eq!(intern(&mut kinds, 1, 1, true), 0);
        assert_eq!(intern(&mut kinds, 2, 2, true), 1);
        assert_eq!(kinds.leave(1), [0]);
        assert!(kinds.leave(1).is_empty());
        assert_eq!(intern(&mut kinds, 2, 3, true), 2);
        assert_eq!(intern(&mut kinds, 3, 1, false), 0);
        assert_eq!(kinds.leave(3), [0]);
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

//! The names of requests in the ring, each once, with the chains of their events.

use std::collections::HashMap;
use std::sync::Arc;

use super::chain::Chain;
use crate::hash::ByNumber;

/// Names that are kept though no event of theirs is: an application has fewer, and a stranger's are not.
const UNUSED_MAX: usize = 1_024;
/// What a name costs beside its text: itself, and its entries in both maps.
pub(super) const NAME_BYTES: usize = size_of::<NameChain>() + 96;
/// No name.
pub(super) const NAMELESS: u32 = u32::MAX;

#[derive(Debug)]
struct NameChain {
    text: Arc<str>,
    chain: Chain,
    /// Its row in the metrics, once an event of it was counted.
    counted: Option<u32>,
}

/// All names by index. An index is reused when its name is forgotten.
#[derive(Debug, Default)]
pub(super) struct NameChains {
    chains: Vec<NameChain>,
    free: Vec<u32>,
    by_text: HashMap<Arc<str>, u32>,
    /// By the address of the text that is kept here: requests of a name share one text, and comparing addresses is
    /// cheaper than hashing it.
    by_address: ByNumber<usize, u32>,
    /// The newest number that a forgotten name has lost.
    forgotten: u64,
}

impl NameChains {
    /// The index of a name, which is new or known.
    pub(super) fn index(&mut self, text: &Arc<str>) -> u32 {
        if let Some(index) = self.by_address.get(&address(text)) {
            return *index;
        }
        let Some(&index) = self.by_text.get(text) else {
            return self.add(text);
        };
        // A newer code has texts of its own, and its requests are those that come.
        let known = &mut self.chains[index as usize];
        self.by_address.remove(&address(&known.text));
        known.text = Arc::clone(text);
        self.by_address.insert(address(text), index);
        index
    }

    fn add(&mut self, text: &Arc<str>) -> u32 {
        let fresh = NameChain {
            text: Arc::clone(text),
            chain: Chain::after(self.forgotten),
            counted: None,
        };
        let index = if let Some(index) = self.free.pop() {
            self.chains[index as usize] = fresh;
            index
        } else {
            self.chains.push(fresh);
            u32::try_from(self.chains.len() - 1).unwrap_or(NAMELESS)
        };
        self.by_text.insert(Arc::clone(text), index);
        self.by_address.insert(address(text), index);
        index
    }

    pub(super) fn text(&self, index: u32) -> Option<&str> {
        Some(&self.chains.get(index as usize)?.text)
    }

    pub(super) fn chain(&self, index: u32) -> Option<&Chain> {
        Some(&self.chains.get(index as usize)?.chain)
    }

    pub(super) fn chain_mut(&mut self, index: u32) -> Option<&mut Chain> {
        Some(&mut self.chains.get_mut(index as usize)?.chain)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_text.len()
    }

    /// Its row in the metrics, which `row` gives the first time.
    pub(super) fn counted(&mut self, index: u32, row: impl FnOnce(&Arc<str>) -> u32) -> u32 {
        let Some(name) = self.chains.get_mut(index as usize) else {
            return 0;
        };
        *name.counted.get_or_insert_with(|| row(&name.text))
    }

    /// Forget a name that is not used any more, unless there are few.
    pub(super) fn release(&mut self, index: u32) {
        let Some(name) = self.chains.get(index as usize) else {
            return;
        };
        if self.by_text.len() <= UNUSED_MAX || !name.chain.is_unused() {
            return;
        }
        self.forgotten = self.forgotten.max(name.chain.dropped());
        self.by_text.remove(&name.text);
        self.by_address.remove(&address(&name.text));
        self.free.push(index);
    }
}

fn address(text: &Arc<str>) -> usize {
    Arc::as_ptr(text).cast::<u8>() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_has_one_index_whoever_brings_its_text() {
        let mut names = NameChains::default();
        let (old, new): (Arc<str>, Arc<str>) = ("work".into(), "work".into());
        let index = names.index(&old);
        assert_eq!(names.index(&new), index);
        assert_eq!(names.index(&old), index);
        assert_ne!(names.index(&"other".into()), index);
        assert_eq!(names.text(index), Some("work"));
        assert_eq!(names.by_address.len(), 2, "one address for each name");
    }

    #[test]
    fn names_of_a_stranger_are_forgotten_with_their_events() {
        let mut names = NameChains::default();
        for number in 1..10_000_u64 {
            let index = names.index(&format!("name {number}").into());
            let chain = names.chain_mut(index).unwrap();
            chain.append(number);
            chain.drop_first(None, false);
            names.release(index);
        }
        assert!(names.by_text.len() <= UNUSED_MAX + 1);
        assert!(names.chains.len() <= UNUSED_MAX + 2);
        // A name that may have been known has lost what was forgotten.
        let index = names.index(&"name 5000".into());
        assert!(names.chain(index).unwrap().dropped() >= 5_000);
    }
}

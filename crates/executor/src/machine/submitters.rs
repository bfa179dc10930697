//! How many unfinished requests each submitter has.

use std::collections::HashMap;
use std::sync::Arc;

/// The counts, of submitters that have any: a submitter may choose its name, and unused names must not accumulate.
#[derive(Debug, Default)]
pub(crate) struct Submitters(HashMap<Arc<str>, u32>);

impl Submitters {
    pub(crate) fn count(&self, submitter: &str) -> u32 {
        self.0.get(submitter).copied().unwrap_or(0)
    }

    #[inline] // where a request enters: see `Entry::new`
    pub(crate) fn add(&mut self, submitter: &Arc<str>) {
        match self.0.get_mut(submitter) {
            Some(count) => *count += 1,
            None => drop(self.0.insert(Arc::clone(submitter), 1)),
        }
    }

    pub(crate) fn remove(&mut self, submitter: &Arc<str>) {
        if let Some(count) = self.0.get_mut(submitter) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(submitter);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submitter_without_requests_takes_no_memory() {
        let (ann, bob): (Arc<str>, Arc<str>) = ("ann".into(), "bob".into());
        let mut counts = Submitters::default();
        for submitter in [&ann, &bob, &ann] {
            counts.add(submitter);
        }
        assert_eq!(
            (
                counts.count("ann"),
                counts.count("bob"),
                counts.count("eve")
            ),
            (2, 1, 0)
        );
        counts.remove(&ann);
        counts.remove(&bob);
        counts.remove(&bob);
        assert_eq!((counts.count("ann"), counts.0.len()), (1, 1));
    }
}

//! Since when the requests of a lane's queue are in it, so that the oldest is known without a walk over them.
//!
//! They are counted by millisecond, in order. The oldest is the front; a request that leaves is found by its time.

use std::collections::VecDeque;

use crate::request::Millis;

/// Times without a request that may stay between others before they are removed.
const EMPTY_MAX: usize = 64;

/// How many requests came at each time.
#[derive(Debug, Default)]
pub(super) struct Ages {
    counts: VecDeque<(Millis, u32)>,
    /// Times whose count is 0, none of them in front.
    empty: usize,
}

impl Ages {
    /// One has come. Cost: constant, unless time went back.
    pub(super) fn add(&mut self, at: Millis) {
        match self.counts.back_mut() {
            Some((last, count)) if *last == at => {
                self.empty -= usize::from(*count == 0);
                *count += 1;
            }
            Some((last, _)) if *last > at => self.add_before(at),
            _ => self.counts.push_back((at, 1)),
        }
    }

    fn add_before(&mut self, at: Millis) {
        match self.counts.binary_search_by_key(&at, |(one, _)| *one) {
            Ok(index) => {
                let (_, count) = &mut self.counts[index];
                self.empty -= usize::from(*count == 0);
                *count += 1;
            }
            Err(index) => self.counts.insert(index, (at, 1)),
        }
    }

    /// One that came at this time has left. Cost: a search among the times.
    pub(super) fn remove(&mut self, at: Millis) {
        // A queue is left in about the order in which it was entered.
        let index = match self.counts.front() {
            Some((first, _)) if *first == at => Some(0),
            _ => self.counts.binary_search_by_key(&at, |(one, _)| *one).ok(),
        };
        let Some((_, count)) = index.and_then(|index| self.counts.get_mut(index)) else {
            debug_assert!(false, "nobody came at {at}");
            return;
        };
        *count -= 1;
        self.empty += usize::from(*count == 0);
        while self.counts.front().is_some_and(|(_, count)| *count == 0) {
            self.counts.pop_front();
            self.empty -= 1;
        }
        if self.empty > EMPTY_MAX && 2 * self.empty > self.counts.len() {
            self.counts.retain(|(_, count)| *count > 0);
            self.empty = 0;
        }
    }

    /// Since when the oldest is there.
    pub(super) fn oldest(&self) -> Option<Millis> {
        self.counts.front().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn it_does_what_a_list_does(steps in proptest::collection::vec((0_u64..20, 0_usize..3), 0..400)) {
            let (mut ages, mut list, mut now) = (Ages::default(), Vec::new(), 0_u64);
            for (value, what) in steps {
                if what > 0 || list.is_empty() {
                    now = (now + value).saturating_sub(3);
                    ages.add(now);
                    list.push(now);
                } else {
                    let index = usize::try_from(value).unwrap() % list.len();
                    ages.remove(list.remove(index));
                }
                proptest::prop_assert_eq!(ages.oldest(), list.iter().min().copied());
                let empty = ages.counts.iter().filter(|(_, count)| *count == 0).count();
                proptest::prop_assert_eq!(ages.empty, empty);
            }
        }
    }

    #[test]
    fn one_that_waits_for_ever_keeps_no_time_of_the_others() {
        let mut ages = Ages::default();
        ages.add(1);
        for at in 2..100_000 {
            ages.add(at);
            ages.remove(at);
        }
        assert!(
            ages.counts.len() <= 2 * EMPTY_MAX + 2,
            "{}",
            ages.counts.len()
        );
        assert_eq!(ages.oldest(), Some(1));
    }
}

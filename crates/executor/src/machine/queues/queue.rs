//! Ready requests: submitters take turns, priority counts within a submitter's own.
//!
//! A submitter with a thousand requests and one with a single request take turns, so the single one waits for one
//! request, not for a thousand. Within a submitter a child comes before what is above it, then the higher priority, then
//! the older request; one that comes back after a death of its worker has kept its id and so is first again.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use crate::id::RequestId;
use crate::machine::register::Key;
use crate::request::Request;

/// The order of a request among its submitter's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// Negated, so that the children of what runs come before what has not begun.
    shallowness: i64,
    /// Negated too: the higher priority comes first.
    urgency: i64,
    id: RequestId,
    key: Key,
}

impl Rank {
    pub(crate) fn of(request: &Request, key: Key) -> Self {
        Self {
            shallowness: -i64::from(request.submission.options.depth()),
            urgency: -i64::from(request.submission.options.priority),
            id: request.id,
            key,
        }
    }
}

#[derive(Debug, Default)]
struct SubmitterQueue {
    submitter: Arc<str>,
    waiting: BTreeSet<Rank>,
}

/// A queue in which submitters take turns. Each operation costs one hash look-up and O(log n).
#[derive(Debug, Default)]
pub(crate) struct FairQueue {
    index: HashMap<Arc<str>, usize>,
    lines: Vec<SubmitterQueue>,
    free: Vec<usize>,
    /// Submitters with waiting requests, by turn.
    turns: VecDeque<usize>,
    len: usize,
}

impl FairQueue {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn push(&mut self, submitter: &Arc<str>, rank: Rank) {
        let line = if let Some(line) = self.index.get(submitter) {
            *line
        } else {
            self.open(submitter)
        };
        let added = self.lines[line].waiting.insert(rank);
        debug_assert!(added, "queued twice");
        self.len += 1;
    }

    fn open(&mut self, submitter: &Arc<str>) -> usize {
        let line = self.free.pop().unwrap_or_else(|| {
            self.lines.push(SubmitterQueue::default());
            self.lines.len() - 1
        });
        self.lines[line].submitter = Arc::clone(submitter);
        self.index.insert(Arc::clone(submitter), line);
        // Behind all others: a new submitter waits for one turn of each.
        self.turns.push_back(line);
        line
    }

    /// The first request of the submitter with this turn.
    pub(crate) fn head(&self, turn: usize) -> Option<Key> {
        let line = *self.turns.get(turn)?;
        self.lines[line].waiting.first().map(|rank| rank.key)
    }

    /// Takes what `head` returned; its submitter's next turn comes after all others.
    pub(crate) fn take(&mut self, turn: usize) -> Option<Key> {
        let line = self.turns.remove(turn)?;
        let rank = self.lines[line].waiting.pop_first()?;
        self.len -= 1;
        if self.lines[line].waiting.is_empty() {
            self.close(line);
        } else {
            self.turns.push_back(line);
        }
        Some(rank.key)
    }

    /// Takes a request out of turn. `false`: it is not queued here.
    pub(crate) fn remove(&mut self, submitter: &Arc<str>, rank: Rank) -> bool {
        let Some(&line) = self.index.get(submitter) else {
            return false;
        };
        if !self.lines[line].waiting.remove(&rank) {
            return false;
        }
        self.len -= 1;
        if self.lines[line].waiting.is_empty() {
            // Linear in the waiting submitters, but only a cancel comes here.
            self.turns.retain(|one| *one != line);
            self.close(line);
        }
        true
    }

    fn close(&mut self, line: usize) {
        self.index.remove(&self.lines[line].submitter);
        self.free.push(line);
    }

    /// Submitters with waiting requests.
    pub(crate) fn submitters(&self) -> usize {
        self.turns.len()
    }

    /// How many submitters' turns come before this one's.
    pub(crate) fn turn_of(&self, submitter: &Arc<str>) -> Option<usize> {
        let line = self.index.get(submitter)?;
        self.turns.iter().position(|one| one == line)
    }

    /// The first request of a submitter.
    pub(crate) fn first_of(&self, submitter: &Arc<str>) -> Option<Key> {
        let line = *self.index.get(submitter)?;
        self.lines[line].waiting.first().map(|rank| rank.key)
    }

    /// How many requests of the same submitter come before it; looks at no more than `most`.
    pub(crate) fn before(&self, submitter: &Arc<str>, rank: Rank, most: usize) -> usize {
        let Some(&line) = self.index.get(submitter) else {
            return 0;
        };
        self.lines[line].waiting.range(..rank).take(most).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(priority: i32, id: u64) -> Rank {
        Rank {
            shallowness: 0,
            urgency: -i64::from(priority),
            id: RequestId(id),
            key: u32::try_from(id).unwrap(),
        }
    }

    fn drain(queue: &mut FairQueue) -> Vec<Key> {
        std::iter::from_fn(|| queue.take(0)).collect()
    }

    proptest::proptest! {
        /// Against a list that is searched: the head of the submitter whose turn it is, and nothing lost or doubled.
        #[test]
        fn it_does_what_a_searched_list_does(steps in proptest::collection::vec((0_u8..4, 0_usize..3, 0..3), 0..200)) {
            let names: [Arc<str>; 3] = ["ann".into(), "bob".into(), "eve".into()];
            let mut queue = FairQueue::default();
            let mut list: Vec<(usize, Rank)> = Vec::new();
            let mut turns: Vec<usize> = Vec::new();
            for (id, (what, who, priority)) in steps.into_iter().enumerate() {
                let mine = |list: &[(usize, Rank)], who| list.iter().filter(|(one, _)| *one == who).map(|(_, rank)| *rank).min();
                match what {
                    0 | 1 => {
                        let rank = rank(priority, id as u64);
                        queue.push(&names[who], rank);
                        list.push((who, rank));
                        if !turns.contains(&who) {
                            turns.push(who);
                        }
                    }
                    2 if !turns.is_empty() => {
                        let turn = who % turns.len();
                        let next = turns.remove(turn);
                        let first = mine(&list, next).unwrap();
                        proptest::prop_assert_eq!(queue.head(turn), Some(first.key));
                        proptest::prop_assert_eq!(queue.take(turn), Some(first.key));
                        list.retain(|(_, rank)| *rank != first);
                        if mine(&list, next).is_some() {
                            turns.push(next);
                        }
                    }
                    3 if !list.is_empty() => {
                        let (owner, rank) = list.remove(id % list.len());
                        proptest::prop_assert!(queue.remove(&names[owner], rank));
                        if mine(&list, owner).is_none() {
                            turns.retain(|one| *one != owner);
                        }
                    }
                    _ => {}
                }
                proptest::prop_assert_eq!((queue.len(), queue.submitters()), (list.len(), turns.len()));
            }
        }
    }

    #[test]
    fn submitters_take_turns_and_priority_counts_among_their_own() {
        let (ann, bob): (Arc<str>, Arc<str>) = ("ann".into(), "bob".into());
        let mut queue = FairQueue::default();
        for id in 1..=4 {
            queue.push(&ann, rank(0, id));
        }
        queue.push(&ann, rank(9, 5));
        queue.push(&bob, rank(0, 6));
        queue.push(&bob, rank(0, 7));
        assert_eq!(queue.len(), 7);
        assert_eq!(queue.head(1), Some(6));
        assert_eq!(drain(&mut queue), [5, 6, 1, 7, 2, 3, 4]);
        assert!(queue.is_empty());
    }

    #[test]
    fn what_is_removed_leaves_no_turn_behind() {
        let (ann, bob): (Arc<str>, Arc<str>) = ("ann".into(), "bob".into());
        let mut queue = FairQueue::default();
        queue.push(&ann, rank(0, 1));
        queue.push(&bob, rank(0, 2));
        assert!(queue.remove(&ann, rank(0, 1)));
        assert!(!queue.remove(&ann, rank(0, 1)));
        queue.push(&ann, rank(0, 3));
        assert_eq!(drain(&mut queue), [2, 3]);
    }
}

//! Copies the rows of answers before a write changes them; other answers stay uncopied.
use super::{Answers, Body, each_row};
use crate::table::{Changed, Storages};

/// Rows that are compared for one write. Answers behind them are copied without comparison, so that many pulls of a
/// peer that reads nothing cost this once each, and not again with every push of other peers.
const LOOKS_MAX: usize = 4096;

impl Answers {
    /// Copy the answers that read changing rows; `readers` of the waiting answers read that storage.
    pub(in crate::responder) fn preserve<K>(
        &mut self,
        changed: &Changed,
        mut readers: u32,
        storages: &mut Storages<K>,
    ) {
        let mut looks = 0;
        for at in 0..self.turns.len() {
            let slot = self.turns[at];
            let mut index = self.slots[slot as usize].first;
            while readers > 0
                && let Some((_, answer)) = self.waiting.at_mut(index)
            {
                index = answer.next;
                looks += 1;
                if answer.body.storage() != Some(changed.storage) {
                    continue;
                }
                readers -= 1;
                let indices = self.numbers.list(slot);
                if looks > LOOKS_MAX || answer.body.touches(changed, indices, &mut looks) {
                    answer.body = Body::Owned(answer.body.copy(indices));
                    storages.release(changed.storage, self.reader, 1);
                }
            }
            self.settle_indices(slot);
            if readers == 0 {
                break;
            }
        }
    }
}

impl Body {
    /// Whether it reads changing rows of its storage, or has too many rows to compare.
    fn touches(&self, changed: &Changed, indices: &[u8], looks: &mut usize) -> bool {
        match *self {
            Self::Rows { rows, .. } => changed.touches(rows),
            Self::Gather {
                tensor,
                row_bytes,
                from,
                rows,
                ..
            } => {
                *looks += rows;
                *looks > LOOKS_MAX
                    || each_row(tensor, row_bytes, indices, from, rows)
                        .any(|row| changed.touches(row))
            }
            _ => unreachable!("other storages are never written"),
        }
    }

    /// Its rows.
    fn copy(&self, indices: &[u8]) -> Vec<u8> {
        let mut copy = Vec::new();
        match *self {
            Self::Rows { rows, .. } => rows.append_to(&mut copy),
            Self::Gather {
                tensor,
                row_bytes,
                from,
                rows,
                ..
            } => {
                copy.reserve_exact(rows * row_bytes);
                for row in each_row(tensor, row_bytes, indices, from, rows) {
                    row.append_to(&mut copy);
                }
            }
            _ => unreachable!("other storages are never written"),
        }
        copy
    }
}

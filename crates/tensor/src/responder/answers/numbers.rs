//! Row numbers of requests: where they lie until the answers that need them have begun.
//!
//! A slot keeps its list for the next request, so that none is allocated in the steady state. What a peer's lists may
//! have together beside that is bounded: above [`KEPT_BYTES`] a list goes when nothing needs it, and is copied to one that
//! fits when half of it is needed at most. So they have that, and twice what the grant allows.
use super::{Answers, Body, Slot};
use crate::sys::span::{Span, Words};

/// What the lists of a peer may have together before any is given back. Tests come to it with the first list.
const KEPT_BYTES: usize = if cfg!(test) { 1 } else { 1 << 20 };

impl Answers {
    /// Room for `bytes` of row numbers of the slot's request, at a place that stays until an answer of it is added.
    pub(in crate::responder) fn indices(&mut self, slot: u32, bytes: usize) -> Span {
        let indices = &mut self.slots[slot as usize].indices;
        let before = indices.capacity();
        if before < bytes {
            *indices = vec![0; bytes];
        } else if indices.len() < bytes {
            indices.resize(bytes, 0);
        }
        self.indices_bytes += indices.capacity() - before;
        Span::of(&mut indices[..bytes])
    }

    /// Row numbers that came with the slot's request.
    pub(in crate::responder) fn words(&self, slot: u32, from: usize, rows: usize) -> Words {
        let indices = &self.slots[slot as usize].indices;
        Words::new(Span::sending(&indices[from..from + 8 * rows]))
    }

    /// Fewer of the slot's row numbers may be needed than before: give back what the peer may not keep.
    pub(super) fn settle_indices(&mut self, slot: u32) {
        let at = &self.slots[slot as usize];
        if self.indices_bytes <= KEPT_BYTES || at.is_coming {
            return;
        }
        let capacity = at.indices.capacity();
        let mut needed = 0;
        self.each_numbered(slot, |_, bytes, _| needed += bytes);
        if capacity == 0 || 2 * needed > capacity {
            return;
        }
        let mut fitting = Vec::with_capacity(needed);
        self.each_numbered(slot, |from, bytes, indices| {
            fitting.extend_from_slice(&indices[*from..*from + bytes]);
            *from = fitting.len() - bytes;
        });
        self.indices_bytes -= capacity - fitting.capacity();
        self.slots[slot as usize].indices = fitting;
    }

    /// Have `each` see where the numbers lie that answers of a slot need, how many bytes they have, and the list.
    fn each_numbered(&mut self, slot: u32, mut each: impl FnMut(&mut usize, usize, &[u8])) {
        let Slot {
            first,
            unread,
            ref indices,
            ..
        } = self.slots[slot as usize];
        for mut index in [first, unread] {
            while let Some(answer) = self.waiting.get_mut(index) {
                if let Some((from, rows)) = answer.body.numbers() {
                    each(from, 8 * rows, indices);
                }
                index = answer.next;
            }
        }
    }
}

impl Body {
    /// Where the row numbers lie that it needs, in bytes, and how many they are.
    fn numbers(&mut self) -> Option<(&mut usize, usize)> {
        match self {
            Self::Gather { from, rows, .. } => Some((from, *rows)),
            Self::Unread(unread) => unread.numbers(),
            _ => None,
        }
    }
}

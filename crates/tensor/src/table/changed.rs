//! Rows that a write is about to change.
use crate::requester::Rows;
use crate::sys::span::Span;

/// Rows of one storage that are about to change.
#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) storage: u32,
    /// Their memory, if they are consecutive.
    span: Span,
    /// The tensor's memory and row size, if the rows are given by number.
    tensor: Span,
    row_bytes: usize,
    /// Their numbers, ascending.
    numbers: Vec<u64>,
}

impl Changed {
    /// No rows.
    pub(crate) const fn new() -> Self {
        Self {
            storage: 0,
            span: Span::EMPTY,
            tensor: Span::EMPTY,
            row_bytes: 0,
            numbers: Vec::new(),
        }
    }

    /// These rows of the tensor in `memory`, all of which are in range.
    #[allow(clippy::cast_possible_truncation)] // bounded by the memory's size, a `usize`
    pub(crate) fn set(&mut self, storage: u32, (memory, row_bytes): (Span, u64), rows: Rows) {
        self.storage = storage;
        self.tensor = memory;
        self.row_bytes = row_bytes as usize;
        self.numbers.clear();
        match rows {
            Rows::Slice { first, count } => {
                let from = first as usize * self.row_bytes;
                self.span = memory.part(from, count as usize * self.row_bytes);
            }
            Rows::Indices(words) => {
                self.span = Span::EMPTY;
                let numbers = (0..words.count()).map(|at| words.get(at));
                self.numbers.extend(numbers);
                self.numbers.sort_unstable();
            }
        }
    }

    /// Whether one of them overlaps `rows`, which belong to the same tensor.
    pub(crate) fn touches(&self, rows: Span) -> bool {
        if self.numbers.is_empty() || rows.bytes() == 0 {
            return rows.overlaps(self.span);
        }
        let start = |span: Span| span.address().as_ptr() as usize;
        let from = start(rows) - start(self.tensor);
        let first = (from / self.row_bytes) as u64;
        let last = ((from + rows.bytes() - 1) / self.row_bytes) as u64;
        let at = self.numbers.partition_point(|&row| row < first);
        self.numbers.get(at).is_some_and(|&row| row <= last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::span::Words;

    #[test]
    fn rows_are_touched_where_a_byte_of_them_changes() {
        let mut memory = [0; 80];
        let memory = Span::of(&mut memory);
        let touched = |rows: Rows| -> Vec<usize> {
            let mut changed = Changed::new();
            changed.set(1, (memory, 8), rows);
            let reads = |row: &usize| changed.touches(memory.part(row * 8 + 7, 1));
            (0..10).filter(reads).collect()
        };
        assert_eq!(touched(Rows::Slice { first: 3, count: 2 }), [3, 4]);
        let mut numbers = [7, 2, 7, 9];
        let words = Words::new(Span::of_words(&mut numbers));
        assert_eq!(touched(Rows::Indices(words)), [2, 7, 9]);
        let mut changed = Changed::new();
        changed.set(1, (memory, 8), Rows::Indices(words));
        assert!(changed.touches(memory.part(24, 33)) && !changed.touches(memory.part(24, 32)));
    }
}

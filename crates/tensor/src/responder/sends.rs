//! Rows that a fabric reads by itself, for clients that pull over one such as RDMA verbs.
//!
//! Bytes that a device has been told to send cannot be copied out of its way, as those of a stream are: nobody can say
//! which of them it has read. So a write waits until it has read those that the write changes; no new ones are begun
//! meanwhile, because the thread that would begin them is the one that waits.
use std::fmt;

use forebay_memory::Lease;

use super::{Shard, stale};
use crate::error::Error;
use crate::fabric::{BlockRange, Source};
use crate::sys::span::Span;
use crate::table::{Found, Key};

/// Returns once no fabric reads a byte of the span for whoever could still get it.
type Settle = Box<dyn FnMut(Span) + Send>;

#[derive(Default)]
pub(super) struct Sends(Option<Settle>);

impl Sends {
    /// Wait until these bytes may be changed.
    pub(super) fn settle(&mut self, span: Span) {
        if let Some(settle) = &mut self.0 {
            settle(span);
        }
    }
}

impl fmt::Debug for Sends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sends").field(&self.0.is_some()).finish()
    }
}

impl<K> Shard<K> {
    /// Call `settle` before bytes of a tensor change, with where they lie.
    pub(crate) fn before_writes(&mut self, settle: impl FnMut(Span) + Send + 'static) {
        self.sends = Sends(Some(Box::new(settle)));
    }
}

impl<K> Source for Shard<K> {
    fn rows(&self, key: Key, first: u64, rows: u64) -> Result<Option<BlockRange<'_>>, Error> {
        let tensor = match self.table.find(key) {
            Found::Live(tensor) => tensor,
            Found::Stale { current, .. } => return Err(stale(key, current)),
            Found::Never => return Err(stale(key, 0)),
        };
        let checked = tensor.check_slice(first, rows);
        checked.map_err(|row| Error::OutOfRange {
            tensor: Some(key.id),
            row,
            rows: tensor.rows,
        })?;
        let Some(block) = &tensor.exports.block else {
            return Ok(None);
        };
        let memory = tensor.rows_at(first, rows);
        let start = block.as_ptr().as_ptr() as usize;
        let at = (memory.address().as_ptr() as usize).checked_sub(start);
        let bytes = memory.bytes();
        Ok(at.map(|offset| BlockRange {
            block,
            offset,
            bytes,
        }))
    }

    /// None: a tensor is written by pushes, and who reads it by itself would not know of which version rows are.
    fn whole(&self, _: Key) -> Result<Option<&Lease>, Error> {
        Ok(None)
    }
}

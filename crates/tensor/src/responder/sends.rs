//! Rows that a device reads by itself, for clients that pull over a fabric such as RDMA verbs.
//!
//! Rows that are queued for a stream can be copied before a write, but not those that a device is sending: it does not
//! report which bytes it has read. So a write waits until the device has sent the rows that it changes. No new sends
//! begin meanwhile, because the waiting thread is the one that would begin them.
use std::fmt;

use forebay_memory::Lease;

use super::{Shard, stale};
use crate::error::Error;
use crate::fabric::{BlockRange, Source};
use crate::sys::span::Span;
use crate::table::{Found, Key};

/// Returns once the fabric reads no byte of the span for a connected peer.
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
    /// Call `settle` before bytes of a tensor change, with their memory.
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

    /// `None`: tensors of a shard are written by pushes, and a peer that reads one by itself would not know the
    /// version of its rows.
    fn whole(&self, _: Key) -> Result<Option<&Lease>, Error> {
        Ok(None)
    }
}

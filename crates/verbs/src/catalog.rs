//! The tensors of an owner without a server, served over verbs.
use forebay_memory::Lease;
use forebay_tensor::fabric::{BlockRange, Source};
use forebay_tensor::{Error, Key};

#[derive(Debug)]
struct Entry {
    generation: u32,
    held: Option<Held>,
}

#[derive(Debug)]
struct Held {
    memory: Lease,
    row_bytes: u64,
}

/// Tensors by id, each with its generation. Its memory is not written while it is published:
/// a new version is published, and the old one dropped.
#[derive(Debug, Default)]
pub struct Catalog {
    entries: Vec<Entry>,
}

impl Catalog {
    /// Serve a block as rows of `row_bytes` each; a shorter rest at its end is ignored.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for rows without bytes, [`Error::Limit`] for 2^32 tensors.
    pub fn publish(&mut self, memory: Lease, row_bytes: u64) -> Result<Key, Error> {
        if row_bytes == 0 {
            return Err(Error::Config {
                setting: "row_bytes",
                value: 0,
                advice: "use 1 or more",
            });
        }
        let held = Some(Held { memory, row_bytes });
        let free = self.entries.iter().position(|entry| entry.held.is_none());
        let at = free.unwrap_or(self.entries.len());
        let id = u32::try_from(at).map_err(|_| Error::Limit {
            limit: "max_tensors",
            value: at as u64,
            maximum: u32::MAX.into(),
            advice: "drop some",
        })?;
        match self.entries.get_mut(at) {
            Some(entry) => entry.held = held,
            None => self.entries.push(Entry {
                generation: 1,
                held,
            }),
        }
        Ok(Key {
            id,
            generation: self.entries[at].generation,
        })
    }

    /// Stop serving a tensor. Its keys must be taken back by [`Responder::withdraw`](crate::Responder::withdraw).
    /// Answers that are being sent keep the block.
    ///
    /// # Errors
    ///
    /// [`Error::Stale`] if it was dropped before.
    pub fn drop_tensor(&mut self, key: Key) -> Result<Lease, Error> {
        let gone = self.gone(key);
        let entry = self
            .entries
            .get_mut(key.id as usize)
            .filter(|entry| entry.generation == key.generation);
        let entry = entry.ok_or_else(|| gone.clone())?;
        let held = entry.held.take().ok_or(gone)?;
        entry.generation = entry.generation.wrapping_add(1).max(1);
        Ok(held.memory)
    }

    fn held(&self, key: Key) -> Result<&Held, Error> {
        let entry = self.entries.get(key.id as usize);
        let held = entry
            .filter(|entry| entry.generation == key.generation)
            .and_then(|entry| entry.held.as_ref());
        held.ok_or_else(|| self.gone(key))
    }

    fn gone(&self, key: Key) -> Error {
        let entry = self
            .entries
            .get(key.id as usize)
            .filter(|entry| entry.held.is_some());
        Error::Stale {
            tensor: key.id,
            held: key.generation,
            current: entry.map_or(0, |entry| entry.generation),
        }
    }
}

impl Source for Catalog {
    fn whole(&self, key: Key) -> Result<Option<&Lease>, Error> {
        Ok(Some(&self.held(key)?.memory))
    }

    fn rows(&self, key: Key, first: u64, rows: u64) -> Result<Option<BlockRange<'_>>, Error> {
        let held = self.held(key)?;
        let total = held.memory.len() as u64 / held.row_bytes;
        if first > total || rows > total - first {
            return Err(Error::OutOfRange {
                tensor: Some(key.id),
                row: first.saturating_add(rows).saturating_sub(1),
                rows: total,
            });
        }
        let fits = |rows: u64| usize::try_from(rows * held.row_bytes).expect("inside of a block");
        Ok(Some(BlockRange {
            block: &held.memory,
            offset: fits(first),
            bytes: fits(rows),
        }))
    }
}

#[cfg(test)]
mod tests {
    use forebay_memory::{Config, Region};

    use super::*;

    #[test]
    fn a_key_from_before_a_drop_is_refused_for_ever() {
        let region = Region::new(Config::new("tensors", 1 << 20)).expect("a region");
        let mut catalog = Catalog::default();
        let first = catalog
            .publish(region.allocate(100).expect("room"), 8)
            .expect("published");
        let found = catalog.rows(first, 2, 10).expect("there are 12");
        assert_eq!(found.expect("in a block").offset, 16);
        assert!(matches!(
            catalog.rows(first, 12, 1),
            Err(Error::OutOfRange {
                row: 12,
                rows: 12,
                ..
            })
        ));
        assert!(catalog.rows(first, u64::MAX, u64::MAX).is_err());
        catalog.drop_tensor(first).expect("published");
        assert!(matches!(
            catalog.rows(first, 0, 1),
            Err(Error::Stale { current: 0, .. })
        ));
        let second = catalog
            .publish(region.allocate(8).expect("room"), 8)
            .expect("published");
        assert_eq!(
            (second.id, second.generation),
            (first.id, first.generation + 1)
        );
        assert!(matches!(
            catalog.drop_tensor(first),
            Err(Error::Stale { current: 2, .. })
        ));
        assert!(catalog.whole(second).is_ok());
    }
}

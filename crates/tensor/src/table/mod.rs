//! The tensors of a shard, with their generations and versions.
use crate::names::Dtype;

/// Names a tensor of a server until that is dropped or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Its id.
    pub id: u32,
    /// Which tensor the id means; 1 or more.
    pub generation: u32,
}

/// What a tensor's memory holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Of its elements.
    pub dtype: Dtype,
    /// Rows first.
    pub shape: Vec<u64>,
}

impl Description {
    /// Rows: the first number of the shape.
    pub fn rows(&self) -> u64 {
        self.shape.first().copied().unwrap_or(0)
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> u64 {
        let items: u64 = self.shape.iter().skip(1).product();
        items * u64::from(self.dtype.item_bytes)
    }
}

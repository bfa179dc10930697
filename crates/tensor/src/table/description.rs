//! Keys and descriptions of tensors.
use crate::dtype::Dtype;
use crate::error::Error;
use crate::limit::{DESCRIPTION_TEXT_BYTES_MAX, DIMENSIONS_MAX};

/// Identifies a tensor of a server until it is dropped or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Its id.
    pub id: u32,
    /// The generation of the id; 1 or more.
    pub generation: u32,
}

/// Dtype and shape of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The type of its elements.
    pub dtype: Dtype,
    /// Rows first.
    pub shape: Vec<u64>,
}

impl Description {
    /// Number of rows: the first dimension.
    pub fn rows(&self) -> u64 {
        self.shape.first().copied().unwrap_or(0)
    }

    /// Bytes of a row.
    ///
    /// # Panics
    ///
    /// If [`Description::check`] refuses it.
    pub fn row_bytes(&self) -> u64 {
        self.sizes().expect("checked before").0
    }

    /// Check that it can be published, and return its size in bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Config`].
    pub fn check(&self) -> Result<u64, Error> {
        let wrong = |setting, value, advice| {
            Err(Error::Config {
                setting,
                value,
                advice,
            })
        };
        if self.dtype.text.len() > DESCRIPTION_TEXT_BYTES_MAX {
            let length = self.dtype.text.len() as u64;
            return wrong(
                "the text of a dtype",
                length,
                "it must have at most 1024 bytes",
            );
        }
        let dimensions = self.shape.len();
        if dimensions == 0 || dimensions > DIMENSIONS_MAX {
            return wrong(
                "the number of dimensions",
                dimensions as u64,
                "use 1 to 64, of which the first counts rows",
            );
        }
        match self.sizes() {
            Some((0, _)) => wrong("the size of a row", 0, "a row must have at least one byte"),
            Some((_, bytes)) if isize::try_from(bytes).is_ok() => Ok(bytes),
            _ => wrong(
                "rows",
                self.rows(),
                "no memory can hold so many rows of this shape and dtype",
            ),
        }
    }

    /// Bytes of a row and of all rows; `None` on overflow.
    fn sizes(&self) -> Option<(u64, u64)> {
        let item_bytes = u64::from(self.dtype.item_bytes);
        let mut each = self.shape.iter().skip(1);
        let row_bytes = each.try_fold(item_bytes, |bytes, &size| bytes.checked_mul(size))?;
        Some((row_bytes, row_bytes.checked_mul(self.rows())?))
    }
}

//! Pulls and pushes as Python lists them.
use forebay_memory::Lease;
use forebay_tensor::stream::{Submission, Work};
use forebay_tensor::{Operation, Pull, Push, Rows, Words};
use pyo3::exceptions::{PyBufferError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::handle::TensorHandle;
use crate::error::{Error, Result, config, out_of_range};
use crate::memory::block_under;
use crate::sys::exports::Exports;
use crate::sys::kept::KeptExports;
use crate::sys::loan::Want;

type Any<'py> = Bound<'py, PyAny>;

/// Exports of one operation: memory, row numbers, places.
const EXPORTS: usize = 3;

/// What was asked for, with the exports that it is on.
pub(super) struct Request {
    pub(super) works: Vec<Work>,
    /// The blocks of arenas that pulls go to, where they were asked for.
    blocks: Option<Vec<Option<Lease>>>,
    exports: Exports,
}

impl Request {
    /// Read lists of pulls and pushes; `further` is how many exports there will be besides.
    pub(super) fn new(
        pulls: Option<&Any<'_>>,
        pushes: Option<&Any<'_>>,
        further: usize,
    ) -> Result<Self> {
        Self::with_blocks(pulls, pushes, further, false)
    }

    /// The same, with the blocks that pulls go to if `blocks`.
    pub(super) fn with_blocks(
        pulls: Option<&Any<'_>>,
        pushes: Option<&Any<'_>>,
        further: usize,
        blocks: bool,
    ) -> Result<Self> {
        let length = |items: Option<&Any<'_>>| items.map_or(Ok(0), PyAnyMethods::len);
        let count = length(pulls)? + length(pushes)?;
        if u32::try_from(count).is_err() {
            return Err(config(format!(
                "{count} pulls and pushes at once are too many"
            )));
        }
        let mut request = Self {
            works: Vec::with_capacity(count),
            blocks: blocks.then(|| Vec::with_capacity(count)),
            exports: Exports::with_room(count * EXPORTS + further),
        };
        request.read(count, pulls, pushes)?;
        Ok(request)
    }

    fn read(
        &mut self,
        count: usize,
        pulls: Option<&Any<'_>>,
        pushes: Option<&Any<'_>>,
    ) -> Result<()> {
        for (items, read) in [
            (pulls, Self::pull as fn(&mut Self, &Bound<'_, PyTuple>) -> _),
            (pushes, Self::push),
        ] {
            let Some(items) = items else { continue };
            for item in items.try_iter()?.take(count - self.works.len()) {
                read(self, item?.cast::<PyTuple>()?)?;
            }
        }
        Ok(())
    }

    /// The operations, and the exports that they are on.
    pub(super) fn parts(&self) -> (&[Work], &Exports) {
        (&self.works, &self.exports)
    }

    pub(super) fn exports(&mut self) -> &mut Exports {
        &mut self.exports
    }

    /// The operations, and what keeps their memory.
    pub(super) fn split(self) -> (Vec<Work>, KeptExports) {
        (self.works, KeptExports::new(self.exports))
    }

    /// The same with the blocks that pulls go to.
    pub(super) fn wanted(self) -> (Vec<Submission>, KeptExports) {
        let blocks = self.blocks.unwrap_or_default().into_iter();
        let blocks = blocks.chain(std::iter::repeat(None));
        let works = self.works.into_iter().zip(blocks);
        let wanted = works.map(|(work, block)| Submission { work, block });
        (wanted.collect(), KeptExports::new(self.exports))
    }

    /// `(handle, first | indices, count | None, out[, places])`
    fn pull(&mut self, item: &Bound<'_, PyTuple>) -> Result<()> {
        let fields = item.len();
        if !(4..=5).contains(&fields) {
            return Err(misshapen("a pull", fields));
        }
        let handle = item.get_item(0)?;
        let handle = handle.cast::<TensorHandle>()?;
        let (first, count) = (item.get_item(1)?, item.get_item(2)?);
        let places = if fields > 4 {
            Some(item.get_item(4)?)
        } else {
            None
        };
        let places = self.places(places.as_ref())?;
        let out = item.get_item(3)?;
        let pull = pull_of(&mut self.exports, handle.get(), (&first, &count), &out)?;
        if let Some(blocks) = &mut self.blocks {
            let is_slice = !count.is_none() && places.is_none(); // others go over the stream
            let under = if is_slice { block_under(&out) } else { None };
            blocks.push(under.and_then(|buffer| buffer.get().lease()));
        }
        self.works.push(Work::Pull(Pull { places, ..pull }));
        Ok(())
    }

    /// `(handle, first | indices, count | None, values, add[, places])`
    fn push(&mut self, item: &Bound<'_, PyTuple>) -> Result<()> {
        let fields = item.len();
        if !(5..=6).contains(&fields) {
            return Err(misshapen("a push", fields));
        }
        let handle = item.get_item(0)?;
        let handle = handle.cast::<TensorHandle>()?.get();
        let rows = self.rows(&item.get_item(1)?, &item.get_item(2)?)?;
        let values = self.memory(&item.get_item(3)?, Want::Bytes)?;
        let operation = operation_of(item.get_item(4)?.is_truthy()?);
        let places = if fields > 5 {
            Some(item.get_item(5)?)
        } else {
            None
        };
        let places = self.places(places.as_ref())?;
        self.works.push(Work::Push(Push {
            tensor: handle.key,
            row_bytes: handle.row_bytes,
            rows_total: handle.rows,
            rows,
            values,
            places,
            operation,
        }));
        Ok(())
    }

    fn rows(&mut self, first: &Any<'_>, count: &Any<'_>) -> Result<Rows> {
        rows_of(&mut self.exports, first, count)
    }

    fn memory(&mut self, object: &Any<'_>, want: Want) -> Result<forebay_tensor::Span> {
        memory_of(&mut self.exports, object, want)
    }

    fn places(&mut self, places: Option<&Any<'_>>) -> Result<Option<Words>> {
        let Some(places) = places.filter(|places| !places.is_none()) else {
            return Ok(None);
        };
        words_of(&mut self.exports, places, "places").map(Some)
    }
}

/// A pull into `out` as it is; its exports, at most two, are taken.
pub(super) fn pull_of(
    exports: &mut Exports,
    handle: &TensorHandle,
    (first, count): (&Any<'_>, &Any<'_>),
    out: &Any<'_>,
) -> Result<Pull> {
    Ok(Pull {
        tensor: handle.key,
        row_bytes: handle.row_bytes,
        rows_total: handle.rows,
        rows: rows_of(exports, first, count)?,
        out: memory_of(exports, out, Want::WritableBytes)?,
        places: None,
    })
}

/// Bytes that are copied without letting the GIL go: about 20 us, as long as getting it back may take.
pub(super) const KEPT_BYTES_MAX: u64 = 256 << 10;

/// What they move.
pub(super) fn bytes_of(works: &[Work]) -> u64 {
    let bytes = |work: &Work| match work {
        Work::Pull(pull) => pull.rows.count().saturating_mul(pull.row_bytes),
        Work::Push(push) => push.rows.count().saturating_mul(push.row_bytes),
    };
    works.iter().map(bytes).fold(0, u64::saturating_add)
}

pub(super) fn operation_of(add: bool) -> Operation {
    if add { Operation::Add } else { Operation::Set }
}

/// The first row and how many, or row numbers.
pub(super) fn rows_of(exports: &mut Exports, first: &Any<'_>, count: &Any<'_>) -> Result<Rows> {
    if count.is_none() {
        return words_of(exports, first, "rows").map(Rows::Indices);
    }
    Ok(Rows::Slice {
        first: number_of(first, "the first row")?,
        count: number_of(count, "the number of rows")?,
    })
}

fn number_of(value: &Any<'_>, what: &str) -> Result<u64> {
    match value.extract::<u64>() {
        Err(refused) if refused.is_instance_of::<PyOverflowError>(value.py()) => {
            Err(out_of_range(format!("{what} is {value}; give 0 or more")))
        }
        number => Ok(number?),
    }
}

fn words_of(exports: &mut Exports, object: &Any<'_>, what: &str) -> Result<Words> {
    match exports.take_words(object) {
        Ok(Some(words)) => Ok(words),
        Ok(None) => Err(out_of_range(format!(
            "{what}: give a C-contiguous row of int64 or uint64, as numpy.asarray(..., dtype=numpy.int64) makes it"
        ))),
        Err(refused) => Err(unfit(object, refused, what)),
    }
}

/// Memory for rows.
pub(super) fn memory_of(
    exports: &mut Exports,
    object: &Any<'_>,
    want: Want,
) -> Result<forebay_tensor::Span> {
    let what = if want == Want::Bytes { "values" } else { "out" };
    match exports.take(object, want) {
        Ok(span) => Ok(span),
        Err(refused) => Err(unfit(object, refused, what)),
    }
}

/// `ConfigError` for memory that is not what is needed; what has no memory at all stays a `TypeError`.
fn unfit(object: &Any<'_>, refused: PyErr, what: &str) -> Error {
    let py = object.py();
    if !refused.is_instance_of::<PyBufferError>(py) && !refused.is_instance_of::<PyValueError>(py) {
        return refused.into();
    }
    let wanted = if what == "out" {
        "a writable C-contiguous buffer"
    } else {
        "a C-contiguous buffer"
    };
    config(format!(
        "{what} cannot be used ({}); give {wanted}",
        refused.value(py)
    ))
}

fn misshapen(what: &str, fields: usize) -> Error {
    PyTypeError::new_err(format!("{what} has {fields} fields; see TensorLink")).into()
}

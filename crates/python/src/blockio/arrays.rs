//! Python arrays as a loan takes them: those that fit as they are, others through `forebay.blockio.files.arrays`.
use forebay_blockio::Operation;
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::error::{Result, config};
use crate::sys::loan::{Loan, Role, Want};

/// What numpy calls the fields of an operation, see `forebay.blockio.OPERATION`.
const OPERATION_FORMAT: &str = "T{Q:offset:Q:buffer_offset:I:length:H:file:B:kind:B:flags:}";

/// What an array of items holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Items {
    Offsets,
    Lengths,
    Operations,
}

impl Items {
    /// The function of `forebay.blockio.files.arrays` that makes one of anything.
    fn name(self) -> &'static str {
        match self {
            Self::Offsets => "offsets",
            Self::Lengths => "lengths",
            Self::Operations => "operations",
        }
    }

    fn role(self) -> Role {
        match self {
            Self::Offsets | Self::Operations => Role::Items,
            Self::Lengths => Role::Lengths,
        }
    }

    /// Whether the values of the loan are of this kind, and where they should be.
    fn fits(self, loan: &Loan) -> bool {
        let role = self.role();
        let format = loan.format(role);
        match self {
            Self::Offsets => {
                is_one_of(format, b"QLql")
                    && loan.is_row_of::<u64>(role)
                    && loan.lent::<u64>(role).is_some()
            }
            Self::Lengths => {
                is_one_of(format, b"ILil")
                    && loan.is_row_of::<u32>(role)
                    && loan.lent::<u32>(role).is_some()
            }
            Self::Operations => {
                let bytes = matches!(format, b"B" | b"b" | b"c") && loan.is_row_of::<u8>(role);
                let whole = is_operation(format) && loan.is_row_of::<Operation>(role);
                (bytes || whole) && loan.lent::<Operation>(role).is_some()
            }
        }
    }
}

/// A single native or little-endian code of `struct`. `L` is 4 or 8 bytes; the caller looks at the size.
fn is_one_of(format: &[u8], codes: &[u8]) -> bool {
    match format {
        [code] | [b'@' | b'=' | b'<', code] => codes.contains(code),
        _ => false,
    }
}

/// Whether a format is that of `OPERATION`; `L` and `Q` are the same to numpy here.
fn is_operation(format: &[u8]) -> bool {
    let written = format.iter().filter(|code| !b"@=<".contains(code));
    let known = OPERATION_FORMAT.bytes();
    written
        .map(|&code| if code == b'L' { b'Q' } else { code })
        .eq(known)
}

/// Have the loan hold `object` as items, as it is where it fits.
pub(super) fn take_items(loan: &mut Loan, items: Items, object: &Bound<'_, PyAny>) -> Result<()> {
    let py = object.py();
    if loan.take(items.role(), object, Want::Values).is_ok() {
        if items.fits(loan) {
            return Ok(());
        }
        loan.give_up(items.role(), py);
    }
    let made = py
        .import("forebay.blockio.files.arrays")?
        .call_method1(items.name(), (object,))?;
    loan.take(items.role(), &made, Want::Values)?;
    if items.fits(loan) {
        return Ok(());
    }
    let name = items.name();
    Err(config(format!(
        "{name} cannot be used as they are; give a C-contiguous array"
    )))
}

/// Have the loan hold the batch's buffer.
pub(super) fn take_memory(
    loan: &mut Loan,
    object: &Bound<'_, PyAny>,
    written: Option<bool>,
) -> Result<()> {
    let want = match written {
        Some(true) | None => Want::WritableBytes,
        Some(false) => Want::Bytes,
    };
    let mut taken = loan.take(Role::Memory, object, want);
    if taken.is_err() && written.is_none() {
        taken = loan.take(Role::Memory, object, Want::Bytes);
    }
    let wanted = match written {
        Some(true) => "give a writable C-contiguous buffer to read into",
        _ => "give a C-contiguous buffer",
    };
    fitting(object, taken, wanted)
}

/// Have the loan hold where the results go; return the array: the caller's, or a new one.
pub(super) fn take_results<'py>(
    py: Python<'py>,
    loan: &mut Loan,
    given: Option<&Bound<'py, PyAny>>,
    count: usize,
) -> Result<Bound<'py, PyAny>> {
    let array = match given {
        Some(array) => array.clone(),
        None => new_results(py, count)?,
    };
    let taken = loan.take(Role::Results, &array, Want::WritableValues);
    fitting(&array, taken, "give a writable int64 array")?;
    let format = loan.format(Role::Results);
    let room = loan.results().map(|results| results.count());
    let fits = is_one_of(format, b"ql") && loan.is_row_of::<i64>(Role::Results);
    if fits && room == Some(count) {
        return Ok(array);
    }
    let format = String::from_utf8_lossy(format).into_owned();
    let bytes = loan.bytes(Role::Results);
    Err(config(format!(
        "results has {bytes} bytes of format {format:?} and {} dimensions; give a C-contiguous int64 array of {count} numbers",
        loan.dimensions(Role::Results)
    )))
}

fn new_results(py: Python<'_>, count: usize) -> PyResult<Bound<'_, PyAny>> {
    static NEW: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let new = NEW.get_or_try_init(py, || {
        py.import("forebay.blockio.files.arrays")?
            .getattr("new_results")
            .map(Bound::unbind)
    })?;
    new.bind(py).call1((count,))
}

/// `ConfigError` for memory that is not what is needed; what has no memory at all stays a `TypeError`.
fn fitting(object: &Bound<'_, PyAny>, taken: PyResult<()>, wanted: &str) -> Result<()> {
    let py = object.py();
    let Err(refused) = taken else { return Ok(()) };
    if !refused.is_instance_of::<PyBufferError>(py) && !refused.is_instance_of::<PyValueError>(py) {
        return Err(refused.into());
    }
    let Ok(kind) = object.get_type().name() else {
        return Err(PyTypeError::new_err("this object cannot be used").into());
    };
    let why = refused.value(py);
    Err(config(format!(
        "this {kind} cannot be used ({why}); {wanted}"
    )))
}

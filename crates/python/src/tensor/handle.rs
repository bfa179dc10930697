//! `forebay._core.TensorHandle`: what a name means at one server.
use forebay_tensor::stream::Batch;
use forebay_tensor::{Description, Dtype, Key, Meaning, Number, Unknown};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

/// A tensor of one run of a server, until it is dropped or replaced.
#[pyclass(frozen, module = "forebay._core")]
pub(crate) struct TensorHandle {
    pub(super) key: Key,
    pub(super) rows: u64,
    pub(super) row_bytes: u64,
    description: Description,
}

/// A dtype as Python gives it: its text, numpy's letter for its kind, and its size.
pub(super) fn dtype_of(text: String, kind: &str, item_bytes: u32) -> Dtype {
    let number = match kind {
        "i" => Number::Signed,
        "u" => Number::Unsigned,
        "f" => Number::Float,
        "c" => Number::Complex,
        _ => Number::Opaque,
    };
    Dtype {
        number,
        item_bytes,
        text,
    }
}

impl TensorHandle {
    fn made(key: Key, description: Description) -> Self {
        Self {
            key,
            rows: description.rows(),
            row_bytes: description.row_bytes(),
            description,
        }
    }
}

#[pymethods]
impl TensorHandle {
    #[getter]
    fn id(&self) -> u32 {
        self.key.id
    }

    #[getter]
    fn generation(&self) -> u32 {
        self.key.generation
    }

    #[getter]
    fn dtype(&self) -> &str {
        &self.description.dtype.text
    }

    #[getter]
    fn item_bytes(&self) -> u32 {
        self.description.dtype.item_bytes
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.description.shape)
    }

    #[getter]
    fn rows(&self) -> u64 {
        self.rows
    }

    #[getter]
    fn row_bytes(&self) -> u64 {
        self.row_bytes
    }
}

/// What names mean: a handle each, or a list of the nearest names.
pub(super) fn meanings<'py, M>(
    py: Python<'py>,
    batch: &Batch<M>,
) -> PyResult<Option<Bound<'py, PyList>>> {
    let Some(meanings) = batch.take_meanings() else {
        return Ok(None);
    };
    let list = PyList::empty(py);
    for meaning in meanings {
        let object = match meaning {
            Ok(Meaning {
                key, description, ..
            }) => TensorHandle::made(key, description).into_py_any(py)?,
            Err(Unknown { nearest }) => nearest.into_py_any(py)?,
        };
        list.append(object)?;
    }
    Ok(Some(list))
}

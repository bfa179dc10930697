//! The store's tables, read inside of the server's process.

use std::path::PathBuf;

use forebay_executor::store::{DatabaseReader, Value};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::error::Result;

/// A read-only connection to the database of a state directory.
#[pyclass(name = "StoreReader", module = "forebay._core", frozen)]
pub struct PyStoreReader(DatabaseReader);

#[pymethods]
impl PyStoreReader {
    #[new]
    #[allow(clippy::needless_pass_by_value)] // as PyO3 extracts it
    fn new(py: Python<'_>, directory: PathBuf) -> Result<Self> {
        let reader = py.detach(|| DatabaseReader::open(&directory));
        Ok(reader.map(Self)?)
    }

    /// The rows of a query, at most `rows_max` of them, as tuples.
    #[allow(clippy::needless_pass_by_value)] // as PyO3 extracts it
    fn query<'py>(
        &self,
        py: Python<'py>,
        sql: &str,
        values: Vec<Bound<'py, PyAny>>,
        rows_max: usize,
    ) -> Result<Bound<'py, PyList>> {
        let values: Vec<Value> = values.iter().map(parameter).collect::<PyResult<_>>()?;
        let rows = py.detach(|| self.0.query(sql, &values, rows_max));
        let rows = rows?.into_iter().map(|row| {
            let columns = row.into_iter().map(|value| column(py, value));
            PyTuple::new(py, columns.collect::<PyResult<Vec<_>>>()?)
        });
        Ok(PyList::new(py, rows.collect::<PyResult<Vec<_>>>()?)?)
    }
}

fn parameter(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if value.is_none() {
        Ok(Value::Null)
    } else if let Ok(number) = value.cast::<PyInt>() {
        Ok(Value::Integer(number.extract()?))
    } else if let Ok(number) = value.cast::<PyFloat>() {
        Ok(Value::Real(number.extract()?))
    } else if let Ok(text) = value.cast::<PyString>() {
        Ok(Value::Text(text.extract()?))
    } else if let Ok(bytes) = value.cast::<PyBytes>() {
        Ok(Value::Blob(bytes.as_bytes().into()))
    } else {
        let kind = value.get_type().name()?;
        Err(PyTypeError::new_err(format!(
            "a value of a query is None, int, float, str or bytes, not {kind}"
        )))
    }
}

fn column(py: Python<'_>, value: Value) -> PyResult<Bound<'_, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Integer(number) => number.into_pyobject(py)?.into_any(),
        Value::Real(number) => number.into_pyobject(py)?.into_any(),
        Value::Text(text) => text.into_pyobject(py)?.into_any(),
        Value::Blob(bytes) => PyBytes::new(py, &bytes).into_any(),
    })
}

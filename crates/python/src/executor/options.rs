//! Options of a submission, from a dict.

use std::sync::Arc;

use forebay_executor::error::Error;
use forebay_executor::message::{Writer, options};
use forebay_executor::request::Options;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString};

use crate::error::{config, executor};

/// The options that a dict asks for, by the names that clients use. A delay counts from `now_ms`.
pub fn options_of(dict: &Bound<'_, PyDict>, now_ms: u64) -> PyResult<Arc<Options>> {
    let mut writer = Writer::default();
    writer.map(dict.len());
    for (name, value) in dict {
        writer.text(name.cast::<PyString>()?.to_str()?);
        write(&mut writer, &value)?;
    }
    let asked = options(&writer.into_bytes(), &Arc::default(), now_ms);
    Ok(asked
        .map_err(|refusal| executor(Error::from(refusal)))?
        .options)
}

fn write(writer: &mut Writer, value: &Bound<'_, PyAny>) -> PyResult<()> {
    if value.is_none() {
        writer.nil();
    } else if let Ok(value) = value.cast::<PyBool>() {
        writer.boolean(value.is_true());
    } else if value.is_instance_of::<PyInt>() {
        writer.integer(value.extract()?);
    } else if value.is_instance_of::<PyFloat>() {
        writer.float(value.extract()?);
    } else if let Ok(text) = value.cast::<PyString>() {
        writer.text(text.to_str()?);
    } else if let Ok(list) = value.cast::<PyList>() {
        writer.array(list.len());
        for value in list {
            write(writer, &value)?;
        }
    } else {
        let kind = value.get_type().name()?;
        return Err(config(format!(
            "an option cannot be a {kind}; give a number, a text or a list"
        )));
    }
    Ok(())
}

//! Fields of the core's structs, in dicts under their names.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Put fields of a struct into a dict.
macro_rules! set_items {
    ($dict:expr, $source:expr; $($field:ident)+) => {
        $($dict.set_item(stringify!($field), &$source.$field)?;)+
    };
}

/// Set the field of a name to what Python gave for it; false where no field has that name.
macro_rules! set_field {
    ($target:expr, $name:expr, $value:expr; $($field:ident)+) => {
        match $name {
            $(stringify!($field) => {
                $target.$field = $value.extract()?;
                true
            })+
            _ => false,
        }
    };
}

/// A struct from a dict with an item for each field, and no other.
macro_rules! struct_of {
    ($dict:expr, $struct:ident; $($field:ident)+) => {{
        $crate::fields::check_names(&$dict, &[$(stringify!($field)),+])?;
        $struct {
            $($field: $dict.as_any().get_item(stringify!($field))?.extract()?,)+
        }
    }};
}

pub(crate) use {set_field, set_items, struct_of};

/// `TypeError` for an item whose name is that of no field.
pub(crate) fn check_names(dict: &Bound<'_, PyDict>, known: &[&str]) -> PyResult<()> {
    for name in dict.keys() {
        let name = name.extract::<String>()?;
        if !known.contains(&name.as_str()) {
            let known = known.join(", ");
            return Err(PyTypeError::new_err(format!(
                "unknown {name:?}; use {known}"
            )));
        }
    }
    Ok(())
}

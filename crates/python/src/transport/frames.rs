//! Messages on their way between Python and the core.

use forebay_transport::messages::{Aside, Frames, Message, Messages};
use forebay_transport::{Payload, limit};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList, PyTuple};

use super::allocate::given_back;
use crate::sys::frame::Frame;
use crate::sys::lent::Lent;

/// One frame to send. `bytes` need no export: nobody can change them.
pub enum Item<'py> {
    Bytes(Bound<'py, PyBytes>),
    Buffer(Option<Lent>),
    /// A copy in shared memory.
    Aside(Option<Aside>),
}

impl<'py> Item<'py> {
    fn new(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        match object.cast_exact::<PyBytes>() {
            Ok(bytes) => Ok(Self::Bytes(bytes.clone())),
            Err(_) => Ok(Self::Buffer(Some(Lent::new(object)?))),
        }
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes.as_bytes(),
            Self::Buffer(Some(lent)) => lent.as_ref(),
            Self::Aside(Some(aside)) => aside.as_ref(),
            Self::Buffer(None) | Self::Aside(None) => &[],
        }
    }
}

/// The frames of one message to send.
pub enum PyFrames<'py> {
    One(Item<'py>),
    Many(Vec<Item<'py>>),
}

impl<'py> PyFrames<'py> {
    /// A buffer is a message of one frame, a list or tuple one of several.
    pub fn new(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(list) = object.cast::<PyList>() {
            return Self::several(list.iter());
        }
        if let Ok(tuple) = object.cast::<PyTuple>() {
            return Self::several(tuple.iter());
        }
        Item::new(object).map(Self::One)
    }

    fn several(items: impl ExactSizeIterator<Item = Bound<'py, PyAny>>) -> PyResult<Self> {
        let items: PyResult<Vec<_>> = items.map(|item| Item::new(&item)).collect();
        items.map(Self::Many)
    }

    /// Copy very long frames to where the peer sees them, without the GIL; where nothing is shared they stay as they are.
    pub fn put_aside(&mut self, py: Python<'_>, core: &Messages) {
        let items = match self {
            Self::One(item) => std::slice::from_mut(item),
            Self::Many(items) => items,
        };
        for item in items {
            let bytes = item.as_slice();
            if bytes.len() >= limit::ASIDE_BYTES_MIN
                && let Some(aside) = py.detach(|| core.put_aside(bytes))
            {
                *item = Item::Aside(Some(aside));
            }
        }
    }

    fn item(&mut self, index: usize) -> &mut Item<'py> {
        match self {
            Self::One(item) => item,
            Self::Many(items) => &mut items[index],
        }
    }
}

impl Frames for PyFrames<'_> {
    fn count(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(items) => items.len(),
        }
    }

    fn get(&self, index: usize) -> &[u8] {
        match self {
            Self::One(item) => item.as_slice(),
            Self::Many(items) => items[index].as_slice(),
        }
    }

    fn lend(&mut self, index: usize) -> Payload {
        match self.item(index) {
            Item::Bytes(bytes) => Box::new(PyBackedBytes::from(bytes.clone())),
            Item::Aside(aside) => match aside.take() {
                Some(aside) => Box::new(aside),
                None => Box::new([]),
            },
            Item::Buffer(lent) => match lent.take() {
                Some(lent) => Box::new(lent),
                None => Box::new([]),
            },
        }
    }
}

/// A received message: small frames as `bytes`, long ones as they were received.
pub fn message_to_python(py: Python<'_>, message: Message) -> PyResult<Bound<'_, PyList>> {
    let frames: PyResult<Vec<_>> = message
        .into_iter()
        .map(|buffer| {
            if buffer.len() < limit::DIRECT_BYTES_MIN {
                return Ok(PyBytes::new(py, buffer.as_slice()).into_any());
            }
            match given_back(buffer) {
                Ok(object) => Ok(object.into_bound(py)),
                Err(buffer) => Ok(Bound::new(py, Frame::new(buffer))?.into_any()),
            }
        })
        .collect();
    PyList::new(py, frames?)
}

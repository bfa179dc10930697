//! Messages on their way between Python and the core.

use forebay_memory::Lease;
use forebay_transport::link::Payload;
use forebay_transport::messages::{Frames, Message, Messages, Staged};
use forebay_transport::{Buffer as Received, limit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList, PyMemoryView, PyTuple};

use super::allocate::given_back;
use crate::memory::Buffer;
use crate::sys::frame::Frame;
use crate::sys::lent::Lent;

/// Views of views that are followed to the arena behind them.
const VIEWS_MAX: usize = 8;

/// One frame to send. `bytes` need no export: they are immutable.
pub enum Item<'py> {
    Bytes(Bound<'py, PyBytes>),
    Buffer(Option<Lent>),
    /// A copy in shared memory.
    Staged(Option<Staged>),
    /// In a block of an arena.
    Block(Option<Lent>, Lease),
}

impl<'py> Item<'py> {
    fn new(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        match object.cast_exact::<PyBytes>() {
            Ok(bytes) => Ok(Self::Bytes(bytes.clone())),
            Err(_) => Ok(Self::Buffer(Some(Lent::new(object)?))),
        }
    }

    fn may_be_shared(&self) -> bool {
        matches!(self, Self::Buffer(Some(lent)) if lent.as_ref().len() >= limit::SHARE_BYTES_MIN)
    }

    /// Note the arena's block in which the frame lies, where its memory is from one.
    fn find_block(&mut self, object: &Bound<'py, PyAny>) -> PyResult<()> {
        if self.may_be_shared()
            && let Self::Buffer(lent) = self
            && let Some(block) = block_of(object.clone())?
        {
            *self = Self::Block(lent.take(), block);
        }
        Ok(())
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes.as_bytes(),
            Self::Buffer(Some(lent)) | Self::Block(Some(lent), _) => lent.as_ref(),
            Self::Staged(Some(staged)) => staged.as_ref(),
            Self::Buffer(None) | Self::Block(None, _) | Self::Staged(None) => &[],
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

    /// The same for a connection that shares memory: what lies in an arena is sent from there.
    pub fn shared(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let mut frames = Self::new(object)?;
        match &mut frames {
            Self::One(item) => item.find_block(object)?,
            Self::Many(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    if item.may_be_shared() {
                        item.find_block(&object.get_item(index)?)?;
                    }
                }
            }
        }
        Ok(frames)
    }

    /// Copy very long frames to where the peer sees them, without the GIL; where nothing is shared they stay as they are.
    pub fn stage(&mut self, py: Python<'_>, core: &Messages) {
        let items = match self {
            Self::One(item) => std::slice::from_mut(item),
            Self::Many(items) => items,
        };
        for item in items {
            let bytes = item.as_slice();
            if bytes.len() >= limit::STAGE_BYTES_MIN
                && !matches!(item, Item::Block(..))
                && let Some(staged) = py.detach(|| core.stage(bytes))
            {
                *item = Item::Staged(Some(staged));
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

    fn block(&self, index: usize) -> Option<&Lease> {
        let item = match self {
            Self::One(item) => item,
            Self::Many(items) => &items[index],
        };
        match item {
            Item::Block(_, lease) => Some(lease),
            _ => None,
        }
    }

    fn lend(&mut self, index: usize) -> Payload {
        match self.item(index) {
            Item::Bytes(bytes) => Box::new(PyBackedBytes::from(bytes.clone())),
            Item::Staged(staged) => match staged.take() {
                Some(staged) => Box::new(staged),
                None => Box::new([]),
            },
            Item::Buffer(lent) | Item::Block(lent, _) => match lent.take() {
                Some(lent) => Box::new(lent),
                None => Box::new([]),
            },
        }
    }
}

/// The block of the arena that an object's memory is from: a `Buffer`, or memoryviews and arrays made of one.
fn block_of(mut object: Bound<'_, PyAny>) -> PyResult<Option<Lease>> {
    for _ in 0..VIEWS_MAX {
        if let Ok(buffer) = object.cast::<Buffer>() {
            return Ok(buffer.get().lease());
        }
        let name = if object.is_exact_instance_of::<PyMemoryView>() {
            intern!(object.py(), "obj")
        } else {
            intern!(object.py(), "base")
        };
        match object.getattr_opt(name)? {
            Some(base) if !base.is_none() => object = base,
            _ => break,
        }
    }
    Ok(None)
}

/// A received message: small frames as `bytes`, long ones as they were received.
pub fn message_to_python(py: Python<'_>, mut message: Message) -> PyResult<Bound<'_, PyList>> {
    if message.len() == 1
        && let Some(buffer) = message.pop()
    {
        return PyList::new(py, [frame_to_python(py, buffer)?]);
    }
    let frames: PyResult<Vec<_>> = message
        .into_iter()
        .map(|buffer| frame_to_python(py, buffer))
        .collect();
    PyList::new(py, frames?)
}

fn frame_to_python(py: Python<'_>, buffer: Received) -> PyResult<Bound<'_, PyAny>> {
    if buffer.len() < limit::DIRECT_BYTES_MIN {
        return Ok(PyBytes::new(py, buffer.as_slice()).into_any());
    }
    match given_back(buffer) {
        Ok(object) => Ok(object.into_bound(py)),
        Err(buffer) => Ok(Bound::new(py, Frame::new(buffer))?.into_any()),
    }
}

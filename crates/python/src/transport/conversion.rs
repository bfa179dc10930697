//! Calls, as Python sees them.

use std::time::{Duration, Instant};

use forebay_base::time::{deadline, left};
use forebay_transport::calls::{Call, Connection as Core, Outcome, Outgoing, Taker};
use forebay_transport::link::{Head, Payload};
use forebay_transport::wire::Codec;
use forebay_transport::{Buffer, limit};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList, PyTuple};

use super::lend::watch_forks;
use super::wait::{Stop, retry};
use crate::error::{Result, config, transport};
use crate::sys::frame::Frame;
use crate::sys::lent::Lent;

/// Longest timeout that is taken as one; above it there is no deadline.
const TIMEOUT_S_MAX: f64 = 4e9;

/// Buffers that a message is sent with.
pub type Segments<'py> = Option<Vec<Bound<'py, PyAny>>>;

/// How a call ended, for Python.
pub enum Ending<'py> {
    Object(Bound<'py, PyAny>),
    Raise(PyErr),
}

impl<'py> Ending<'py> {
    pub fn into_result(self) -> Result<Bound<'py, PyAny>> {
        match self {
            Ending::Object(object) => Ok(object),
            Ending::Raise(error) => Err(error.into()),
        }
    }

    pub fn into_object(self, py: Python<'py>) -> Bound<'py, PyAny> {
        match self {
            Ending::Object(object) => object,
            Ending::Raise(error) => error.into_value(py).into_bound(py).into_any(),
        }
    }
}

/// `bytes` for a reply of the expected codec without segments, else a tuple
/// `(raised, codec, head, segments)`, or the exception of the transport.
pub fn outcome_to_python<'py>(
    py: Python<'py>,
    core: &Core,
    expected: Codec,
    outcome: Outcome,
    timeout: Option<f64>,
) -> Result<Ending<'py>> {
    let (frame, raised) = match outcome.into_frame(core.peer()) {
        Ok(answer) => answer,
        Err(error) => return Ok(Ending::Raise(transport(&error, timeout).into())),
    };
    let codec = frame.header.codec;
    let head = head_to_python(py, frame.head)?;
    if !raised && codec == expected && frame.segments.is_empty() {
        return Ok(Ending::Object(head));
    }
    let segments = segments_to_python(py, frame.segments)?;
    let parts = (raised, codec as u8, head, segments).into_pyobject(py)?;
    Ok(Ending::Object(parts.into_any()))
}

/// `(id, codec, head, segments or None, remaining seconds or None, one_way, stream)`.
pub fn call_to_python(py: Python<'_>, call: Call) -> Result<Bound<'_, PyTuple>> {
    let remaining = left(call.deadline).map(|left| left.as_secs_f64());
    let head = head_to_python(py, call.head)?;
    let segments = if call.segments.is_empty() {
        None
    } else {
        Some(segments_to_python(py, call.segments)?)
    };
    let (codec, one_way, stream) = (call.codec as u8, call.one_way, call.stream);
    let parts = (call.id, codec, head, segments, remaining, one_way, stream);
    Ok(parts.into_pyobject(py)?)
}

/// Short heads are copied to `bytes`, which is cheaper to read; long ones are lent.
pub fn head_to_python(py: Python<'_>, head: Buffer) -> Result<Bound<'_, PyAny>> {
    if head.len() <= limit::COPY_BYTES_MAX {
        return Ok(PyBytes::new(py, head.as_slice()).into_any());
    }
    Ok(Bound::new(py, Frame::new(head))?.into_any())
}

pub fn segments_to_python(py: Python<'_>, segments: Vec<Buffer>) -> Result<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for segment in segments {
        if segment.is_shared() {
            watch_forks(py)?;
        }
        list.append(Bound::new(py, Frame::new(segment))?)?;
    }
    Ok(list)
}

pub fn to_head<'a>(head: &'a Bound<'_, PyBytes>) -> Head<'a> {
    let bytes = head.as_bytes();
    if bytes.len() <= limit::COPY_BYTES_MAX {
        return Head::Borrowed(bytes);
    }
    Head::Lent(Box::new(PyBackedBytes::from(head.clone())))
}

pub fn to_payloads(segments: Segments<'_>) -> Result<Vec<Payload>> {
    let Some(segments) = segments else {
        return Ok(Vec::new());
    };
    segments
        .iter()
        .map(|segment| Ok(Box::new(Lent::new(segment)?) as Payload))
        .collect()
}

pub fn to_codec(codec: u8) -> Codec {
    if codec == Codec::Pickle as u8 {
        Codec::Pickle
    } else {
        Codec::Msgpack
    }
}

pub fn to_duration(timeout: Option<f64>) -> Option<Duration> {
    let timeout = timeout.filter(|&timeout| timeout < TIMEOUT_S_MAX)?;
    Some(Duration::from_secs_f64(timeout.max(0.0)))
}

/// When a timeout that begins now is over; `None`: never.
pub fn to_deadline(timeout: Option<f64>) -> Option<Instant> {
    deadline(to_duration(timeout))
}

/// To whom the outcome of a call goes.
pub fn to_taker(queue: bool) -> Taker {
    if queue { Taker::Queue } else { Taker::Thread }
}

/// A call as Python starts it.
pub fn to_outgoing<'a>(
    codec: u8,
    head: &'a Bound<'_, PyBytes>,
    segments: Segments<'_>,
    timeout: Option<f64>,
    generation: u32,
) -> Result<Outgoing<'a>> {
    Ok(Outgoing {
        codec: to_codec(codec),
        one_way: false,
        remaining: to_duration(timeout),
        generation,
        head: to_head(head),
        segments: to_payloads(segments)?,
    })
}

/// Wait until the outbox is below its high-water mark.
pub fn wait_for_room(py: Python<'_>, core: &Core, deadline: Option<Instant>) -> Result<(), Stop> {
    if core.outbox_bytes() > limit::OUTBOX_BYTES_HIGH {
        return retry(py, || core.wait_for_room(deadline));
    }
    Ok(())
}

/// A length of time as Python gives it.
pub fn seconds(value: f64) -> Result<Duration> {
    let Ok(duration) = Duration::try_from_secs_f64(value) else {
        return Err(config(format!("invalid number of seconds: {value}")));
    };
    Ok(duration)
}

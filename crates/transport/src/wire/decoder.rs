//! Decoding frames from a byte stream, without a socket.
//!
//! The stream is preface, header, lengths, body, header, and so on. The frames do not depend on how
//! the stream is split. Lengths are checked before memory is allocated, each segment has its own
//! memory, and the driver may receive a long one straight into it.
//!
//! A peer that announces more than it sends costs little: unless it is trusted, a buffer above
//! `GROW_BYTES` grows as its bytes arrive.

use std::mem::MaybeUninit;

use crate::error::Violation;
use crate::limit::{DIRECT_BYTES_MIN, GROW_BYTES, Limits, WANTED_BYTES};
use crate::sys::buffer::{Buffer, HEAD_ALIGN, SEGMENT_ALIGN};
use crate::wire::frame::{HEADER_BYTES, Header, Incoming, Kind};
use crate::wire::preface::{PREFACE_BYTES, Preface};

/// What the decoder found.
#[derive(Debug)]
pub enum Event {
    Preface(Preface),
    Frame(Incoming),
    /// The caller is to allocate memory for the next frames of a message: see [`Decoder::provide`].
    Wanted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Preface,
    Header,
    Lengths,
    Memory,
    Body,
    Refused,
}

/// A frame of which the header is known.
#[derive(Debug)]
struct Partial {
    header: Header,
    head: Buffer,
    lengths: Vec<usize>,
    segments: Vec<Buffer>,
    /// Memory that was provided, for as many of them as were asked for.
    given: Vec<Option<Buffer>>,
    /// The sum of the head and of the lengths known so far.
    bytes: u64,
}

/// The state machine.
#[derive(Debug)]
pub struct Decoder {
    stage: Stage,
    frame_bytes_max: u64,
    segments_max: u16,
    trusted: bool,
    requests_memory: bool,
    offset: u64,
    copied: u64,
    /// Bytes before the frames of the last message if its first one was long, else 0.
    after_long: usize,
    fixed: [u8; PREFACE_BYTES],
    fixed_len: usize,
    partial: Option<Partial>,
    /// Memory that was provided and is not used.
    retired: Vec<Buffer>,
}

impl Decoder {
    /// A decoder at the start of a stream. From a peer that is not `trusted` buffers grow as
    /// bytes arrive.
    pub fn new(limits: &Limits, trusted: bool) -> Self {
        Self {
            stage: Stage::Preface,
            frame_bytes_max: limits.frame_bytes_max,
            segments_max: limits.segments_max,
            trusted,
            requests_memory: false,
            offset: 0,
            copied: 0,
            after_long: 0,
            fixed: [0; PREFACE_BYTES],
            fixed_len: 0,
            partial: None,
            retired: Vec::new(),
        }
    }

    /// From now on allocate memory for announced lengths at once.
    pub fn trust(&mut self) {
        self.trusted = true;
    }

    /// From now on refuse frames above this.
    pub fn limit_frames(&mut self, frame_bytes_max: u64) {
        self.frame_bytes_max = frame_bytes_max;
    }

    /// From now on let the caller allocate the memory of messages with long frames.
    pub fn request_memory(&mut self) {
        self.requests_memory = true;
    }

    /// The lengths of the next frames, for which memory is wanted; those of short ones are 0.
    pub fn wanted(&self) -> Option<Vec<usize>> {
        let partial = self
            .partial
            .as_ref()
            .filter(|_| self.stage == Stage::Memory)?;
        let wanted = |&bytes: &usize| if bytes >= DIRECT_BYTES_MIN { bytes } else { 0 };
        Some(partial.portion().iter().map(wanted).collect())
    }

    /// Whether memory is wanted before more can be read.
    pub fn awaits_memory(&self) -> bool {
        self.stage == Stage::Memory
    }

    /// Provide memory for the next frames: for each a buffer of the wanted size, or `None` for our own memory. Buffers that
    /// do not fit, or that are not wanted, are retired.
    pub fn provide(&mut self, buffers: Vec<Option<Buffer>>) {
        let Some(partial) = self
            .partial
            .as_mut()
            .filter(|_| self.stage == Stage::Memory)
        else {
            self.retire(buffers.into_iter().flatten());
            return;
        };
        let mut buffers = buffers.into_iter();
        let mut unfit = Vec::new();
        for bytes in partial.portion().to_vec() {
            let (given, other) = match buffers.next().flatten() {
                Some(buffer) if buffer.room() == bytes => (Some(buffer), None),
                other => (None, other),
            };
            partial.given.push(given);
            unfit.extend(other);
        }
        // Begun here, a long one is received straight into its memory; where there is none, it is found out later.
        let _ = partial.begin_next(self.trusted);
        self.stage = Stage::Body;
        self.retire(unfit.into_iter().chain(buffers.flatten()));
    }

    /// Leave provided memory to be dropped outside of any lock, since its owner may then call into another runtime.
    pub fn retire(&mut self, buffers: impl IntoIterator<Item = Buffer>) {
        let given = buffers.into_iter().filter(Buffer::is_given);
        self.retired.extend(given);
    }

    /// Provided memory that is not used. Drop it outside of any lock.
    pub fn take_retired(&mut self) -> Vec<Buffer> {
        std::mem::take(&mut self.retired)
    }

    /// Bytes consumed since the stream began.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of frames that were copied from the receive buffer rather than received straight into their own.
    pub fn copied(&self) -> u64 {
        self.copied
    }

    /// Whether the stream may end here without cutting a frame.
    pub fn at_boundary(&self) -> bool {
        matches!(self.stage, Stage::Preface | Stage::Header) && self.fixed_len == 0
    }

    /// Continue a stream whose preface another process has read.
    pub fn skip_preface(&mut self) {
        self.stage = Stage::Header;
    }

    /// Consume bytes up to the end of the next event; returns how many, and the event.
    ///
    /// Call again with the rest until it is empty.
    ///
    /// # Errors
    /// The violation; everything after it is refused too.
    pub fn feed(&mut self, input: &[u8]) -> Result<(usize, Option<Event>), Violation> {
        if let Some((count, frame)) = self.whole_message(input) {
            self.offset += count as u64;
            return Ok((count, Some(Event::Frame(frame))));
        }
        let mut rest = input;
        loop {
            let (stage, left) = (self.stage, rest.len());
            let outcome = match stage {
                Stage::Preface => self.feed_preface(&mut rest),
                Stage::Header => self.feed_header(&mut rest),
                Stage::Lengths => self.feed_lengths(&mut rest),
                Stage::Body => self.feed_body(&mut rest),
                Stage::Memory | Stage::Refused => Ok(None),
            };
            self.offset += (left - rest.len()) as u64;
            let event = outcome.inspect_err(|_| self.refuse())?;
            if stage == Stage::Refused {
                return Ok((input.len(), None));
            }
            let idle = rest.is_empty() && self.stage == stage;
            if event.is_some() || idle {
                return Ok((input.len() - rest.len(), event));
            }
        }
    }

    /// The common case: a complete message of short frames. Anything unusual or invalid is left to the stages.
    fn whole_message(&mut self, input: &[u8]) -> Option<(usize, Incoming)> {
        if self.stage != Stage::Header || self.fixed_len > 0 {
            return None;
        }
        let header = Header::decode(input.first_chunk()?).ok()?;
        let count = usize::from(header.segments);
        let usual = header.kind == Kind::Message && header.head_bytes == 0;
        if !usual || count == 0 || header.segments > self.segments_max {
            return None;
        }
        let (lengths, bodies) = input[HEADER_BYTES..].split_at_checked(count * size_of::<u64>())?;
        let lengths = lengths
            .as_chunks()
            .0
            .iter()
            .copied()
            .map(u64::from_le_bytes);
        if lengths
            .clone()
            .any(|length| length >= DIRECT_BYTES_MIN as u64)
        {
            return None;
        }
        let bytes: u64 = lengths.clone().sum();
        let mut bodies = bodies.get(..usize::try_from(bytes).ok()?)?;
        if bytes > self.frame_bytes_max {
            return None;
        }
        let mut segments = Vec::with_capacity(count);
        for length in lengths {
            let (body, rest) = bodies.split_at(usize::try_from(length).ok()?);
            let mut segment = Buffer::with_capacity(body.len(), HEAD_ALIGN)?;
            segment.append(body);
            segments.push(segment);
            bodies = rest;
        }
        self.copied += bytes;
        self.after_long = 0;
        let frame = Incoming {
            header,
            head: Buffer::empty(),
            segments,
        };
        let prefix = HEADER_BYTES + count * size_of::<u64>();
        Some((prefix + usize::try_from(bytes).ok()?, frame))
    }

    /// Whether the next bytes should be received by [`Self::receive_with`]: they belong to a long frame.
    pub fn wants_direct(&self) -> bool {
        self.stage == Stage::Body && self.partial.as_ref().is_some_and(Partial::is_long)
    }

    /// The most to receive for [`Self::feed`].
    ///
    /// After a long frame the next one is probably long too: then only what precedes it, so that all of it can be received
    /// straight into its own memory.
    pub fn receive_max(&self) -> usize {
        match self.stage {
            Stage::Header if self.after_long > 0 && self.fixed_len == 0 => self.after_long,
            _ => usize::MAX,
        }
    }

    /// Let `receive` write into the current buffer; returns the count, and the frame if complete.
    ///
    /// # Errors
    /// Those of `receive`, in the outer result; the inner one holds a violation.
    pub fn receive_with<E>(
        &mut self,
        receive: impl for<'a> FnOnce(&'a mut [MaybeUninit<u8>]) -> Result<&'a mut [u8], E>,
    ) -> Result<Result<(usize, Option<Event>), Violation>, E> {
        let Some(partial) = self.partial.as_mut() else {
            return Ok(Ok((0, None)));
        };
        let buffer = match partial.reserve(1) {
            Ok(buffer) => buffer,
            Err(violation) => {
                self.refuse();
                return Ok(Err(violation));
            }
        };
        let count = buffer.receive_with(receive)?;
        self.offset += count as u64;
        let outcome = self.feed_body(&mut &[][..]).inspect_err(|_| self.refuse());
        Ok(outcome.map(|event| (count, event)))
    }

    fn refuse(&mut self) {
        self.stage = Stage::Refused;
        if let Some(Partial {
            segments, given, ..
        }) = self.partial.take()
        {
            self.retire(segments.into_iter().chain(given.into_iter().flatten()));
        }
    }

    /// Collect `count` bytes into `fixed`; true when they are there.
    fn collect(&mut self, rest: &mut &[u8], count: usize) -> bool {
        let take = rest.len().min(count - self.fixed_len);
        self.fixed[self.fixed_len..self.fixed_len + take].copy_from_slice(&rest[..take]);
        *rest = &rest[take..];
        self.fixed_len += take;
        if self.fixed_len < count {
            return false;
        }
        self.fixed_len = 0;
        true
    }

    fn feed_preface(&mut self, rest: &mut &[u8]) -> Result<Option<Event>, Violation> {
        if !self.collect(rest, PREFACE_BYTES) {
            // The first bytes of another protocol may be fewer than a preface, and its sender waits for an answer.
            return Preface::begins_with(&self.fixed[..self.fixed_len]).map(|()| None);
        }
        let preface = Preface::decode(&self.fixed)?;
        self.stage = Stage::Header;
        Ok(Some(Event::Preface(preface)))
    }

    fn feed_header(&mut self, rest: &mut &[u8]) -> Result<Option<Event>, Violation> {
        if !self.collect(rest, HEADER_BYTES) {
            return Ok(None);
        }
        let mut bytes = [0; HEADER_BYTES];
        bytes.copy_from_slice(&self.fixed[..HEADER_BYTES]);
        let header = Header::decode(&bytes)?;
        if header.segments > self.segments_max {
            return Err(Violation::Segments {
                limit: self.segments_max,
                value: header.segments,
            });
        }
        let bytes = u64::from(header.head_bytes);
        if bytes > self.frame_bytes_max {
            return Err(Violation::FrameBytes {
                limit: self.frame_bytes_max,
                value: bytes,
            });
        }
        let head = obtain(header.head_bytes as usize, HEAD_ALIGN, self.trusted)?;
        self.partial = Some(Partial {
            header,
            head,
            lengths: Vec::new(),
            segments: Vec::new(),
            given: Vec::new(),
            bytes,
        });
        self.stage = if header.segments == 0 {
            Stage::Body
        } else {
            Stage::Lengths
        };
        Ok(None)
    }

    fn feed_lengths(&mut self, rest: &mut &[u8]) -> Result<Option<Event>, Violation> {
        if !self.collect(rest, size_of::<u64>()) {
            return Ok(None);
        }
        let mut bytes = [0; size_of::<u64>()];
        bytes.copy_from_slice(&self.fixed[..size_of::<u64>()]);
        let length = u64::from_le_bytes(bytes);
        let Some(partial) = self.partial.as_mut() else {
            return Ok(None);
        };
        let value = partial.bytes.saturating_add(length);
        if value > self.frame_bytes_max {
            return Err(Violation::FrameBytes {
                limit: self.frame_bytes_max,
                value,
            });
        }
        partial.bytes = value;
        partial
            .lengths
            .push(usize::try_from(length).map_err(|_| Violation::Memory(usize::MAX))?);
        if partial.lengths.len() < usize::from(partial.header.segments) {
            return Ok(None);
        }
        self.stage = Stage::Body;
        Ok(None)
    }

    fn feed_body(&mut self, rest: &mut &[u8]) -> Result<Option<Event>, Violation> {
        let Some(partial) = self.partial.as_mut() else {
            return Ok(None);
        };
        loop {
            let missing = partial.missing();
            if missing > 0 {
                let wanted = missing.min(rest.len());
                let count = partial.reserve(wanted)?.append(&rest[..wanted]);
                self.copied += count as u64;
                *rest = &rest[count..];
                if count < missing {
                    return Ok(None);
                }
            }
            if self.requests_memory && partial.lacks_memory() {
                self.stage = Stage::Memory;
                return Ok(Some(Event::Wanted));
            }
            if !partial.begin_next(self.trusted)? {
                break;
            }
        }
        self.stage = Stage::Header;
        self.after_long = partial.prefix_of_long();
        Ok(self
            .partial
            .take()
            .map(|partial| Event::Frame(partial.finish())))
    }
}

/// Memory for `bytes`; from an untrusted peer only for the first part of them.
fn obtain(bytes: usize, align: usize, trusted: bool) -> Result<Buffer, Violation> {
    let now = if trusted {
        bytes
    } else {
        bytes.min(GROW_BYTES)
    };
    Buffer::with_capacity(now, align).ok_or(Violation::Memory(bytes))
}

impl Partial {
    /// Whether the current buffer is long enough for the kernel to write into it.
    fn is_long(&self) -> bool {
        let bytes = match self.segments.len() {
            0 => self.header.head_bytes as usize,
            count => self.lengths[count - 1],
        };
        bytes >= DIRECT_BYTES_MIN && self.missing() > 0
    }

    /// Bytes before the first frame, if that is long; else 0.
    fn prefix_of_long(&self) -> usize {
        match self.lengths.first() {
            Some(&bytes) if bytes >= DIRECT_BYTES_MIN && self.header.head_bytes == 0 => {
                HEADER_BYTES + self.lengths.len() * size_of::<u64>()
            }
            _ => 0,
        }
    }

    /// Bytes that the current buffer still needs.
    fn missing(&self) -> usize {
        match self.segments.last() {
            None => self.header.head_bytes as usize - self.head.len(),
            Some(segment) => self.lengths[self.segments.len() - 1] - segment.len(),
        }
    }

    /// The current buffer with room for `wanted` of its missing bytes.
    fn reserve(&mut self, wanted: usize) -> Result<&mut Buffer, Violation> {
        let missing = self.missing();
        let buffer = self.segments.last_mut().unwrap_or(&mut self.head);
        if buffer.room() < wanted {
            let doubled = buffer.len().max(GROW_BYTES) * 2;
            let capacity = (buffer.len() + missing).min(doubled.max(buffer.len() + wanted));
            if !buffer.grow(capacity) {
                return Err(Violation::Memory(capacity));
            }
        }
        Ok(buffer)
    }

    /// Short frames of messages are copied once more on their way to Python.
    fn align_of(&self, bytes: usize) -> usize {
        if self.header.kind == Kind::Message && bytes < DIRECT_BYTES_MIN {
            HEAD_ALIGN
        } else {
            SEGMENT_ALIGN
        }
    }

    /// The lengths of the frames for which memory is provided next.
    fn portion(&self) -> &[usize] {
        let left = &self.lengths[self.given.len()..];
        let mut bytes = 0;
        let is_last = |&length: &usize| {
            if length >= DIRECT_BYTES_MIN {
                bytes += length;
            }
            bytes >= WANTED_BYTES
        };
        let last = left.iter().position(is_last);
        last.map_or(left, |last| &left[..=last])
    }

    /// Whether the next segment is the first for which no memory was provided, and there is a long one from it on.
    fn lacks_memory(&self) -> bool {
        let next = self.segments.len();
        next == self.given.len()
            && self.lengths[next..]
                .iter()
                .any(|&bytes| bytes >= DIRECT_BYTES_MIN)
    }

    /// Obtain the next segment's memory; false when all are there.
    fn begin_next(&mut self, trusted: bool) -> Result<bool, Violation> {
        let Some(&bytes) = self.lengths.get(self.segments.len()) else {
            return Ok(false);
        };
        let given = self.given.get_mut(self.segments.len());
        let segment = match given.and_then(Option::take) {
            Some(buffer) => buffer,
            None => obtain(bytes, self.align_of(bytes), trusted)?,
        };
        self.segments.push(segment);
        Ok(true)
    }

    fn finish(self) -> Incoming {
        Incoming {
            header: self.header,
            head: self.head,
            segments: self.segments,
        }
    }
}

//! Receiving: from the stream through the decoder to the handler, within the budget of a turn.

use std::cell::RefCell;
use std::mem::MaybeUninit;

use crate::error::Violation;
use crate::limit::{RECEIVE_BYTES, TURN_BYTES, TURN_RECEIVES};
use crate::link::framed::{Handler, Link};
use crate::stream::{Stream, StreamFault};
use crate::sys::buffer::Buffer;
use crate::totals;
use crate::wire::decoder::Event;
use crate::wire::frame::{Incoming, Kind};

thread_local! {
    static RECEIVE: RefCell<Box<[MaybeUninit<u8>]>> =
        RefCell::new(Box::new_uninit_slice(RECEIVE_BYTES));
}

impl<S: Stream> Link<S> {
    /// Receive what has arrived and have `to` act on it, within one turn's budget.
    pub fn receive(&mut self, to: &mut impl Handler<S>) {
        self.turn.begin();
        let took = self.stream.as_ref().is_none_or(Stream::takes);
        let mut bytes = 0;
        for _ in 0..TURN_RECEIVES {
            if !self.wants_read(to) || bytes >= TURN_BYTES {
                break;
            }
            match self.receive_once(to) {
                Some(count) => bytes += count,
                None if self.holds_received() => {}
                None => break,
            }
        }
        let failed = self.turn.end();
        // Before the flush, which may fail too: the earlier fault is the one that counts.
        if let Some(fault) = failed {
            self.fail_sending(to, fault);
        }
        if !took {
            self.flush(to); // a handshake may have ended, for which the outbox waits
        }
    }

    /// Keep a failure to send until the turn of receiving ends; it is returned if there is no such turn.
    pub fn defer(&mut self, fault: StreamFault) -> Option<StreamFault> {
        self.turn.defer(fault)
    }

    /// One receive; `None` when there is probably nothing more. A short receive proves emptiness.
    #[inline]
    fn receive_once<H: Handler<S>>(&mut self, to: &mut H) -> Option<usize> {
        self.turn.note_receive(false);
        let stream = self.stream.as_mut()?;
        if self.decoder.wants_direct() {
            let mut room = 0;
            let outcome = self.decoder.receive_with(|spare| {
                room = spare.len();
                stream.receive(spare)
            });
            return match outcome {
                Ok(Ok((0, None))) => self.end_of_file(to),
                Ok(Ok((count, event))) => {
                    totals::note_received(count);
                    self.handle(to, event, &[]);
                    self.turn.note_receive(count == room).then_some(count)
                }
                Ok(Err(violation)) => {
                    self.violate(to, violation);
                    None
                }
                Err(fault) => self.fail_receiving(to, fault),
            };
        }
        with_receive_buffer(|buffer| {
            let room = self.room(H::KEEPS_LONG_FRAMES_APART);
            match self.stream.as_mut()?.receive(&mut buffer[..room]) {
                Ok([]) => self.end_of_file(to),
                Ok(filled) => {
                    let count = filled.len();
                    totals::note_received(count);
                    self.decode(to, filled);
                    self.turn.note_receive(count == room).then_some(count)
                }
                Err(fault) => self.fail_receiving(to, fault),
            }
        })
    }

    /// How much to receive into the thread's buffer.
    #[inline]
    fn room(&self, keeps_long_frames_apart: bool) -> usize {
        if keeps_long_frames_apart {
            self.decoder.receive_max().min(RECEIVE_BYTES)
        } else {
            RECEIVE_BYTES
        }
    }

    fn end_of_file(&mut self, to: &mut impl Handler<S>) -> Option<usize> {
        to.end_of_file(self);
        None
    }

    fn fail_receiving(&mut self, to: &mut impl Handler<S>, fault: StreamFault) -> Option<usize> {
        match fault {
            StreamFault::Violation(violation) => self.violate(to, violation),
            fault if fault.is_transient() => {}
            fault => to.fail_receiving(self, fault),
        }
        None
    }

    /// Decode received bytes and act on their frames.
    fn decode(&mut self, to: &mut impl Handler<S>, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.life.receives() {
            match self.decoder.feed(bytes) {
                Ok((count, event)) => bytes = self.handle(to, event, &bytes[count..]),
                Err(violation) => self.violate(to, violation),
            }
        }
    }

    /// Act on what the decoder has found; returns what of the `rest` is to be decoded now.
    #[inline]
    fn handle<'a>(
        &mut self,
        to: &mut impl Handler<S>,
        event: Option<Event>,
        rest: &'a [u8],
    ) -> &'a [u8] {
        let outcome = match event {
            None => return rest,
            Some(Event::Wanted) => {
                self.turn.keep(rest);
                return &[];
            }
            Some(Event::Frame(frame)) => self.handle_frame(to, frame),
            Some(Event::Preface(preface)) => {
                to.begin_frame(self.decoder.offset());
                to.accept_preface(&preface)
                    .map(|()| self.accept_preface(preface))
            }
        };
        if let Err(violation) = outcome {
            self.violate(to, violation);
        }
        rest
    }

    #[inline]
    fn handle_frame(&mut self, to: &mut impl Handler<S>, frame: Incoming) -> Result<(), Violation> {
        to.begin_frame(self.decoder.offset());
        if frame.header.kind == Kind::Token {
            return self.accept_token(to, frame);
        }
        // A preface precedes every frame, so it is the token that is missing.
        if self.life.is_opening() {
            self.decoder.retire(frame.segments);
            return Err(Violation::Uninvited);
        }
        to.accept(self, frame)
    }

    #[cold]
    fn accept_token(&mut self, to: &mut impl Handler<S>, frame: Incoming) -> Result<(), Violation> {
        self.decoder.retire(frame.segments); // dropped after unlocking, also where the token is wrong
        if self.admit(frame.head.as_slice())? && self.is_preface_due() {
            self.queue_preface();
            self.flush(to);
        }
        Ok(())
    }

    /// Whether the stream should be read now.
    #[inline]
    pub fn wants_read(&mut self, to: &mut impl Handler<S>) -> bool {
        let held_back = to.holds_back(self);
        self.life.receives() && !held_back
    }

    /// Whether the stream holds received bytes, for which the socket does not become readable.
    #[inline]
    pub fn holds_received(&self) -> bool {
        !self.life.is_broken() && self.stream.as_ref().is_some_and(Stream::holds_received)
    }

    /// Whether another receive would probably find something.
    pub fn may_have_more(&self) -> bool {
        self.turn.filled_its_buffer() || self.holds_received()
    }

    /// Whether the last receive filled its buffer.
    pub fn filled_its_buffer(&self) -> bool {
        self.turn.filled_its_buffer()
    }

    /// From now on ask for the memory of messages with long frames.
    pub fn request_memory(&mut self) {
        self.decoder.request_memory();
    }

    /// The lengths of the frames for which memory is wanted before more is read, 0 for short ones.
    pub fn wanted(&self) -> Option<Vec<usize>> {
        self.decoder.wanted().filter(|_| self.life.receives())
    }

    /// Whether memory is wanted before more can be read.
    pub fn awaits_memory(&self) -> bool {
        self.decoder.awaits_memory()
    }

    /// Provide the memory that is wanted, and continue to decode.
    pub fn provide(&mut self, to: &mut impl Handler<S>, buffers: Vec<Option<Buffer>>) {
        self.decoder.provide(buffers);
        let kept = self.turn.take_kept();
        self.decode(to, &kept);
    }

    /// Whether received bytes wait to be decoded until memory is provided.
    pub fn has_kept(&self) -> bool {
        self.turn.has_kept()
    }
}

/// Lend the thread's one receive buffer. Connections keep only unfinished frames, so that an idle one costs no buffer.
///
/// # Panics
/// If it is lent already.
fn with_receive_buffer<R>(act: impl FnOnce(&mut [MaybeUninit<u8>]) -> R) -> R {
    RECEIVE.with_borrow_mut(|buffer| act(buffer))
}

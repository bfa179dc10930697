//! A TLS stream over another stream.
//!
//! Plaintext is sealed straight out of the caller's pieces into a buffer of the thread, which goes
//! to the kernel at once; what it does not take is the stream's own queue, at most [`SEAL_BYTES`]
//! of plaintext and their overhead, and nothing more is taken until that is gone. Received records
//! are opened in a receive buffer of the thread; a connection keeps the cut record at the end,
//! and what of the last opened one had no room at the caller. An idle one keeps nothing.
//!
//! Per byte and direction the machine below copies twice, into and out of a record of its own.

use std::cell::RefCell;
use std::fmt::{self, Debug, Formatter};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::sync::Arc;

use rustix::io::Errno;

use crate::limit::{RECEIVE_BYTES, RECORD_BYTES, SEAL_BYTES, TURN_BYTES};
use crate::stream::tls::fault::describe;
use crate::stream::tls::peer::{Handshakes, Peer};
use crate::stream::tls::plain::Plain;
use crate::stream::tls::session::{Found, Sealed, Session, Task};
use crate::stream::{Stream, StreamFault};
use crate::sys::filling::Filling;

/// What a record adds to its plaintext at most: header, explicit nonce, type and tag.
const OVERHEAD_BYTES: usize = 32;

thread_local! {
    static OPENED: RefCell<Box<[MaybeUninit<u8>]>> =
        RefCell::new(Box::new_uninit_slice(RECEIVE_BYTES + RECORD_BYTES + OVERHEAD_BYTES));
    static SEALED: RefCell<(Sealed, Vec<u8>)> = RefCell::default();
}

/// One end of a TLS connection over the stream `S`.
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
pub struct Tls<S> {
    inner: S,
    session: Session,
    /// Ciphertext that the kernel has not taken, from `queue_sent` on.
    queue: Vec<u8>,
    queue_sent: usize,
    /// How many of the caller's bytes are in it, at most.
    queue_plain: usize,
    /// Received ciphertext that was not opened yet: the front of a record, if not `unopened`.
    tail: Vec<u8>,
    unopened: bool,
    /// Opened plaintext that had no room, from `plain_taken` on.
    plain: Vec<u8>,
    plain_taken: usize,
    /// What the next call has to report.
    fault: Option<StreamFault>,
    peer_closed: bool,
    closing: bool,
    handshaking: bool,
    handshakes: Arc<Handshakes>,
    /// How the peer's stream began, for the message when that was no TLS.
    first: [u8; 4],
    met: bool,
}

impl<S: Debug> Debug for Tls<S> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let mut shown = out.debug_struct("Tls");
        shown.field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S: Stream> Tls<S> {
    /// Begin the handshake: a client's first words wait to be flushed.
    pub(super) fn new(inner: S, session: Session, handshakes: Arc<Handshakes>) -> Self {
        let mut stream = Self {
            inner,
            session,
            queue: Vec::new(),
            queue_sent: 0,
            queue_plain: 0,
            tail: Vec::new(),
            unopened: false,
            plain: Vec::new(),
            plain_taken: 0,
            fault: None,
            peer_closed: false,
            closing: false,
            handshaking: true,
            handshakes,
            first: [0; 4],
            met: false,
        };
        stream.talk(&mut Task::Nothing);
        stream
    }

    /// The stream below.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Whether the handshake goes on.
    pub fn is_handshaking(&self) -> bool {
        self.handshaking
    }

    /// Memory that the stream holds now, besides the machine's own.
    pub fn kept_bytes(&self) -> usize {
        self.queue.capacity() + self.tail.capacity() + self.plain.capacity()
    }

    /// The peer's identity and the negotiated parameters; `None` until the handshake has ended.
    pub fn peer(&self) -> Option<Peer> {
        (!self.handshaking).then(|| Peer::of(&self.session))
    }

    /// Let the machine speak, and do a task, over what lies in the tail. A fault is kept.
    fn talk(&mut self, task: &mut Task<'_>) {
        if self.fault.is_some() {
            return; // a machine that failed must not be asked again
        }
        let mut tail = std::mem::take(&mut self.tail);
        let (done, outcome) = self.run(&mut tail, task, &mut |_| 0, usize::MAX);
        tail.drain(..done);
        self.tail = tail;
        self.unopened = false;
        if let Err(fault) = outcome {
            self.fault.get_or_insert(fault);
        }
    }

    /// Step the machine until it has nothing more to do, or `room` is full.
    ///
    /// Returns how much of the front of `incoming` is done with. `take` takes plaintext and says
    /// how much of it; the rest is kept.
    fn run(
        &mut self,
        incoming: &mut [u8],
        task: &mut Task<'_>,
        take: &mut dyn FnMut(&[u8]) -> usize,
        mut room: usize,
    ) -> (usize, Result<(), StreamFault>) {
        let mut done = 0;
        let plain = &mut self.plain;
        while room > 0 {
            let mut deliver = |bytes: &[u8]| {
                let taken = take(bytes);
                plain.extend_from_slice(&bytes[taken..]);
                room -= bytes.len().min(room);
            };
            let rest = &mut incoming[done..];
            let (count, found) = self
                .session
                .advance(rest, task, &mut self.queue, &mut deliver);
            done += count;
            match found {
                Ok(Found::More) => {}
                Ok(Found::PeerClosed) => self.peer_closed = true,
                Ok(Found::Handshake | Found::Open | Found::Closed) => break,
                Err(error) => {
                    let fault = self.fail(&error, &mut incoming[done..]);
                    return (done, Err(fault));
                }
            }
        }
        self.note_handshake();
        (done, Ok(()))
    }

    fn note_handshake(&mut self) {
        if self.handshaking && !self.session.common().is_handshaking() {
            self.handshaking = false;
            self.handshakes.count(self.session.common());
        }
    }

    /// The machine failed: let it alert the peer, and describe the fault for our side.
    fn fail(&mut self, error: &rustls::Error, rest: &mut [u8]) -> StreamFault {
        // Its alert is the last record that it writes, after those it had queued.
        // It must not read received bytes any more: a second alert would fail an assertion.
        while self.session.common().wants_write() {
            let (queue, nothing) = (&mut self.queue, &mut Task::Nothing);
            let said = self.session.advance(rest, nothing, queue, &mut |_| {});
            if !matches!(said, (0, Ok(Found::More))) {
                break;
            }
        }
        let _ = self.push(); // the peer may be gone, which changes nothing
        if self.handshaking {
            self.handshakes.count_failed();
        }
        StreamFault::Tls(describe(error, self.handshaking.then_some(self.first)))
    }

    /// Hand the queue to the kernel.
    fn push(&mut self) -> Result<(), StreamFault> {
        while self.queue_sent < self.queue.len() {
            match self
                .inner
                .send(&[IoSlice::new(&self.queue[self.queue_sent..])])
            {
                Ok(count) => self.queue_sent += count,
                Err(fault) if fault.is_transient() => return Ok(()),
                Err(fault) => return Err(fault),
            }
        }
        self.queue = Vec::new();
        self.queue_sent = 0;
        self.queue_plain = 0;
        self.inner.flush()
    }

    /// Seal and send until the kernel takes no more, or a turn's budget is spent.
    fn seal(
        &mut self,
        plain: &mut Plain<'_>,
        sealed: &mut Sealed,
        joined: &mut Vec<u8>,
    ) -> Result<(), StreamFault> {
        while plain.taken() < TURN_BYTES && self.queue.is_empty() {
            let records = SEAL_BYTES / RECORD_BYTES + 1;
            sealed.restart(SEAL_BYTES + (records + 1) * OVERHEAD_BYTES);
            let begun = plain.taken();
            while let left @ RECORD_BYTES.. = SEAL_BYTES - (plain.taken() - begun)
                && let Some(bytes) = plain.next(left, joined)
            {
                self.talk(&mut Task::Seal(bytes, sealed));
                if let Some(fault) = &self.fault {
                    return Err(fault.clone());
                }
            }
            if plain.taken() == begun {
                return Ok(());
            }
            // What the machine says by itself was sealed before it was asked for this.
            self.push()?;
            let mut rest = sealed.as_slice();
            if self.queue.is_empty() {
                match self.inner.send(&[IoSlice::new(rest)]) {
                    Ok(count) => rest = &rest[count..],
                    Err(fault) if fault.is_transient() => {}
                    Err(fault) => return Err(fault),
                }
            }
            if !rest.is_empty() {
                self.queue_plain = plain.taken() - begun;
                self.queue.extend_from_slice(rest);
            }
        }
        Ok(())
    }

    /// Decrypt received records into `filling`, until it is full or no complete record is left.
    fn fill(&mut self, filling: &mut Filling<'_>) -> Result<(), StreamFault> {
        let kept = filling.append(&self.plain[self.plain_taken..]);
        self.plain_taken += kept;
        if self.plain_taken == self.plain.len() {
            self.plain = Vec::new();
            self.plain_taken = 0;
        }
        OPENED.with_borrow_mut(|memory| {
            while filling.room() > 0 && filling.len() < TURN_BYTES && !self.peer_closed {
                if !self.fill_once(filling, memory)? {
                    break;
                }
            }
            Ok(())
        })
    }

    /// One receive from the stream below, and its records; false if there is probably nothing more.
    fn fill_once(
        &mut self,
        filling: &mut Filling<'_>,
        memory: &mut [MaybeUninit<u8>],
    ) -> Result<bool, StreamFault> {
        let mut incoming = Filling::new(memory);
        incoming.append(&self.tail);
        if incoming.room() == 0 {
            return Err(StreamFault::Tls("a handshake message is too long".into()));
        }
        let mut more = self.unopened;
        if !self.unopened {
            // No more than is wanted, so that little has to be kept for the next call.
            let records = filling.room() / RECORD_BYTES + 1;
            let limit = records * (RECORD_BYTES + OVERHEAD_BYTES);
            let limit = limit.min(incoming.room());
            let count = incoming.receive_with(limit, |spare| self.inner.receive(spare))?;
            if count == 0 {
                return Err(self.cut());
            }
            more = count == limit;
        }
        let bytes = incoming.finish();
        if !self.met && bytes.len() >= self.first.len() {
            self.met = true;
            self.first.copy_from_slice(&bytes[..4]);
        }
        let room = filling.room();
        let (done, outcome) = self.run(
            bytes,
            &mut Task::Nothing,
            &mut |plain| filling.append(plain),
            room,
        );
        self.tail = bytes[done..].to_vec();
        self.unopened = filling.room() == 0 && !self.tail.is_empty();
        outcome.map(|()| more)
    }

    /// The kernel takes nothing more: the peer may have said why before it left.
    fn explain(&mut self, fault: StreamFault) -> StreamFault {
        let said = OPENED.with_borrow_mut(|memory| {
            let mut incoming = Filling::new(memory);
            incoming.append(&self.tail);
            let all = incoming.room();
            incoming.receive_with(all, |spare| self.inner.receive(spare))?;
            let bytes = incoming.finish();
            let (done, said) = self.run(bytes, &mut Task::Nothing, &mut |_| 0, usize::MAX);
            self.tail = bytes[done..].to_vec();
            said
        });
        match said {
            Err(said @ StreamFault::Tls(_)) => {
                self.fault = Some(said.clone());
                said
            }
            _ => fault,
        }
    }

    /// The stream below ended without a `close_notify`.
    fn cut(&mut self) -> StreamFault {
        if !self.handshaking {
            return StreamFault::Truncated;
        }
        self.handshakes.count_failed();
        StreamFault::Tls("the peer closed the connection during the handshake".into())
    }
}

impl<S: Stream> Stream for Tls<S> {
    fn send(&mut self, pieces: &[IoSlice<'_>]) -> Result<usize, StreamFault> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        self.push().map_err(|fault| self.explain(fault))?;
        if self.closing {
            return Err(Errno::PIPE.into());
        }
        if self.handshaking || !self.queue.is_empty() {
            return Err(Errno::AGAIN.into());
        }
        let mut plain = Plain::new(pieces);
        SEALED
            .with_borrow_mut(|(sealed, joined)| self.seal(&mut plain, sealed, joined))
            .map_err(|fault| self.explain(fault))?;
        Ok(plain.taken())
    }

    fn receive<'a>(
        &mut self,
        into: &'a mut [MaybeUninit<u8>],
    ) -> Result<&'a mut [u8], StreamFault> {
        let mut filling = Filling::new(into);
        let outcome = match self.fault.take() {
            Some(fault) => Err(fault),
            None => self.fill(&mut filling),
        };
        let queued = !self.queue.is_empty();
        let outcome = outcome.and_then(|()| if queued { self.push() } else { Ok(()) });
        let filled = filling.finish();
        match outcome {
            Err(fault) if filled.is_empty() => {
                if !fault.is_transient() {
                    self.fault = Some(fault.clone());
                }
                Err(fault)
            }
            Err(fault) if !fault.is_transient() => {
                self.fault = Some(fault);
                Ok(filled)
            }
            _ if filled.is_empty() && !self.peer_closed => Err(Errno::AGAIN.into()),
            _ => Ok(filled),
        }
    }

    fn hung_up(&self) -> bool {
        self.inner.hung_up()
    }

    fn wants_write(&self) -> bool {
        !self.queue.is_empty() || self.inner.wants_write()
    }

    fn takes(&self) -> bool {
        !self.handshaking
    }

    fn flush(&mut self) -> Result<(), StreamFault> {
        if self.queue.is_empty() {
            return self.inner.flush();
        }
        self.push().map_err(|fault| self.explain(fault))
    }

    fn unsent(&self) -> usize {
        self.queue_plain
    }

    fn holds_received(&self) -> bool {
        self.fault.is_some() || self.unopened || self.peer_closed || !self.plain.is_empty()
    }

    fn finish(&mut self) {
        if !self.closing && !self.handshaking && self.fault.is_none() {
            self.closing = true;
            self.talk(&mut Task::Close);
        }
    }
}

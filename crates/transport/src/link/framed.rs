//! A framed link: a stream with its decoder, its outbox and its life, whatever its frames mean.

use std::os::fd::OwnedFd;

use crate::error::{Fault, Violation};
use crate::limit::{HANDSHAKE_BYTES_MAX, Limits};
use crate::link::admission::{self, Admission, Handshake};
use crate::link::life::Life;
use crate::link::outbox::{Outbox, Payload};
use crate::link::turn::ReceiveTurn;
use crate::stream::{Stream, StreamFault};
use crate::sys::buffer::Buffer;
use crate::totals::Counted;
use crate::wire::decoder::Decoder;
use crate::wire::frame::{Header, Incoming};
use crate::wire::preface::Preface;

/// What the frames of a link mean.
pub(crate) trait Handler<S: Stream>: Sized {
    /// Whether, after a long frame, only what precedes the next one is received, so that all of that can be received
    /// straight into its own memory.
    const KEEPS_LONG_FRAMES_APART: bool;

    /// The peer's preface has come.
    ///
    /// # Errors
    /// A violation breaks the link.
    fn accept_preface(&mut self, preface: &Preface) -> Result<(), Violation>;

    /// The next frame begins here in the stream.
    fn begin_frame(&mut self, _offset: u64) {}

    /// A frame of an admitted peer has come.
    ///
    /// # Errors
    /// A violation breaks the link.
    fn accept(&mut self, link: &mut Link<S>, frame: Incoming) -> Result<(), Violation>;

    /// Whether reading waits until something was taken.
    fn holds_back(&mut self, link: &Link<S>) -> bool;

    /// The stream has ended.
    fn end_of_file(&mut self, link: &mut Link<S>);

    /// A receive has failed for good.
    fn fail_receiving(&mut self, link: &mut Link<S>, fault: StreamFault);

    /// The peer takes nothing more.
    fn fail_sending(&mut self, link: &mut Link<S>, fault: StreamFault);

    /// The link has broken by this fault.
    fn broken(&mut self, link: &Link<S>, fault: &Fault);
}

/// The link. Its handler is lent to it for each step.
pub(crate) struct Link<S> {
    pub(super) stream: Option<S>,
    /// The stream counts among those of the process.
    counted: Option<Counted>,
    pub(super) decoder: Decoder,
    pub(super) outbox: Outbox,
    pub(super) life: Life,
    limits: Limits,
    handshake: Handshake,
    /// Our preface, until it is queued.
    preface: Option<Preface>,
    peer: Option<Preface>,
    pub(super) turn: ReceiveTurn,
    /// Frames wait for a flush.
    pub(super) corked: bool,
}

impl<S> Link<S> {
    /// A link without a stream.
    pub fn new(limits: Limits, handshake: Handshake) -> Self {
        Self {
            stream: None,
            counted: None,
            decoder: Decoder::new(&limits, false),
            outbox: Outbox::default(),
            life: Life::default(),
            limits,
            handshake,
            preface: None,
            peer: None,
            turn: ReceiveTurn::default(),
            corked: false,
        }
    }

    /// Begin on a stream. From a peer that is `trusted` memory for announced lengths is allocated at once. Where a token is
    /// required, frames above [`HANDSHAKE_BYTES_MAX`] are refused until it was shown.
    pub fn connect(&mut self, stream: S, trusted: bool)
    where
        S: Stream,
    {
        self.counted = stream.scheme().map(Counted::new);
        self.stream = Some(stream);
        self.decoder = Decoder::new(&self.limits, trusted || self.handshake.trusted);
        if self.requires_token() {
            self.decoder.limit_frames(HANDSHAKE_BYTES_MAX);
        }
        self.life.connect();
    }

    /// Continue with the same stream under another type.
    pub fn map_stream<T>(self, map: impl FnOnce(S) -> T) -> Link<T> {
        Link {
            stream: self.stream.map(map),
            counted: self.counted,
            decoder: self.decoder,
            outbox: self.outbox,
            life: self.life,
            limits: self.limits,
            handshake: self.handshake,
            preface: self.preface,
            peer: self.peer,
            turn: self.turn,
            corked: self.corked,
        }
    }

    /// Send `preface` before the first frame. An end that requires a token sends it only to a peer that has shown the token,
    /// so that the peer's connect fails with a wrong one.
    pub fn set_preface(&mut self, preface: Preface) {
        self.preface = Some(preface);
    }

    /// Queue the preface, unless that was done or the token that this end requires was not shown yet.
    #[inline]
    pub fn queue_preface(&mut self) {
        if self.is_preface_due() {
            self.queue_due_preface();
        }
    }

    #[cold]
    fn queue_due_preface(&mut self) {
        if self.requires_token() && !self.life.has_opened() {
            return;
        }
        if let Some(preface) = self.preface.take() {
            self.push_preface(&preface);
        }
    }

    /// Queue a preface, and the token to show, whether or not the peer was admitted.
    pub fn push_preface(&mut self, preface: &Preface) {
        self.outbox.push_copy(&preface.encode());
        if let Some(token) = self.handshake.token.take() {
            admission::show(&token, &mut self.outbox);
        }
    }

    /// Continue a stream on which another process has sent our preface and, with `preface_read`, has read the peer's.
    pub fn resume(&mut self, preface_read: bool) {
        self.preface = None;
        if preface_read {
            self.decoder.skip_preface();
            self.admit_without_token();
        }
    }

    #[inline]
    pub(super) fn is_preface_due(&self) -> bool {
        self.preface.is_some()
    }

    fn requires_token(&self) -> bool {
        self.handshake.admission != Admission::Anybody
    }

    fn admit_without_token(&mut self) {
        if !self.requires_token() {
            self.life.open();
        }
    }

    /// The peer's preface has come, and the handler has accepted it.
    pub fn accept_preface(&mut self, preface: Preface) {
        self.peer = Some(preface);
        self.admit_without_token();
    }

    /// Check a token; true if it admits the peer now. Unrequested or repeated ones are ignored.
    pub(super) fn admit(&mut self, shown: &[u8]) -> Result<bool, Violation> {
        if !self.life.is_opening() {
            return Ok(false);
        }
        if !self.handshake.admission.admits(shown) {
            return Err(Violation::Token);
        }
        self.life.open();
        self.decoder.limit_frames(self.limits.frame_bytes_max);
        self.decoder.trust();
        Ok(true)
    }

    /// Trust the peer: memory for announced lengths is allocated at once.
    pub fn trust(&mut self) {
        self.decoder.trust();
    }

    /// Where the link is in its life.
    #[inline]
    pub fn life(&self) -> &Life {
        &self.life
    }

    /// Why it broke, if it did.
    #[inline]
    pub fn fault(&self) -> Option<&Fault> {
        self.life.fault()
    }

    /// The peer sends nothing more.
    pub fn end(&mut self) {
        self.life.end();
    }

    /// Send on after a fault, for a frame that tells the peer about it; nothing more is received.
    pub fn send_despite_fault(&mut self) {
        self.life.send_despite_fault();
    }

    /// The peer's preface, once it was read by this process.
    #[inline]
    pub fn peer(&self) -> Option<&Preface> {
        self.peer.as_ref()
    }

    /// The limits of this end.
    #[inline]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The longest frame that both ends take.
    #[inline]
    pub fn frame_bytes_max(&self) -> u64 {
        let own = self.limits.frame_bytes_max;
        self.peer.map_or(own, |peer| own.min(peer.frame_bytes_max))
    }

    /// The most segments of a frame that both ends take.
    #[inline]
    pub fn segments_max(&self) -> u16 {
        let own = self.limits.segments_max;
        self.peer.map_or(own, |peer| own.min(peer.segments_max))
    }

    /// The stream; `None` before one was connected, and once it was closed or given away.
    #[inline]
    pub fn stream(&self) -> Option<&S> {
        self.stream.as_ref()
    }

    /// The stream, for what it offers besides moving bytes.
    #[inline]
    pub fn stream_mut(&mut self) -> Option<&mut S> {
        self.stream.as_mut()
    }

    /// Take the stream away, to be dropped outside of any lock.
    pub fn take_stream(&mut self) -> Option<S> {
        self.counted = None;
        self.stream.take()
    }

    /// What is queued to be sent.
    #[inline]
    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// What is queued to be sent, to queue more.
    #[inline]
    pub fn outbox_mut(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    /// Whether the bytes received so far end with a whole frame.
    pub fn at_boundary(&self) -> bool {
        self.decoder.at_boundary()
    }

    /// Bytes received and decoded so far.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.decoder.offset()
    }

    /// Bytes of frames that were copied out of the receive buffer.
    pub fn received_copied(&self) -> u64 {
        self.decoder.copied()
    }

    /// Leave provided memory to be dropped outside of any lock.
    pub fn retire(&mut self, buffers: impl IntoIterator<Item = Buffer>) {
        self.decoder.retire(buffers);
    }

    /// Sent or forgotten memory of senders. Drop it outside of any lock.
    #[inline]
    pub fn take_sent(&mut self) -> Vec<Payload> {
        self.outbox.take_retired()
    }

    /// Provided memory that is not used. Drop it outside of any lock.
    pub fn take_unused(&mut self) -> Vec<Buffer> {
        self.decoder.take_retired()
    }
}

impl<S: Stream> Link<S> {
    /// Break the link; the first fault stays. What is queued is dropped.
    pub fn break_with(&mut self, to: &mut impl Handler<S>, fault: Fault) {
        if self.life.is_broken() {
            return;
        }
        self.life.break_with(fault);
        self.outbox.clear();
        if let Some(fault) = self.life.fault() {
            to.broken(self, fault);
        }
    }

    /// The peer has broken the protocol.
    #[cold]
    pub fn violate(&mut self, to: &mut impl Handler<S>, violation: Violation) {
        let offset = self.decoder.offset();
        self.break_with(to, Fault::Protocol { offset, violation });
    }

    /// The stream has failed for good.
    pub fn fail(&mut self, to: &mut impl Handler<S>, fault: StreamFault) {
        match fault {
            StreamFault::Violation(violation) => self.violate(to, violation),
            fault => self.break_with(to, Fault::Broken(fault.into())),
        }
    }

    /// Whether the peer is gone in both directions, or there is no stream.
    pub fn is_hung_up(&self) -> bool {
        self.stream.as_ref().is_none_or(Stream::hung_up)
    }

    /// Keep the descriptors that come from now on.
    pub fn ask_for_descriptors(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.ask_for_descriptors();
        }
    }

    /// Take the next descriptor that came.
    pub fn next_descriptor(&mut self) -> Option<OwnedFd> {
        self.stream.as_mut()?.next_descriptor()
    }

    /// Queue a frame without a body, with descriptors; false, and they are closed, where too many wait.
    pub fn push_with_descriptors(&mut self, header: Header, descriptors: Vec<OwnedFd>) -> bool {
        let stream = self.stream.as_mut();
        let attached = stream.is_some_and(|stream| stream.attach(descriptors));
        if attached {
            self.outbox.push_copy(&header.encode());
        }
        attached
    }
}

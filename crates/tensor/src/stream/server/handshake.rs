//! A connection until it is a peer: the transport's handshake, and one message each way.
//!
//! A client without the right token gets a refusal that says so. It may be sending its hello at the same time:
//! closing a socket with unread input resets it, and the client would lose the refusal. So the server reads on until
//! the client closes.
use std::mem::MaybeUninit;

use forebay_base::poll::Ready;
use forebay_base::slots::Key;
use forebay_transport::limit::Limits;
use forebay_transport::link::Admission;
use forebay_transport::messages::State;
use forebay_transport::stream::{Stream, Wire};
use forebay_transport::{Delivered, Fault, Violation};

use crate::error::Error;
use crate::handshake::{Hello, Welcome};

/// Largest hello accepted from an unknown client.
const HELLO_BYTES_MAX: u64 = 4096;
/// Receives per turn whose bytes are discarded, and the bytes of one.
const DISCARDS_A_TURN: usize = 16;
const DISCARDED_BYTES: usize = 4096;

/// What to do with a handshake after a step.
pub(super) enum Verdict {
    /// Wait for its socket.
    Stay,
    /// Answer its hello by [`Handshake::welcome`] or [`Handshake::refuse`].
    Asks(Hello),
    /// It is the lifeline of a fabric connection, with this introduction; answer it likewise.
    Introduces(Vec<u8>),
    /// Its answer is sent: make a peer of its stream, with the slots that it was granted.
    Admitted(Wire, u32),
    /// Close it, for this reason.
    Leave(String),
}

/// One accepted connection that is not a peer yet.
pub(super) struct Handshake {
    state: State<Wire>,
    /// What its socket is watched for.
    pub(super) watched: Ready,
    answered: bool,
    /// The granted slots.
    slots: u32,
    refused: Option<String>,
    /// It did not authenticate; the client has to close.
    rejected: bool,
    /// The endpoint that this is the lifeline of.
    pub(super) endpoint: Option<Key>,
}

impl Handshake {
    pub(super) fn new(wire: Wire, admission: Admission) -> Self {
        let mut state = State::new(wire, limits(), admission, None);
        state.flush();
        Self {
            state,
            watched: Ready::READ,
            answered: false,
            slots: 0,
            refused: None,
            rejected: false,
            endpoint: None,
        }
    }

    /// Receive and send as much as possible. Once it is answered it receives no more: later bytes belong to the peer.
    pub(super) fn step(&mut self) -> Verdict {
        self.state.flush();
        if self.rejected {
            return self.drain();
        }
        if !self.answered {
            self.state.receive();
            if let Some(message) = self.state.take() {
                return self.receive_hello(message[0].as_slice());
            }
        }
        if let Some(fault) = self.state.end() {
            if let Fault::Protocol { violation, .. } = &fault
                && let Some(why) = unauthenticated(violation)
            {
                return self.reject(why);
            }
            return Verdict::Leave(fault.to_error("a client", Delivered::No).to_string());
        }
        if !self.answered || self.wants_write() {
            return Verdict::Stay;
        }
        if let Some(why) = self.refused.take() {
            return Verdict::Leave(why);
        }
        match self.state.take_stream() {
            Some(wire) => Verdict::Admitted(wire, self.slots),
            None => Verdict::Leave("it sent more than a hello".to_owned()),
        }
    }

    fn receive_hello(&mut self, hello: &[u8]) -> Verdict {
        match Hello::decode(hello) {
            Ok(asked) => match asked.introduction(hello) {
                Some(introduction) => Verdict::Introduces(introduction.to_vec()),
                None => Verdict::Asks(asked),
            },
            Err(error) => {
                self.refuse(&error);
                self.step()
            }
        }
    }

    pub(super) fn welcome(&mut self, welcome: &Welcome) -> Verdict {
        self.slots = welcome.slots;
        self.answer(welcome.encode());
        self.step()
    }

    pub(super) fn refuse(&mut self, error: &Error) {
        self.refused = Some(error.to_string());
        self.answer(Welcome::refusal(error));
    }

    /// Refuse a client that did not authenticate. Its state sends nothing after a fault, so a new state over the same
    /// stream sends the refusal.
    fn reject(&mut self, why: &'static str) -> Verdict {
        if self.state.outbox().sent() > 0 {
            self.state.send_despite_fault(); // the preface is sent already: a second one would be invalid
        } else if let Some(wire) = self.state.close() {
            self.state = State::new(wire, limits(), Admission::Anybody, None);
        }
        self.refuse(&Error::Unauthenticated { why });
        self.rejected = true;
        self.drain()
    }

    /// Discard input until the client closes.
    fn drain(&mut self) -> Verdict {
        let mut unseen = [MaybeUninit::uninit(); DISCARDED_BYTES];
        let why = || self.refused.clone().unwrap_or_default();
        let Some(wire) = self.state.stream_mut() else {
            return Verdict::Leave(why());
        };
        for _ in 0..DISCARDS_A_TURN {
            match wire.receive(&mut unseen) {
                Ok([]) => return Verdict::Leave(why()),
                Ok(_) => {}
                Err(fault) if fault.is_transient() => break,
                Err(_) => return Verdict::Leave(why()),
            }
        }
        Verdict::Stay
    }

    fn answer(&mut self, message: Vec<u8>) {
        self.answered = true;
        self.state.send(&mut vec![message]);
    }

    /// What to watch its socket for.
    pub(super) fn wanted(&self) -> Ready {
        Ready {
            read: self.wants_read(),
            write: self.wants_write(),
        }
    }

    fn wants_read(&self) -> bool {
        !self.answered || self.rejected
    }

    fn wants_write(&self) -> bool {
        self.state.wants_write() || !self.state.outbox().is_empty()
    }

    /// Whether received bytes are buffered, for which the socket does not become readable.
    pub(super) fn holds_received(&self) -> bool {
        self.wants_read() && self.state.holds_received()
    }

    pub(super) fn wire(&self) -> Option<&Wire> {
        self.state.stream()
    }

    pub(super) fn hang_up(mut self) {
        if let Some(wire) = self.state.stream_mut() {
            wire.hang_up();
        }
    }
}

/// The refusal of a client that did not authenticate.
fn unauthenticated(violation: &Violation) -> Option<&'static str> {
    match violation {
        Violation::Token => Some("that is another token than the server was given"),
        Violation::Uninvited => Some("the server asks for a token, and none was shown"),
        _ => None,
    }
}

fn limits() -> Limits {
    Limits {
        frame_bytes_max: HELLO_BYTES_MAX,
        ..Limits::of_messages()
    }
}

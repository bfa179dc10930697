//! A connection until it is a peer: the transport's handshake, and one message each way.
//!
//! Whoever shows no token, or a wrong one, is told so in the words of a refusal. It may be about to send its hello; closed
//! with that unread, the socket would be reset, and the words lost with it. So it is for the client to close.
use std::mem::MaybeUninit;

use forebay_transport::error::Fault;
use forebay_transport::limit::Limits;
use forebay_transport::messages::state::State;
use forebay_transport::stream::Stream;
use forebay_transport::{Admission, Delivered, Violation, Wire};

use crate::error::Error;
use crate::handshake::{Hello, Welcome};
use crate::slab::Id;

/// Largest hello that is taken from somebody unknown.
const HELLO_BYTES_MAX: u64 = 4096;
/// Receives of one turn of what nobody looks at any more, and the bytes of one.
const DISCARDS_A_TURN: usize = 16;
const DISCARDED_BYTES: usize = 4096;

/// What is to be done with a guest after a step.
pub(super) enum Verdict {
    /// It waits for its socket.
    Stay,
    /// It said what it wants: answer it by [`Guest::welcome`] or [`Guest::refuse`].
    Asks(Hello),
    /// It is the lifeline of a connection over the fabric, which it introduces; to be answered likewise.
    Introduces(Vec<u8>),
    /// It has its answer: its stream is a peer's now, with as many slots as it was granted.
    Admitted(Wire, u32),
    /// It ends.
    Leave(String),
}

/// One accepted connection.
pub(super) struct Handshake {
    state: State<Wire>,
    answered: bool,
    /// Slots that it was granted.
    slots: u32,
    refused: Option<String>,
    /// It has no token, and is to close.
    rejected: bool,
    /// Which answerer this is the lifeline of.
    pub(super) endpoint: Option<Id>,
}

impl Handshake {
    pub(super) fn new(wire: Wire, admission: Admission) -> Self {
        let mut state = State::new(wire, limits(), admission, None);
        state.flush();
        Self {
            state,
            answered: false,
            slots: 0,
            refused: None,
            rejected: false,
            endpoint: None,
        }
    }

    /// Receive and send what can be. Once it is answered nothing is received: what comes then is the peer's.
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
                && let Some(why) = uninvited(violation)
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
            None => Verdict::Leave("it sent more than its hello".to_owned()),
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

    /// Refuse one without the token. Its state takes nothing more, so another one says it over the same stream.
    fn reject(&mut self, why: &'static str) -> Verdict {
        if self.state.outbox.sent() > 0 {
            self.state.fault = None; // the preface has gone out
        } else if let Some(wire) = self.state.stream.take() {
            self.state = State::new(wire, limits(), Admission::Anybody, None);
        }
        self.refuse(&Error::Unauthenticated { why });
        self.rejected = true;
        self.drain()
    }

    /// Wait for the client to close, whatever it says until then.
    fn drain(&mut self) -> Verdict {
        let mut unseen = [MaybeUninit::uninit(); DISCARDED_BYTES];
        let why = || self.refused.clone().unwrap_or_default();
        let Some(wire) = &mut self.state.stream else {
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

    /// What its socket is watched for.
    pub(super) fn wants_read(&self) -> bool {
        !self.answered || self.rejected
    }

    pub(super) fn wants_write(&self) -> bool {
        self.state.wants_write() || !self.state.outbox.is_empty()
    }

    /// Whether bytes lie in its stream of which the socket says nothing.
    pub(super) fn holds_received(&self) -> bool {
        self.wants_read() && self.state.holds_received()
    }

    pub(super) fn wire(&self) -> Option<&Wire> {
        self.state.stream.as_ref()
    }

    pub(super) fn hang_up(mut self) {
        if let Some(wire) = &mut self.state.stream {
            wire.hang_up();
        }
    }
}

/// What somebody without the token is told.
fn uninvited(violation: &Violation) -> Option<&'static str> {
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

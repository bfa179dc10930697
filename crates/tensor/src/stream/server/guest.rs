//! A connection until it is a peer: the transport's handshake, and one message each way.
use forebay_transport::limit::Limits;
use forebay_transport::messages::state::State;
use forebay_transport::{Admission, Delivered, Wire};

use crate::error::Error;
use crate::greeting::{Hello, Welcome};
use crate::slab::Id;

/// Largest hello that is taken from somebody unknown.
const HELLO_BYTES_MAX: u64 = 4096;

/// What is to be done with a guest after a step.
pub(super) enum Verdict {
    /// It waits for its socket.
    Stay,
    /// It said what it wants: answer it by [`Guest::welcome`] or [`Guest::refuse`].
    Asks(Hello),
    /// It is the lifeline of a connection over verbs, which it introduces; to be answered likewise.
    Introduces(Vec<u8>),
    /// It has its answer: its stream is a peer's now.
    Admitted(Wire),
    /// It ends.
    Leave(String),
}

/// One accepted connection.
pub(super) struct Guest {
    state: State<Wire>,
    answered: bool,
    refused: Option<String>,
    /// Which answerer this is the lifeline of.
    pub(super) answerer: Option<Id>,
}

impl Guest {
    pub(super) fn new(wire: Wire, admission: Admission) -> Self {
        let limits = Limits {
            frame_bytes_max: HELLO_BYTES_MAX,
            ..Limits::of_messages()
        };
        let mut state = State::new(wire, limits, admission, None);
        state.flush();
        Self {
            state,
            answered: false,
            refused: None,
            answerer: None,
        }
    }

    /// Receive and send what can be. Once it is answered nothing is received: what comes then is the peer's.
    pub(super) fn step(&mut self) -> Verdict {
        self.state.flush();
        if !self.answered {
            self.state.receive();
            if let Some(message) = self.state.take() {
                return self.hear(message[0].as_slice());
            }
        }
        if let Some(fault) = self.state.end() {
            return Verdict::Leave(fault.to_error("a client", Delivered::No).to_string());
        }
        if !self.answered || self.wants_write() {
            return Verdict::Stay;
        }
        if let Some(why) = self.refused.take() {
            return Verdict::Leave(why);
        }
        match self.state.take_stream() {
            Some(wire) => Verdict::Admitted(wire),
            None => Verdict::Leave("it sent more than its hello".to_owned()),
        }
    }

    fn hear(&mut self, hello: &[u8]) -> Verdict {
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
        self.answer(welcome.encode());
        self.step()
    }

    pub(super) fn refuse(&mut self, error: &Error) {
        self.refused = Some(error.to_string());
        self.answer(Welcome::refusal(error));
    }

    fn answer(&mut self, message: Vec<u8>) {
        self.answered = true;
        self.state.send(&mut vec![message]);
    }

    /// What its socket is watched for.
    pub(super) fn wants_read(&self) -> bool {
        !self.answered
    }

    pub(super) fn wants_write(&self) -> bool {
        self.state.wants_write() || !self.state.outbox.is_empty()
    }

    /// Whether bytes lie in its stream of which the socket says nothing.
    pub(super) fn holds_received(&self) -> bool {
        !self.answered && self.state.holds_received()
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

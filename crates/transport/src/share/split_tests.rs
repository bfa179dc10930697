//! Lending over a scripted stream that moves a few bytes at a time, and loses descriptors as the kernel does.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Instant;

use rustix::io::Errno;

use crate::alone::alone;
use crate::calls::call::{Outcome, Taker};
use crate::calls::state::ConnectionState;
use crate::limit::{LEND_BYTES_MIN, Limits};
use crate::link::admission::Handshake;
use crate::link::outbox::{Head, Payload};
use crate::stream::{Stream, StreamFault};
use crate::sys::buffer::Buffer;
use crate::wire::frame::{Codec, Header, Kind};
use crate::wire::role::Role;

/// One direction: bytes, and descriptors by the position of the byte that they came with.
#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    descriptors: VecDeque<(usize, OwnedFd)>,
    sent: usize,
    taken: usize,
}

struct Script {
    out: Rc<RefCell<Pipe>>,
    into: Rc<RefCell<Pipe>>,
    step: usize,
    /// Every second attempt would block.
    blocked: bool,
    outgoing: Vec<OwnedFd>,
    incoming: VecDeque<OwnedFd>,
    asks: bool,
}

impl Stream for Script {
    fn send(&mut self, pieces: &[IoSlice<'_>]) -> Result<usize, StreamFault> {
        self.blocked = !self.blocked;
        if self.blocked {
            return Err(Errno::AGAIN.into());
        }
        let mut pipe = self.out.borrow_mut();
        let bytes = pieces.iter().flat_map(|piece| piece.iter().copied());
        let before = pipe.bytes.len();
        pipe.bytes.extend(bytes.take(self.step));
        let count = pipe.bytes.len() - before;
        if count > 0 {
            let at = pipe.sent;
            let given = self.outgoing.drain(..).map(|descriptor| (at, descriptor));
            pipe.descriptors.extend(given);
        }
        pipe.sent += count;
        Ok(count)
    }

    #[allow(clippy::incompatible_msrv)] // tests run on the repository's toolchain
    fn receive<'a>(
        &mut self,
        into: &'a mut [MaybeUninit<u8>],
    ) -> Result<&'a mut [u8], StreamFault> {
        let mut pipe = self.into.borrow_mut();
        let mut count = self.step.min(into.len()).min(pipe.bytes.len());
        if count == 0 {
            return Err(Errno::AGAIN.into());
        }
        let next = pipe.descriptors.front().map(|(at, _)| *at);
        while let Some((at, _)) = pipe.descriptors.front()
            && Some(*at) == next
            && *at < pipe.taken + count
        {
            let (_, descriptor) = pipe.descriptors.pop_front().expect("the front");
            if self.asks {
                self.incoming.push_back(descriptor); // else it is closed: nobody asked
            }
        }
        if let Some((at, _)) = pipe.descriptors.front() {
            count = count.min(at - pipe.taken); // no receive goes past two sets of them
        }
        pipe.taken += count;
        let bytes: Vec<u8> = pipe.bytes.drain(..count).collect();
        Ok(into[..count].write_copy_of_slice(&bytes))
    }

    fn hung_up(&self) -> bool {
        false
    }

    fn carries_descriptors(&self) -> bool {
        true
    }

    fn ask_for_descriptors(&mut self) {
        self.asks = true;
    }

    fn attach(&mut self, descriptors: Vec<OwnedFd>) -> bool {
        self.outgoing.extend(descriptors);
        true
    }

    fn next_descriptor(&mut self) -> Option<OwnedFd> {
        self.incoming.pop_front()
    }
}

fn ends(step: usize) -> (ConnectionState<Script>, ConnectionState<Script>) {
    let (there, back) = (Rc::default(), Rc::default());
    let end = |out: &Rc<RefCell<Pipe>>, into: &Rc<RefCell<Pipe>>, role| {
        let script = Script {
            out: Rc::clone(out),
            into: Rc::clone(into),
            step,
            blocked: false,
            outgoing: Vec::new(),
            incoming: VecDeque::new(),
            asks: false,
        };
        let mut state = ConnectionState::new(role, Limits::default(), 0, Handshake::default());
        state.connect(script, true);
        state
    };
    (
        end(&there, &back, Role::Caller),
        end(&back, &there, Role::Server),
    )
}

fn segments(byte: u8) -> Vec<Payload> {
    vec![
        Box::new(vec![byte; LEND_BYTES_MIN]),
        Box::new(vec![byte; 5]),
        Box::new(vec![byte + 1; LEND_BYTES_MIN + 4096]),
    ]
}

/// Name what can be named, as a connection does around its lock.
fn named(state: &mut ConnectionState<Script>, header: &mut Header, byte: u8) -> Vec<Payload> {
    let segments = segments(byte);
    let writer = state.lending().writer();
    let staged = writer.map_or_else(Vec::new, |writer| {
        let put = |segment: &Payload| {
            let bytes = (**segment).as_ref();
            (bytes.len() >= LEND_BYTES_MIN)
                .then(|| writer.stage(bytes, 0))
                .flatten()
        };
        segments.iter().map(put).collect()
    });
    header.segments = u16::try_from(segments.len()).expect("few");
    header.codec = Codec::Pickle;
    state.name_staged(header, segments, staged)
}

fn pump(from: &mut ConnectionState<Script>, to: &mut ConnectionState<Script>) {
    for _ in 0..16 * LEND_BYTES_MIN {
        from.flush();
        to.receive();
        let through = from.link().outbox().is_empty()
            && to
                .link()
                .stream()
                .expect("open")
                .into
                .borrow()
                .bytes
                .is_empty();
        if through {
            break;
        }
    }
    assert_eq!((from.link().fault(), to.link().fault()), (None, None));
}

fn check(received: &[Buffer], byte: u8, lent: bool) {
    let shared: Vec<bool> = received.iter().map(Buffer::is_shared).collect();
    assert_eq!(shared, [lent, false, lent]);
    for (one, sent) in received.iter().zip(segments(byte)) {
        assert!(one.as_slice() == (*sent).as_ref());
    }
}

#[test]
fn wherever_the_stream_is_cut_descriptors_meet_their_frames() {
    let _alone = alone();
    for step in [1, 7, 23, 24, 56, 1000, usize::MAX] {
        let (mut caller, mut server) = ends(step);
        for round in 0..4 {
            let id = caller.calls().next_id();
            let mut header = Header::control(Kind::Call, id);
            let given = named(&mut caller, &mut header, round);
            caller.calls().begin(id, Taker::Thread, u64::MAX);
            caller.send(header, Head::Borrowed(&[]), given);
            pump(&mut caller, &mut server);
            let call = server
                .inbox()
                .next(Instant::now())
                .expect("a call")
                .expect("to run");
            check(&call.segments, round, round > 0);
            drop(call);

            let mut header = Header::control(Kind::Reply, id);
            let given = named(&mut server, &mut header, round + 100);
            server.answer(header, None, Head::Borrowed(&[]), given);
            pump(&mut server, &mut caller);
            let Some(Outcome::Reply(frame)) = caller.calls().take(id) else {
                panic!("no answer in steps of {step}");
            };
            // The caller borrows from the first answer on, and says so with its next call.
            check(&frame.segments, round + 100, round > 0);
        }
        for state in [caller, server] {
            assert_eq!(state.lending().lent(), 0);
        }
    }
}

//! Two streams in memory, joined crosswise, that move a few bytes at a time.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::rc::Rc;

use rustix::io::Errno;

use crate::stream::tls::{Client, Server, Tls};
use crate::stream::{Stream, StreamFault};
use crate::sys::filling::Filling;

/// One direction.
#[derive(Default)]
pub struct Way {
    pub bytes: VecDeque<u8>,
    pub room: usize,
    pub closed: bool,
    /// The longest that it ever was.
    pub peak: usize,
}

pub type Shared = Rc<RefCell<Way>>;

pub struct Pipe {
    pub out: Shared,
    pub into: Shared,
    /// Most bytes of one call.
    pub step: usize,
}

impl Stream for Pipe {
    fn send(&mut self, pieces: &[IoSlice<'_>]) -> Result<usize, StreamFault> {
        let mut out = self.out.borrow_mut();
        if out.closed {
            return Err(Errno::PIPE.into());
        }
        let bytes = pieces.iter().flat_map(|piece| piece.iter());
        let room = self.step.min(out.room - out.bytes.len());
        if room == 0 {
            return Err(Errno::AGAIN.into());
        }
        let before = out.bytes.len();
        out.bytes.extend(bytes.take(room));
        out.peak = out.peak.max(out.bytes.len());
        Ok(out.bytes.len() - before)
    }

    fn receive<'a>(
        &mut self,
        into: &'a mut [MaybeUninit<u8>],
    ) -> Result<&'a mut [u8], StreamFault> {
        let mut from = self.into.borrow_mut();
        let count = from.bytes.len().min(into.len()).min(self.step);
        if count == 0 && !from.closed {
            return Err(Errno::AGAIN.into());
        }
        let bytes: Vec<u8> = from.bytes.drain(..count).collect();
        let mut filling = Filling::new(into);
        filling.append(&bytes);
        Ok(filling.finish())
    }

    fn hung_up(&self) -> bool {
        self.into.borrow().closed
    }
}

/// Two ends; each direction holds `room` bytes and moves `step` at a time.
pub fn pipes(step: usize, room: usize) -> (Pipe, Pipe) {
    let way = || {
        Rc::new(RefCell::new(Way {
            room,
            ..Way::default()
        }))
    };
    let (there, back) = (way(), way());
    let end = |out: &Shared, into: &Shared| Pipe {
        out: out.clone(),
        into: into.clone(),
        step,
    };
    (end(&there, &back), end(&back, &there))
}

/// Client and server over a pipe, before their handshake.
pub fn ends(server: &Server, client: &Client, step: usize, room: usize) -> (Tls<Pipe>, Tls<Pipe>) {
    let (one, other) = pipes(step, room);
    let client = client.connect(one, "localhost").expect("a client");
    (client, server.accept(other).expect("a server"))
}

/// Receive up to `room` bytes; `None` where it would block.
pub fn receive(end: &mut Tls<Pipe>, room: usize) -> Result<Option<Vec<u8>>, StreamFault> {
    let mut memory = vec![MaybeUninit::uninit(); room];
    match end.receive(&mut memory) {
        Ok(bytes) => Ok(Some(bytes.to_vec())),
        Err(fault) if fault.is_transient() => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// Let both ends talk until their handshake ends, one of them fails, or nothing moves.
pub fn handshake(client: &mut Tls<Pipe>, server: &mut Tls<Pipe>) -> [Result<(), StreamFault>; 2] {
    let mut outcomes = [Ok(()), Ok(())];
    for _ in 0..100_000 {
        for (end, outcome) in [&mut *client, &mut *server].into_iter().zip(&mut outcomes) {
            if outcome.is_ok() {
                let step = end.flush().and_then(|()| receive(end, 4096));
                *outcome = step.map(|bytes| assert_eq!(bytes, None, "nothing was sent"));
            }
        }
        let quiet = [&client, &server].iter().all(|end| {
            let pipe = end.inner();
            pipe.into.borrow().bytes.is_empty() && !end.wants_write()
        });
        if quiet || outcomes.iter().all(Result::is_err) {
            break;
        }
    }
    outcomes
}

/// Both ends after their handshake.
pub fn connected(
    server: &Server,
    client: &Client,
    step: usize,
    room: usize,
) -> (Tls<Pipe>, Tls<Pipe>) {
    let (mut one, mut other) = ends(server, client, step, room);
    assert_eq!(handshake(&mut one, &mut other), [Ok(()), Ok(())]);
    assert!(!one.is_handshaking() && !other.is_handshaking());
    (one, other)
}

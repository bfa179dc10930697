//! One worker's connection to one server: a requester and its socket.
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use forebay_tensor::{End, Limits, Meaning, Outcome as Ended, Pull, Requester, Rows, Span};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Outcome;
use crate::memory::Destination;
use crate::options::Options;
use crate::sys;

const SPANS: usize = 64;
const PATIENCE_S: i64 = 30;

/// What a pull is about: the number of its tensor, and where the rows go. A look-up has none.
pub type Held = Option<(usize, Destination)>;

/// A requester and its socket.
#[derive(Debug)]
pub struct Connection {
    pub socket: OwnedFd,
    requester: Requester<Held>,
    meanings: Vec<Meaning>,
    /// Pulls of the step that have not ended.
    pub left: usize,
    /// Whether the socket is watched for room.
    pub is_watched: bool,
}

impl Connection {
    /// Look the server's tensors up.
    pub fn new(socket: OwnedFd, options: &Options) -> Outcome<Self> {
        let limits = Limits {
            slots: options.slots,
            grant_bytes: crate::grant(*options),
            entries_max: options.entries,
            liveness: Duration::from_secs(60),
            ..Limits::default()
        };
        let mut made = Self {
            socket,
            requester: Requester::new(limits, Instant::now())?,
            meanings: Vec::new(),
            left: 0,
            is_watched: false,
        };
        made.look_up(options.tensors)?;
        Ok(made)
    }

    fn look_up(&mut self, tensors: usize) -> Outcome<()> {
        let names: Vec<String> = (0..tensors).map(crate::tensor_name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let submitted = self.requester.look_up(&names, None);
        submitted.map_err(|refused| refused.error)?;
        loop {
            self.send()?;
            self.receive()?;
            match self.requester.take_end() {
                None => self.wait()?,
                Some(End::Over { result, .. }) => {
                    let Ended::Names(found) = result? else {
                        return Err("a look-up ended as something else".into());
                    };
                    let found: Result<Vec<Meaning>, _> = found.into_iter().collect();
                    self.meanings = found.map_err(|_| "a tensor is not there")?;
                    return Ok(());
                }
                Some(_) => return Err("a look-up ended late".into()),
            }
        }
    }

    fn wait(&self) -> Outcome<()> {
        let patience = Timespec {
            tv_sec: PATIENCE_S,
            tv_nsec: 0,
        };
        let mut descriptors = [PollFd::new(&self.socket, PollFlags::IN)];
        if poll(&mut descriptors, Some(&patience))? == 0 {
            return Err("a server does not answer".into());
        }
        Ok(())
    }

    /// Pull all of a tensor.
    pub fn pull(&mut self, tensor: usize, destination: Destination) -> Outcome<()> {
        let meaning = &self.meanings[tensor];
        let pull = Pull {
            tensor: meaning.key,
            row_bytes: meaning.row_bytes(),
            rows_total: meaning.rows(),
            rows: Rows::Slice {
                first: 0,
                count: meaning.rows(),
            },
            out: destination.span(),
            places: None,
        };
        let pulled = self.requester.pull(pull, Some((tensor, destination)));
        pulled.map_err(|refused| refused.error)?;
        self.left += 1;
        Ok(())
    }

    /// Send what there is; whether the socket has no room for the rest.
    pub fn send(&mut self) -> Outcome<bool> {
        let mut spans = [Span::EMPTY; SPANS];
        loop {
            let count = self.requester.outgoing(&mut spans);
            if count == 0 {
                return Ok(false);
            }
            match sys::send(self.socket.as_fd(), &spans[..count])? {
                None => return Ok(true),
                Some(bytes) => self.requester.sent(bytes, Instant::now()),
            }
        }
    }

    /// Receive what is there.
    pub fn receive(&mut self) -> Outcome<()> {
        loop {
            let spans = self.requester.incoming();
            let room: usize = spans.iter().map(Span::bytes).sum();
            match sys::receive(self.socket.as_fd(), &spans)? {
                None => return Ok(()),
                Some(0) => return Err("a server has gone".into()),
                Some(bytes) => {
                    self.requester.received(bytes, Instant::now())?;
                    if bytes < room {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// A copy of what is to be sent, for a link with latency.
    pub fn take_outgoing(&mut self) -> Vec<u8> {
        let mut spans = [Span::EMPTY; SPANS];
        let mut bytes = Vec::new();
        loop {
            let count = self.requester.outgoing(&mut spans);
            if count == 0 {
                return bytes;
            }
            let before = bytes.len();
            for span in &spans[..count] {
                sys::read(*span, &mut bytes);
            }
            self.requester.sent(bytes.len() - before, Instant::now());
        }
    }

    /// Bytes that have come over a link with latency.
    pub fn feed(&mut self, bytes: &[u8]) -> Outcome<()> {
        Ok(self.requester.feed(bytes, Instant::now())?)
    }

    /// A pull that has ended: its tensor, and where its rows are.
    pub fn take_end(&mut self) -> Outcome<Option<(usize, Destination)>> {
        match self.requester.take_end() {
            None => Ok(None),
            Some(End::Over { keeper, result, .. }) => {
                result?;
                self.left -= 1;
                Ok(keeper)
            }
            Some(_) => Err("a pull ended late".into()),
        }
    }
}

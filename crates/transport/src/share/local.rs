//! A Unix stream socket that carries descriptors beside its bytes.
//!
//! The kernel delivers descriptors with the first byte they were sent with, and discards them if that byte is received
//! by a call without an ancillary buffer. So an end sends none before the receiver has said that it asks for them.
//! Descriptors go out with whichever bytes the kernel takes next: they arrive no later than the frame that refers to
//! them, and in the order of such frames, so that a queue at each end suffices.
//!
//! Beside a ring in shared memory nothing but records goes over the socket, each by one call with its descriptors. So
//! `stream::shm::lifeline` needs no queue and no asking: it sends and receives packets of `forebay_base`.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, sendmsg,
};

use crate::error::Violation;
use crate::limit::{SEND_DESCRIPTORS_MAX, WINDOWS_MAX};
use crate::stream::{Socket, Stream, StreamFault};
use crate::sys::descriptor;

/// The socket, and descriptors in transit.
#[derive(Debug)]
pub struct Local {
    socket: Socket,
    outgoing: Vec<OwnedFd>,
    incoming: VecDeque<OwnedFd>,
    /// Whether receives ask for descriptors, which costs a little: only from the first need on.
    asks: bool,
}

impl Local {
    /// Until descriptors are sent or asked for, it acts as the plain socket.
    pub fn new(socket: Socket) -> Self {
        Self {
            socket,
            outgoing: Vec::new(),
            incoming: VecDeque::new(),
            asks: false,
        }
    }

    /// The socket itself.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Whether no descriptor waits to be sent, or for its frame.
    pub fn is_between_frames(&self) -> bool {
        self.outgoing.is_empty() && self.incoming.is_empty()
    }

    fn send_with_descriptors(&mut self, pieces: &[IoSlice<'_>]) -> Result<usize, StreamFault> {
        let given: Vec<BorrowedFd<'_>> = self.outgoing.iter().map(AsFd::as_fd).collect();
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SEND_DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&given));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = loop {
            match sendmsg(&self.socket, pieces, &mut ancillary, flags) {
                Err(Errno::INTR) => {}
                outcome => break outcome?,
            }
        };
        if sent > 0 {
            self.outgoing.clear();
        }
        Ok(sent)
    }

    fn receive_with_descriptors<'a>(
        &mut self,
        into: &'a mut [MaybeUninit<u8>],
    ) -> Result<&'a mut [u8], StreamFault> {
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SEND_DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let (filled, cut) = descriptor::receive(self.socket.as_fd(), into, &mut ancillary)?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                self.incoming.extend(rights);
            }
        }
        // Too many came, or this process has no free descriptor: the kernel has closed the others.
        if cut || self.incoming.len() > WINDOWS_MAX {
            return Err(Violation::Descriptors.into());
        }
        Ok(filled)
    }
}

impl Stream for Local {
    fn send(&mut self, pieces: &[IoSlice<'_>]) -> Result<usize, StreamFault> {
        if self.outgoing.is_empty() {
            return self.socket.send(pieces);
        }
        self.send_with_descriptors(pieces)
    }

    fn receive<'a>(
        &mut self,
        into: &'a mut [MaybeUninit<u8>],
    ) -> Result<&'a mut [u8], StreamFault> {
        if self.asks {
            return self.receive_with_descriptors(into);
        }
        self.socket.receive(into)
    }

    fn hung_up(&self) -> bool {
        self.socket.hung_up()
    }

    fn carries_descriptors(&self) -> bool {
        true
    }

    fn ask_for_descriptors(&mut self) {
        self.asks = true;
    }

    fn attach(&mut self, descriptors: Vec<OwnedFd>) -> bool {
        let room = self.outgoing.len() + descriptors.len() <= SEND_DESCRIPTORS_MAX;
        if room {
            self.outgoing.extend(descriptors);
        }
        room
    }

    fn next_descriptor(&mut self) -> Option<OwnedFd> {
        self.incoming.pop_front()
    }
}

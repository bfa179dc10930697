//! A Unix stream socket that carries descriptors beside its bytes.
//!
//! The kernel gives descriptors out with the first byte that they were sent with, and throws them away where that byte
//! is received by a call that does not ask for them. So nobody sends one before the receiver has said that it asks.
//! Descriptors go with the next bytes that the kernel takes, whichever these are: they come no later than the frame that
//! speaks of them, and in the order of such frames, so that a queue at each end suffices.

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
use crate::limit::{DESCRIPTORS_MAX, WINDOWS_MAX};
use crate::stream::socket::Socket;
use crate::stream::{Stream, StreamFault};
use crate::sys::descriptor;

/// The socket, and descriptors on their way.
#[derive(Debug)]
pub struct Local {
    socket: Socket,
    outgoing: Vec<OwnedFd>,
    incoming: VecDeque<OwnedFd>,
    /// Whether receiving asks for descriptors; that costs a little, so it does from the first need on.
    asks: bool,
}

impl Local {
    /// Without descriptors it is the socket.
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

    fn send_with_descriptors(&mut self, pieces: &[IoSlice<'_>]) -> Result<usize, StreamFault> {
        let given: Vec<BorrowedFd<'_>> = self.outgoing.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
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
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let (filled, cut) = descriptor::receive(self.socket.as_fd(), into, &mut ancillary)?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                self.incoming.extend(rights);
            }
        }
        // Too many came, or this process has no room for more: the kernel has closed the rest.
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
        let room = self.outgoing.len() + descriptors.len() <= DESCRIPTORS_MAX;
        if room {
            self.outgoing.extend(descriptors);
        }
        room
    }

    fn next_descriptor(&mut self) -> Option<OwnedFd> {
        self.incoming.pop_front()
    }
}

//! One message with descriptors over a sequenced-packet socket.
//!
//! Packets keep their borders, so there is no framing; descriptors are received close-on-exec.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};

use crate::error::{Error, Result};
use crate::limit::{CONTROL_BYTES_MAX, CONTROL_FDS_MAX};

/// A received message.
#[derive(Debug)]
pub struct Packet {
    /// Its bytes; empty at end of file.
    pub bytes: Vec<u8>,
    /// Its descriptors, in the order sent; fewer where this process could not have so many.
    pub descriptors: Vec<OwnedFd>,
}

/// A connected pair for messages.
pub fn pair() -> Result<(OwnedFd, OwnedFd)> {
    pair_of(SocketType::SEQPACKET)
}

/// A connected pair for a service: its client's end and its own.
pub fn stream_pair() -> Result<(OwnedFd, OwnedFd)> {
    pair_of(SocketType::STREAM)
}

fn pair_of(kind: SocketType) -> Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
        .map_err(Error::system("socketpair"))
}

/// Send a message; `Errno::AGAIN` where `flags` hold `DONTWAIT` and the socket is full.
pub fn send(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> std::result::Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(CONTROL_FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::TOOMANYREFS);
    }
    loop {
        match sendmsg(
            &socket,
            &[IoSlice::new(bytes)],
            &mut control,
            flags | SendFlags::NOSIGNAL,
        ) {
            Err(Errno::INTR) => {}
            done => return done.map(drop),
        }
    }
}

/// The receiving side of a socket: its buffer is obtained once.
#[derive(Debug)]
pub struct Receiver(Box<[u8]>);

impl Default for Receiver {
    fn default() -> Self {
        Self(vec![0; CONTROL_BYTES_MAX].into_boxed_slice())
    }
}

impl Receiver {
    /// Receive a message; `None` where `flags` hold `DONTWAIT` and there is none.
    pub fn receive(&mut self, socket: impl AsFd, flags: RecvFlags) -> Result<Option<Packet>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(CONTROL_FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = flags | RecvFlags::CMSG_CLOEXEC;
        let message = loop {
            match recvmsg(
                &socket,
                &mut [IoSliceMut::new(&mut self.0)],
                &mut control,
                flags,
            ) {
                Ok(message) => break message,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => return Err(Error::Interrupted),
                // The other end was closed with something unread. That is told once, before what it sent last.
                Err(Errno::CONNRESET) => {}
                Err(errno) => return Err(Error::system("recvmsg")(errno)),
            }
        };
        let mut descriptors = Vec::new();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = part {
                descriptors.extend(received);
            }
        }
        // `CTRUNC` says that descriptors were lost, which the reader of the message notices: it must not take down
        // what else it serves.
        if message.flags.contains(ReturnFlags::TRUNC) {
            return Err(Error::Malformed {
                what: "a message was cut short",
            });
        }
        Ok(Some(Packet {
            bytes: self.0[..message.bytes].to_vec(),
            descriptors,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_last_arrives_although_the_other_end_was_closed_with_something_unread() {
        let (ours, theirs) = pair().expect("made");
        send(&ours, b"never read", &[], SendFlags::empty()).expect("sent");
        send(&theirs, b"the last word", &[], SendFlags::empty()).expect("sent");
        drop(theirs);
        let mut receiver = Receiver::default();
        // Blocking: a child that another test is starting has the other end until it executes.
        let mut next = || receiver.receive(&ours, RecvFlags::empty());
        let heard = next().expect("heard").expect("it was sent");
        assert_eq!(heard.bytes, b"the last word");
        let end = next().expect("heard").expect("the end of file");
        assert!(end.bytes.is_empty());
    }
}

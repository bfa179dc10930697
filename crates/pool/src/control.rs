//! Control messages: packets of at most `CONTROL_BYTES_MAX` bytes between client, keeper, template and lender.
//!
//! Over [`forebay_base::packet`] this adds what those processes agree on: a message is read whole or refused, a reset
//! by the peer does not hide what it sent before, and the receiving buffer is obtained once.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use forebay_base::packet;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketType};

use crate::error::{Error, Result};
use crate::limit::{CONTROL_BYTES_MAX, CONTROL_FDS_MAX};

const _: () = assert!(CONTROL_FDS_MAX <= packet::PACKET_DESCRIPTORS_MAX);

/// A received message.
#[derive(Debug)]
pub struct Packet {
    /// Its bytes; empty at end of file.
    pub bytes: Vec<u8>,
    /// Its descriptors, in the order sent; fewer where this process could not have so many.
    pub descriptors: Vec<OwnedFd>,
    /// Whether there are fewer.
    pub descriptors_lost: bool,
}

/// A connected pair for messages.
pub fn pair() -> Result<(OwnedFd, OwnedFd)> {
    packet::pair(SocketType::SEQPACKET).map_err(Error::system("socketpair"))
}

/// A connected pair for a service: its client's end and its own.
pub fn stream_pair() -> Result<(OwnedFd, OwnedFd)> {
    packet::pair(SocketType::STREAM).map_err(Error::system("socketpair"))
}

/// Send a message; `Errno::AGAIN` where `flags` hold `DONTWAIT` and the socket is full.
pub fn send(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> std::result::Result<(), Errno> {
    packet::send(socket, bytes, descriptors, flags).map(drop)
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
        let received = loop {
            match packet::receive(&socket, &mut self.0, flags) {
                Ok(received) => break received,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => return Err(Error::Interrupted),
                // The peer closed with unread messages. The kernel reports that once, before what the peer sent last.
                Err(Errno::CONNRESET) => {}
                Err(errno) => return Err(Error::system("recvmsg")(errno)),
            }
        };
        if received.cut {
            return Err(Error::Malformed {
                what: "a message was cut short",
            });
        }
        // Lost descriptors are no error here: the reader of the message finds fewer than it needs and refuses that one
        // request, where an error would end all that the receiving process serves.
        Ok(Some(Packet {
            bytes: self.0[..received.bytes].to_vec(),
            descriptors: received.descriptors,
            descriptors_lost: received.descriptors_lost,
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
        let last = next().expect("received").expect("it was sent");
        assert_eq!(last.bytes, b"the last word");
        let end = next().expect("received").expect("the end of file");
        assert!(end.bytes.is_empty());
    }
}

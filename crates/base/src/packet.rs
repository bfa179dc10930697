//! Packets with descriptors over a Unix socket of kind `SEQPACKET`, or records over a stream.
//!
//! A sequenced packet keeps its borders, so there is no framing. Descriptors are received close-on-exec. Two flags of
//! recvmsg(2) are for the caller to judge: bytes that did not fit, and descriptors that were lost because the sender sent
//! more than [`PACKET_DESCRIPTORS_MAX`] or this process has none left. Sources: unix(7), recvmsg(2), cmsg(3).

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};

/// Descriptors of one packet.
pub const PACKET_DESCRIPTORS_MAX: usize = 4;

/// What one call received. Its bytes lie in the caller's buffer.
#[derive(Debug)]
pub struct Received {
    /// How many bytes; 0 at the end of file.
    pub bytes: usize,
    /// The descriptors, in the order sent.
    pub descriptors: Vec<OwnedFd>,
    /// The packet had more bytes than the buffer.
    pub cut: bool,
    /// It had more descriptors than could be had; the kernel has closed the others.
    pub descriptors_lost: bool,
}

/// A connected pair of sockets, close-on-exec.
///
/// # Errors
/// Those of socketpair(2).
pub fn pair(kind: SocketType) -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
}

/// Send bytes and descriptors by one call; how many bytes were taken: all, but where the socket is a stream.
///
/// The descriptors stay the caller's. A peer that is gone makes an error, not a SIGPIPE.
///
/// # Errors
/// `AGAIN` where `flags` hold `DONTWAIT` and the socket is full; `TOOMANYREFS` for more than [`PACKET_DESCRIPTORS_MAX`]; those
/// of sendmsg(2) but `INTR`.
pub fn send(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PACKET_DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    // The space is aligned, so one more may fit that the receiver's does not hold.
    if descriptors.len() > PACKET_DESCRIPTORS_MAX {
        return Err(Errno::TOOMANYREFS);
    }
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let flags = flags | SendFlags::NOSIGNAL;
    loop {
        match sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

/// Receive one packet into `into`.
///
/// # Errors
/// `AGAIN` where `flags` hold `DONTWAIT` and there is none; `INTR`; `CONNRESET` once, before what the peer sent last,
/// where it has closed with something unread; those of recvmsg(2).
pub fn receive(socket: impl AsFd, into: &mut [u8], flags: RecvFlags) -> Result<Received, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PACKET_DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let message = recvmsg(socket, &mut [IoSliceMut::new(into)], &mut control, flags)?;
    let mut descriptors = Vec::new(); // allocates where there are some
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = part {
            descriptors.extend(received);
        }
    }
    Ok(Received {
        bytes: message.bytes,
        descriptors,
        cut: message.flags.contains(ReturnFlags::TRUNC),
        descriptors_lost: message.flags.contains(ReturnFlags::CTRUNC),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &OwnedFd, into: &mut [u8]) -> Received {
        receive(socket, into, RecvFlags::DONTWAIT).expect("a packet")
    }

    #[test]
    fn packets_keep_their_borders_and_their_descriptors() {
        let (ours, theirs) = pair(SocketType::SEQPACKET).expect("made");
        let lent = [theirs.as_fd(), ours.as_fd()];
        assert_eq!(send(&ours, b"first", &lent, SendFlags::empty()), Ok(5));
        assert_eq!(send(&ours, b"second", &[], SendFlags::empty()), Ok(6));
        let mut buffer = [0; 16];
        let first = received(&theirs, &mut buffer);
        assert_eq!((first.bytes, first.descriptors.len()), (5, 2));
        assert!(!first.cut && !first.descriptors_lost);
        assert_eq!(received(&theirs, &mut buffer).bytes, 6);
        let nothing = receive(&theirs, &mut buffer, RecvFlags::DONTWAIT);
        assert_eq!(nothing.expect_err("nothing is there"), Errno::AGAIN);
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let (ours, theirs) = pair(SocketType::SEQPACKET).expect("made");
        send(&ours, b"too long", &[], SendFlags::empty()).expect("sent");
        assert!(received(&theirs, &mut [0; 3]).cut);
        let many = [ours.as_fd(); PACKET_DESCRIPTORS_MAX + 1];
        let refused = send(&ours, b"x", &many, SendFlags::empty());
        assert_eq!(refused, Err(Errno::TOOMANYREFS));
    }
}

//! A server that lends and borrows, and a caller that lies.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use forebay_memory::{Config, Region};
use proptest::prelude::*;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use crate::calls::{Connection, Options};
use crate::error::{Error, Violation};
use crate::limit::{LEND_BYTES_MIN, LENT_FRAMES_MAX, Limits};
use crate::link::outbox::Head;
use crate::messages::named::NAMED;
use crate::share::return_table;
use crate::stream::shm::Name;
use crate::stream::unix;
use crate::wire::frame::{Codec, Header, Kind};
use crate::wire::preface::{LENDS, Preface};
use crate::wire::role::Role;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

/// A caller made of bytes, in front of a server.
struct HostilePeer {
    socket: OwnedFd,
    server: Connection,
}

impl HostilePeer {
    fn new() -> Self {
        let (socket, theirs) = unix::pair().expect("sockets");
        let server = Connection::new(theirs, Options::new(Role::Server, "a peer"));
        let peer = Self {
            socket,
            server: server.expect("a server"),
        };
        let mut preface = Preface::new(Role::Caller, &Limits::default(), 0);
        preface.features |= LENDS;
        peer.say(&preface.encode(), &[]);
        peer
    }

    /// One to whom the server has said that it borrows, by its answer to a long segment.
    fn borrowed_from() -> Self {
        let peer = Self::new();
        peer.call(1, false, &[&vec![0; LEND_BYTES_MIN]]);
        peer.server
            .next_call(Some(soon()))
            .expect("alive")
            .expect("a call");
        let head = Head::Borrowed(&[]);
        let answered = peer.server.reply(1, Codec::Msgpack, head, Vec::new());
        answered.expect("sent");
        peer
    }

    fn say(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let mut sent = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| self.server.receive()); // a socket has less room than a long segment
            while sent < bytes.len() {
                let pieces = [IoSlice::new(&bytes[sent..])];
                let outcome = sendmsg(&self.socket, &pieces, &mut ancillary, SendFlags::NOSIGNAL);
                sent += outcome.expect("the server takes it");
                ancillary.clear();
                let _ = self.server.receive();
            }
        });
    }

    fn control(&self, kind: Kind, id: u64, descriptors: &[BorrowedFd<'_>]) {
        self.say(&Header::control(kind, id).encode(), descriptors);
    }

    fn call(&self, id: u64, named: bool, segments: &[&[u8]]) {
        let mut bytes = Vec::new();
        let header = Header {
            named,
            segments: u16::try_from(segments.len()).expect("few"),
            ..Header::control(Kind::Call, id)
        };
        bytes.extend_from_slice(&header.encode());
        for segment in segments {
            bytes.extend_from_slice(&(segment.len() as u64).to_le_bytes());
        }
        bytes.extend(segments.iter().copied().flatten());
        self.say(&bytes, &[]);
    }

    fn name(&self, name: Name) {
        let mut table = vec![NAMED];
        table.extend_from_slice(&name.encode());
        self.call(2, true, &[&table]);
    }

    /// What the server found wrong.
    fn violation(&self) -> Violation {
        let _ = self.server.receive();
        match self.server.fault() {
            Some(Error::Protocol { violation, .. }) => violation,
            other => panic!("{other:?}"),
        }
    }
}

fn memory(bytes: usize) -> OwnedFd {
    let region = Region::new(Config::new("invalid", bytes as u64)).expect("a region");
    let lease = region.allocate(bytes).expect("room");
    lease.share_chunk().expect("a descriptor")
}

const CHUNK_BYTES: usize = 64 << 10;

fn right() -> Name {
    Name {
        chunk: 4,
        slot: 0,
        generation: 1,
        offset: 4096,
        bytes: 8192,
    }
}

#[test]
fn a_right_name_is_believed() {
    let peer = HostilePeer::borrowed_from();
    peer.control(Kind::Chunk, 4, &[memory(CHUNK_BYTES).as_fd()]);
    peer.name(right());
    let call = peer
        .server
        .next_call(Some(soon()))
        .expect("alive")
        .expect("a call");
    assert_eq!((call.segments.len(), call.segments[0].len()), (1, 8192));
    drop(call);
    peer.control(Kind::Gone, 4, &[]);
    peer.name(right());
    assert!(matches!(
        peer.violation(),
        Violation::Reference { chunk: 4, .. }
    ));
}

#[test]
fn names_of_what_is_not_there_are_refused() {
    let invalid = [
        Name {
            chunk: 5,
            ..right()
        },
        Name {
            offset: CHUNK_BYTES as u64,
            ..right()
        },
        Name {
            offset: u64::MAX - 4095,
            ..right()
        },
        Name {
            offset: 64,
            ..right()
        },
        Name {
            bytes: CHUNK_BYTES as u64,
            ..right()
        },
        Name {
            bytes: u64::MAX,
            ..right()
        },
        Name {
            bytes: 0,
            ..right()
        },
        Name {
            generation: 0,
            ..right()
        },
        Name {
            slot: u32::try_from(LENT_FRAMES_MAX).expect("few"),
            ..right()
        },
    ];
    for invalid in invalid {
        let peer = HostilePeer::borrowed_from();
        peer.control(Kind::Chunk, 4, &[memory(CHUNK_BYTES).as_fd()]);
        peer.name(invalid);
        let found = peer.violation();
        assert!(
            matches!(found, Violation::Reference { .. }),
            "{invalid:?}: {found}"
        );
    }
}

#[test]
fn a_table_that_does_not_fit_is_refused() {
    let peer = HostilePeer::borrowed_from();
    peer.call(2, true, &[&[NAMED, 1, 2]]);
    assert_eq!(peer.violation(), Violation::Table(3));
}

#[test]
fn nobody_lends_uninvited() {
    let peer = HostilePeer::new();
    peer.name(right());
    assert!(matches!(peer.violation(), Violation::Lending(_)));
    let peer = HostilePeer::new();
    peer.control(Kind::Gone, 4, &[]);
    assert!(matches!(peer.violation(), Violation::Lending(_)));
}

#[test]
fn descriptors_that_are_missing_or_were_not_asked_for_are_missed() {
    let peer = HostilePeer::borrowed_from();
    peer.control(Kind::Chunk, 4, &[]);
    assert_eq!(peer.violation(), Violation::Descriptors);
    let peer = HostilePeer::new(); // no long segment was sent to it, so that its socket does not ask
    let process = pidfd_open(getpid(), PidfdFlags::empty()).expect("ours");
    peer.control(
        Kind::Borrow,
        0,
        &[memory(return_table::BYTES).as_fd(), process.as_fd()],
    );
    assert_eq!(peer.violation(), Violation::Descriptors);
}

#[test]
fn what_is_no_sealed_memory_is_not_mapped() {
    let peer = HostilePeer::borrowed_from();
    let file = std::fs::File::open("/proc/self/exe").expect("this program");
    peer.control(Kind::Chunk, 4, &[file.as_fd()]);
    assert!(matches!(peer.violation(), Violation::Window(_)));
    let peer = HostilePeer::borrowed_from();
    let small = memory(4096);
    peer.control(Kind::Borrow, 0, &[small.as_fd(), file.as_fd()]);
    assert!(matches!(peer.violation(), Violation::Geometry { .. }));
}

#[test]
fn a_peer_borrows_once() {
    let peer = HostilePeer::borrowed_from();
    let (return_table, process) = (
        memory(return_table::BYTES),
        pidfd_open(getpid(), PidfdFlags::empty()),
    );
    let given = [
        return_table.as_fd(),
        process.as_ref().expect("ours").as_fd(),
    ];
    peer.control(Kind::Borrow, 0, &given);
    peer.server.receive().expect("open");
    assert!(peer.server.fault().is_none());
    peer.control(Kind::Borrow, 0, &given);
    assert!(matches!(peer.violation(), Violation::Lending(_)));
}

#[test]
fn descriptors_without_frames_are_not_kept_without_limit() {
    let peer = HostilePeer::borrowed_from();
    let memory = memory(CHUNK_BYTES);
    while peer.server.fault().is_none() {
        peer.control(Kind::Ping, 0, &[memory.as_fd(); 4]);
    }
    assert_eq!(peer.violation(), Violation::Descriptors);
}

/// Numbers near what is right, and any others.
fn numbers(near: &'static [u64]) -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => proptest::sample::select(near),
        1 => any::<u64>(),
    ]
}

fn names() -> impl Strategy<Value = Name> {
    let offsets = numbers(&[0, 4096, 8192, 61_440, 65_536, 100]);
    let bytes = numbers(&[0, 1, 4096, 8192, 61_440, 65_536, 65_537]);
    let generations = numbers(&[0, 1, 2, u64::MAX]);
    (3..6_u32, 0..1026_u32, generations, offsets, bytes).prop_map(
        |(chunk, slot, generation, offset, bytes)| Name {
            chunk,
            slot,
            generation,
            offset,
            bytes,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is named, a server either has that much memory to read, or finds the invalid.
    #[test]
    fn any_names_are_read_or_refused(names in proptest::collection::vec(names(), 1..6), cut in 0..40_usize) {
        let peer = HostilePeer::borrowed_from();
        peer.control(Kind::Chunk, 4, &[memory(CHUNK_BYTES).as_fd()]);
        for name in &names {
            let mut table = vec![NAMED];
            table.extend_from_slice(&name.encode());
            table.truncate(table.len().saturating_sub(cut / 8));
            peer.call(2, true, &[&table]);
            let _ = peer.server.receive();
            if peer.server.fault().is_some() {
                break;
            }
            let call = peer.server.next_call(Some(soon())).expect("alive").expect("a call");
            let read: u64 = call.segments[0].as_slice().iter().map(|&byte| u64::from(byte)).sum();
            prop_assert_eq!((call.segments[0].len() as u64, read), (name.bytes, 0));
        }
    }
}

//! Memory that was given to receive into, and that no message takes, goes back outside of the lock: its owner may wait
//! for another one there.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};

use super::{MessageOptions, Messages};
use crate::error::{Delivered, Error, Violation};
use crate::limit::{DIRECT_BYTES_MIN, Limits};
use crate::link::admission::Admission;
use crate::stream::unix::pair;
use crate::sys::buffer::{Buffer, give};
use crate::wire::decoder::Decoder;
use crate::wire::frame::{Header, Kind};
use crate::wire::preface::Preface;
use crate::wire::role::Role;

/// Tells, when its memory goes back, whether the connection was locked.
struct Witness {
    messages: Weak<Messages>,
    told: Sender<bool>,
}

impl Drop for Witness {
    fn drop(&mut self) {
        let messages = self.messages.upgrade();
        let locked = messages.is_some_and(|messages| messages.state.try_lock().is_err());
        let _ = self.told.send(locked);
    }
}

fn options(admission: Admission) -> MessageOptions {
    MessageOptions {
        limits: Limits::of_messages(),
        peer: "the other end".into(),
        admission,
        token: None,
        trusted: true,
        allocator: None,
    }
}

/// An end that receives into memory that `sized` makes larger or smaller; where `twice`, another thread is first to
/// answer the first question for it.
fn receiver(
    socket: OwnedFd,
    admission: Admission,
    sized: fn(usize) -> usize,
    twice: bool,
) -> (Arc<Messages>, Receiver<bool>) {
    let (teller, told) = channel();
    let asked = AtomicUsize::new(0);
    let messages = Arc::new_cyclic(|messages: &Weak<Messages>| {
        let messages = Weak::clone(messages);
        let give_all = move |lengths: &[usize]| -> Vec<Option<Buffer>> {
            if asked.fetch_add(1, Ordering::Relaxed) == 0 && twice {
                let connection = messages.upgrade().expect("in use");
                connection.step(true, false).expect("open");
            }
            let give_one = |&bytes: &usize| {
                let (messages, told) = (Weak::clone(&messages), teller.clone());
                (bytes > 0).then(|| give(sized(bytes), Witness { messages, told }))
            };
            lengths.iter().map(give_one).collect()
        };
        let mut options = options(admission);
        options.allocator = Some(Box::new(give_all));
        Messages::new(socket, options)
    });
    (messages, told)
}

/// Such an end after it has received a long message, and what is told of the memory that it was given.
fn told_of(
    admission: Admission,
    sized: fn(usize) -> usize,
    twice: bool,
) -> (Arc<Messages>, Receiver<bool>) {
    let (ours, theirs) = pair().expect("sockets");
    let sender = Messages::new(ours, options(Admission::Anybody));
    let (messages, told) = receiver(theirs, admission, sized, twice);
    let mut message = vec![vec![7; DIRECT_BYTES_MIN]];
    sender.send(&mut message).expect("sent");
    messages.step(true, false).expect("open");
    (messages, told)
}

#[test]
fn what_a_second_thread_gives_for_the_same_message_goes_back_without_the_lock() {
    let (messages, told) = told_of(Admission::Anybody, |bytes| bytes, true);
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [false]);
    let message = messages.take().expect("open").expect("a message");
    assert!(message[0].is_given() && message[0].len() == DIRECT_BYTES_MIN);
    drop(message);
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [false]);
}

#[test]
fn what_does_not_fit_goes_back_without_the_lock() {
    let other_sizes: [fn(usize) -> usize; 2] = [|bytes| bytes - 1, |bytes| bytes + 1];
    for sized in other_sizes {
        let (messages, told) = told_of(Admission::Anybody, sized, false);
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [false]);
        let message = messages.take().expect("open").expect("a message");
        assert!(!message[0].is_given());
    }
}

#[test]
fn what_a_refused_message_was_received_into_goes_back_without_the_lock() {
    let admission = Admission::Token(b"not shown".to_vec());
    let (messages, told) = told_of(admission, |bytes| bytes, false);
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [false]);
    assert_eq!(violation_of(&messages), Some(Violation::Uninvited));
}

#[test]
fn what_came_with_a_wrong_token_goes_back_without_the_lock() {
    let (ours, theirs) = pair().expect("sockets");
    let admission = Admission::Token(b"not shown".to_vec());
    let (messages, told) = receiver(theirs, admission, |bytes| bytes, false);
    let header = Header {
        segments: 1,
        ..Header::control(Kind::Token, 0)
    };
    let preface = Preface::new(Role::Messenger, &Limits::of_messages(), 0);
    let mut stream = preface.encode().to_vec();
    stream.extend_from_slice(&header.encode());
    stream.extend_from_slice(&(DIRECT_BYTES_MIN as u64).to_le_bytes());
    stream.resize(stream.len() + DIRECT_BYTES_MIN, 7);
    let mut peer = UnixStream::from(ours);
    peer.write_all(&stream).expect("there is room");
    messages.step(true, false).expect("open");
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [false]);
    assert_eq!(violation_of(&messages), Some(Violation::Token));
}

fn violation_of(messages: &Messages) -> Option<Violation> {
    match messages.fault(Delivered::No) {
        Some(Error::Protocol { violation, .. }) => Some(violation),
        _ => None,
    }
}

#[test]
fn what_a_message_without_memory_for_all_of_it_was_given_is_not_dropped_at_once() {
    let limits = Limits {
        frame_bytes_max: u64::MAX,
        ..Limits::of_messages()
    };
    let mut decoder = Decoder::new(&limits, true);
    decoder.request_memory();
    let header = Header {
        segments: 2,
        ..Header::control(Kind::Message, 0)
    };
    let mut stream = Preface::new(Role::Messenger, &limits, 0).encode().to_vec();
    stream.extend_from_slice(&header.encode());
    for bytes in [DIRECT_BYTES_MIN as u64, i64::MAX as u64] {
        stream.extend_from_slice(&bytes.to_le_bytes());
    }
    let mut rest = &stream[..];
    while !decoder.awaits_memory() {
        let (count, _) = decoder.feed(rest).expect("well formed");
        rest = &rest[count..];
    }
    let (told, _) = channel();
    let messages = Weak::new();
    let given = give(DIRECT_BYTES_MIN, Witness { messages, told });
    decoder.provide(vec![Some(given), None]);
    let refused = decoder.feed(&vec![7; DIRECT_BYTES_MIN]);
    assert!(matches!(refused, Err(Violation::Memory(_))), "{refused:?}");
    let retired = decoder.take_retired();
    assert!(matches!(&retired[..], [given] if given.len() == DIRECT_BYTES_MIN));
}

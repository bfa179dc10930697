//! The link over a scripted stream: each step of its life, and what fails in the middle of a turn.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::error::{Cause, Fault, Violation};
use crate::limit::{
    COPY_BYTES_MAX, CORKED_BYTES_MAX, DIRECT_BYTES_MIN, HANDSHAKE_BYTES_MAX, Limits, PIECES_MAX,
};
use crate::link::admission::{Admission, Handshake};
use crate::link::framed::{Handler, Link};
use crate::link::outbox::Head;
use crate::stream::{Stream, StreamFault};
use crate::wire::frame::{HEADER_BYTES, Header, Incoming, Kind};
use crate::wire::preface::{PREFACE_BYTES, Preface};
use crate::wire::role::Role;

/// A stream whose next sends and receives are set beforehand.
#[derive(Default)]
struct Script {
    received: VecDeque<Vec<u8>>,
    /// After what is there; without it a receive would block.
    end: Option<Result<(), StreamFault>>,
    sent: Vec<u8>,
    /// How sends fail, if they do.
    refuses: Option<Errno>,
    /// How they fail after the first failure.
    refuses_then: Option<Errno>,
    /// A handshake waits for the peer.
    is_busy: bool,
    keeps_descriptors: bool,
    /// How much the next send takes; all without it.
    takes: Option<usize>,
}

impl Stream for Script {
    fn send(&mut self, pieces: &[IoSlice<'_>]) -> Result<usize, StreamFault> {
        if let Some(errno) = self.refuses {
            self.refuses = self.refuses_then.or(self.refuses);
            return Err(errno.into());
        }
        let before = self.sent.len();
        let room = self.takes.take().unwrap_or(usize::MAX);
        self.sent
            .extend(pieces.iter().flat_map(|piece| piece.iter()).take(room));
        Ok(self.sent.len() - before)
    }

    fn receive<'a>(
        &mut self,
        into: &'a mut [MaybeUninit<u8>],
    ) -> Result<&'a mut [u8], StreamFault> {
        if let Some(bytes) = self.received.pop_front() {
            return Ok(into[..bytes.len()].write_copy_of_slice(&bytes));
        }
        match self.end.clone() {
            None => Err(Errno::AGAIN.into()),
            Some(Ok(())) => Ok(&mut []),
            Some(Err(fault)) => Err(fault),
        }
    }

    fn hung_up(&self) -> bool {
        self.end.is_some()
    }

    fn takes(&self) -> bool {
        !self.is_busy
    }

    fn ask_for_descriptors(&mut self) {
        self.keeps_descriptors = true;
    }

    fn attach(&mut self, _descriptors: Vec<OwnedFd>) -> bool {
        self.keeps_descriptors
    }
}

/// Keeps what the link tells it, in order.
#[derive(Default)]
struct Log {
    events: Vec<Told>,
    /// Answer each frame at once.
    answers: bool,
    holds_back: bool,
    /// The offset of the frame that begins next.
    begins: u64,
}

#[derive(Debug, PartialEq)]
enum Told {
    Preface,
    Frame(u64),
    EndOfFile,
    ReceivingFailed(StreamFault),
    SendingFailed(StreamFault),
    Broken(Fault),
}

impl Handler<Script> for Log {
    const KEEPS_LONG_FRAMES_APART: bool = true;

    fn accept_preface(&mut self, preface: &Preface) -> Result<(), Violation> {
        self.events.push(Told::Preface);
        match preface.role {
            Role::Server => Ok(()),
            other => Err(Violation::Purpose(other)),
        }
    }

    fn begin_frame(&mut self, offset: u64) {
        self.begins = offset;
    }

    fn accept(&mut self, link: &mut Link<Script>, frame: Incoming) -> Result<(), Violation> {
        self.events.push(Told::Frame(frame.header.id));
        if self.answers {
            send(link, self, frame.header.id);
        }
        match frame.header.kind {
            Kind::Ping | Kind::Message => Ok(()),
            other => Err(Violation::Kind(other as u8)),
        }
    }

    fn holds_back(&mut self, link: &Link<Script>) -> bool {
        self.holds_back || link.awaits_memory()
    }

    fn end_of_file(&mut self, link: &mut Link<Script>) {
        self.events.push(Told::EndOfFile);
        link.end();
    }

    fn fail_receiving(&mut self, link: &mut Link<Script>, fault: StreamFault) {
        self.events.push(Told::ReceivingFailed(fault.clone()));
        link.fail(self, fault);
    }

    fn fail_sending(&mut self, link: &mut Link<Script>, fault: StreamFault) {
        if let Some(fault) = link.defer(fault) {
            self.events.push(Told::SendingFailed(fault.clone()));
            link.fail(self, fault);
        }
    }

    fn broken(&mut self, link: &Link<Script>, fault: &Fault) {
        assert!(link.outbox().is_empty() && link.life().is_broken());
        self.events.push(Told::Broken(fault.clone()));
    }
}

fn preface(role: Role) -> Vec<u8> {
    Preface::new(role, &Limits::default(), 0).encode().to_vec()
}

fn ping(id: u64) -> Vec<u8> {
    Header::control(Kind::Ping, id).encode().to_vec()
}

fn token(shown: &[u8]) -> Vec<u8> {
    let header = Header {
        head_bytes: u32::try_from(shown.len()).expect("short"),
        ..Header::control(Kind::Token, 0)
    };
    [&header.encode()[..], shown].concat()
}

fn send(link: &mut Link<Script>, log: &mut Log, id: u64) -> u64 {
    link.queue_preface();
    let header = Header::control(Kind::Pong, id);
    link.send(log, header, Head::Borrowed(&[]), Vec::new())
}

fn requires(admission: Admission) -> Link<Script> {
    let handshake = Handshake {
        admission,
        ..Handshake::default()
    };
    let mut link = Link::new(Limits::default(), handshake);
    link.connect(Script::default(), false);
    link.set_preface(Preface::new(Role::Caller, &Limits::default(), 0));
    link
}

/// A link whose peer has said its preface, and the log from then on.
fn open() -> (Link<Script>, Log) {
    let mut link = requires(Admission::Anybody);
    let mut log = Log::default();
    receive(&mut link, &mut log, &[preface(Role::Server)]);
    assert_eq!(log.events, [Told::Preface]);
    log.events.clear();
    (link, log)
}

fn receive(link: &mut Link<Script>, log: &mut Log, parts: &[Vec<u8>]) {
    let stream = link.stream_mut().expect("connected");
    stream.received.push_back(parts.concat());
    link.receive(log);
}

fn sent(link: &Link<Script>) -> usize {
    link.stream().expect("connected").sent.len()
}

#[test]
fn a_preface_opens_a_link_that_requires_no_token() {
    let mut link = Link::<Script>::new(Limits::default(), Handshake::default());
    let mut log = Log::default();
    assert!(!link.life().receives() && !link.wants_read(&mut log));
    link.connect(Script::default(), false);
    assert!(link.life().is_opening() && link.wants_read(&mut log));
    receive(&mut link, &mut log, &[preface(Role::Server), ping(4)]);
    assert!(link.life().is_open() && link.peer().is_some());
    assert_eq!(log.events, [Told::Preface, Told::Frame(4)]);
    assert_eq!(log.begins, (PREFACE_BYTES + HEADER_BYTES) as u64);
}

#[test]
fn a_wrong_token_a_missing_one_and_a_wrong_role_break_a_link_that_never_opened() {
    let right = || Admission::Token(b"secret".to_vec());
    for (parts, violation) in [
        ([preface(Role::Server), token(b"guess")], Violation::Token),
        ([preface(Role::Server), token(b"")], Violation::Token),
        ([preface(Role::Server), ping(1)], Violation::Uninvited),
        (
            [preface(Role::Messenger), token(b"secret")],
            Violation::Purpose(Role::Messenger),
        ),
    ] {
        let (mut link, mut log) = (requires(right()), Log::default());
        send(&mut link, &mut log, 1);
        assert_eq!(sent(&link), HEADER_BYTES, "no preface before the token");
        receive(&mut link, &mut log, &parts);
        let Some(Fault::Protocol { violation: got, .. }) = link.fault() else {
            panic!("{violation}: {:?}", link.life());
        };
        assert_eq!(*got, violation);
        assert!(!link.life().has_opened());
        assert_eq!(
            log.events.len(),
            2,
            "the preface and the end: {:?}",
            log.events
        );
    }
}

#[test]
fn the_right_token_opens_a_link_and_only_then_it_says_its_preface() {
    let mut link = requires(Admission::Token(b"secret".to_vec()));
    let mut log = Log::default();
    receive(&mut link, &mut log, &[preface(Role::Server)]);
    assert!(link.life().is_opening() && sent(&link) == 0);
    receive(&mut link, &mut log, &[token(b"secret")]);
    assert!(link.life().is_open());
    assert_eq!(sent(&link), PREFACE_BYTES);
    receive(&mut link, &mut log, &[token(b"any"), ping(2)]);
    assert_eq!(
        log.events,
        [Told::Preface, Told::Frame(2)],
        "a second one is ignored"
    );
    let announced = Header {
        head_bytes: u32::try_from(HANDSHAKE_BYTES_MAX + 1).expect("short"),
        ..Header::control(Kind::Message, 3)
    };
    receive(&mut link, &mut log, &[announced.encode().to_vec()]);
    assert_eq!(link.fault(), None, "an admitted peer sends long frames");
    let mut early = requires(Admission::Token(b"secret".to_vec()));
    let parts = [preface(Role::Server), announced.encode().to_vec()];
    receive(&mut early, &mut log, &parts);
    assert!(early.life().is_broken());
}

#[test]
fn a_token_is_shown_once_with_the_preface() {
    let handshake = Handshake {
        token: Some(b"secret".to_vec()),
        ..Handshake::default()
    };
    let mut link = Link::new(Limits::default(), handshake);
    link.connect(Script::default(), false);
    link.set_preface(Preface::new(Role::Caller, &Limits::default(), 0));
    let mut log = Log::default();
    for id in 0..2 {
        send(&mut link, &mut log, id);
    }
    link.flush(&mut log);
    let expected = [
        preface(Role::Caller),
        token(b"secret"),
        Header::control(Kind::Pong, 0).encode().to_vec(),
        Header::control(Kind::Pong, 1).encode().to_vec(),
    ];
    assert_eq!(link.stream().expect("connected").sent, expected.concat());
}

#[test]
fn a_resumed_link_says_no_preface_and_may_expect_none() {
    for read in [true, false] {
        let mut link = requires(Admission::Anybody);
        let mut log = Log::default();
        link.resume(read);
        assert_eq!(link.life().is_open(), read);
        send(&mut link, &mut log, 1);
        assert_eq!(sent(&link), HEADER_BYTES);
        let parts = if read {
            vec![ping(7)]
        } else {
            vec![preface(Role::Server), ping(7)]
        };
        receive(&mut link, &mut log, &parts);
        assert_eq!(log.events.last(), Some(&Told::Frame(7)));
    }
}

#[test]
fn nothing_is_decoded_behind_what_breaks_the_protocol() {
    let (mut link, mut log) = open();
    let call = Header::control(Kind::Call, 2).encode().to_vec();
    receive(&mut link, &mut log, &[ping(1), call, ping(3)]);
    let fault = Fault::Protocol {
        offset: (PREFACE_BYTES + 2 * HEADER_BYTES) as u64,
        violation: Violation::Kind(Kind::Call as u8),
    };
    let told = [Told::Frame(1), Told::Frame(2), Told::Broken(fault)];
    assert_eq!(log.events, told);
    receive(&mut link, &mut log, &[ping(4)]);
    assert_eq!(log.events.len(), 3, "a broken link reads nothing");
}

#[test]
fn a_failure_to_send_waits_until_the_turn_of_receiving_ends() {
    let (mut link, mut log) = open();
    log.answers = true;
    link.stream_mut().expect("connected").refuses = Some(Errno::PIPE);
    receive(&mut link, &mut log, &[ping(1), ping(2)]);
    let fault = Fault::Broken(Cause::Failed(Errno::PIPE));
    assert_eq!(
        log.events,
        [
            Told::Frame(1),
            Told::Frame(2),
            Told::SendingFailed(Errno::PIPE.into()),
            Told::Broken(fault)
        ]
    );
    assert!(link.outbox().is_empty());
}

#[test]
fn the_first_failure_of_a_turn_counts_also_where_the_flush_at_its_end_fails() {
    let (mut link, mut log) = open();
    log.answers = true;
    let stream = link.stream_mut().expect("connected");
    stream.is_busy = true;
    stream.refuses = Some(Errno::PIPE);
    stream.refuses_then = Some(Errno::CONNRESET);
    receive(&mut link, &mut log, &[ping(1), ping(2)]);
    let fault = Fault::Broken(Cause::Failed(Errno::PIPE));
    assert_eq!(
        log.events[2..],
        [Told::SendingFailed(Errno::PIPE.into()), Told::Broken(fault)]
    );
}

#[test]
fn a_failure_to_send_between_two_turns_takes_effect_at_once() {
    let failed = || {
        [
            Told::SendingFailed(Errno::PIPE.into()),
            Told::Broken(Fault::Broken(Cause::Failed(Errno::PIPE))),
        ]
    };
    let (mut link, mut log) = open();
    link.stream_mut().expect("connected").refuses = Some(Errno::PIPE);
    send(&mut link, &mut log, 1);
    assert_eq!(log.events, failed());
    send(&mut link, &mut log, 2);
    link.flush(&mut log);
    assert_eq!(log.events.len(), 2, "once");
    assert!(link.outbox().is_empty(), "a broken link queues nothing");
    let (mut link, mut log) = open();
    drop(link.take_stream());
    link.outbox_mut().push_copy(b"gone");
    link.flush(&mut log);
    assert_eq!(log.events, [], "there is nothing to write to");
    assert!(link.is_hung_up());
    let (mut link, mut log) = (
        Link::new(Limits::default(), Handshake::default()),
        Log::default(),
    );
    send(&mut link, &mut log, 1);
    assert_eq!(log.events, failed(), "there never was a stream");
}

#[test]
fn what_the_kernel_does_not_take_is_queued_and_goes_out_later() {
    let (mut link, mut log) = open();
    link.queue_preface();
    link.flush(&mut log);
    let before = sent(&link);
    for errno in [Errno::AGAIN, Errno::INTR] {
        link.stream_mut().expect("connected").refuses = Some(errno);
        send(&mut link, &mut log, 1);
        assert!(log.events.is_empty() && link.wants_write());
    }
    assert_eq!(link.unsent_bytes(), 2 * HEADER_BYTES);
    assert_eq!(link.kernel_offset(), before as u64);
    link.stream_mut().expect("connected").refuses = None;
    link.flush(&mut log);
    assert_eq!(sent(&link), before + 2 * HEADER_BYTES);
    assert!(!link.wants_write() && link.unsent_bytes() == 0);
}

#[test]
fn a_corked_link_sends_with_the_flush_or_when_much_waits() {
    let (mut link, mut log) = open();
    link.cork();
    send(&mut link, &mut log, 1);
    assert_eq!(sent(&link), 0);
    link.flush(&mut log);
    let flushed = PREFACE_BYTES + HEADER_BYTES;
    assert_eq!(sent(&link), flushed);
    while link.outbox().bytes() + HEADER_BYTES < CORKED_BYTES_MAX {
        send(&mut link, &mut log, 2);
    }
    assert_eq!(sent(&link), flushed);
    send(&mut link, &mut log, 3);
    assert!(link.outbox().is_empty() && sent(&link) >= CORKED_BYTES_MAX);
}

#[test]
fn a_link_that_has_ended_sends_and_does_not_receive() {
    let (mut link, mut log) = open();
    link.stream_mut().expect("connected").end = Some(Ok(()));
    receive(&mut link, &mut log, &[ping(1)]);
    link.receive(&mut log);
    assert_eq!(log.events, [Told::Frame(1), Told::EndOfFile]);
    assert!(link.life().has_ended() && link.life().is_open() && link.is_hung_up());
    assert!(!link.wants_read(&mut log));
    link.stream_mut().expect("connected").refuses = Some(Errno::AGAIN);
    send(&mut link, &mut log, 2);
    assert!(!link.outbox().is_empty(), "only a broken link forgets");
    link.stream_mut().expect("connected").refuses = None;
    link.flush(&mut log);
    assert_eq!(sent(&link), PREFACE_BYTES + HEADER_BYTES);
    link.break_with(&mut log, Fault::Closed);
    assert!(link.life().is_broken() && link.life().has_opened());
}

#[test]
fn a_broken_link_sends_a_last_word_and_receives_nothing_more() {
    let (mut link, mut log) = open();
    send(&mut link, &mut log, 1);
    let before = sent(&link);
    link.break_with(&mut log, Fault::Closed);
    link.break_with(&mut log, Fault::Broken(Cause::PeerDied));
    assert_eq!(log.events, [Told::Broken(Fault::Closed)], "the first stays");
    link.send_despite_fault();
    link.stream_mut().expect("connected").refuses = Some(Errno::AGAIN);
    send(&mut link, &mut log, 2);
    link.stream_mut().expect("connected").refuses = None;
    link.flush(&mut log);
    assert_eq!(sent(&link), before + HEADER_BYTES);
    receive(&mut link, &mut log, &[ping(3)]);
    assert_eq!(log.events.len(), 1);
}

#[test]
fn a_receive_fails_by_its_kind_of_fault() {
    let violation = || StreamFault::Violation(Violation::Empty);
    for (fault, broken) in [
        (StreamFault::Errno(Errno::INTR), None),
        (
            StreamFault::Errno(Errno::CONNRESET),
            Some(Fault::Broken(Cause::Failed(Errno::CONNRESET))),
        ),
        (
            violation(),
            Some(Fault::Protocol {
                offset: PREFACE_BYTES as u64,
                violation: Violation::Empty,
            }),
        ),
    ] {
        let (mut link, mut log) = open();
        link.stream_mut().expect("connected").end = Some(Err(fault));
        link.receive(&mut log);
        assert_eq!(link.fault(), broken.as_ref());
    }
}

#[test]
fn a_link_that_is_held_back_reads_on_when_it_is_not() {
    let (mut link, mut log) = open();
    log.holds_back = true;
    receive(&mut link, &mut log, &[ping(1)]);
    assert!(log.events.is_empty() && !link.wants_read(&mut log));
    log.holds_back = false;
    link.receive(&mut log);
    assert_eq!(log.events, [Told::Frame(1)]);
}

#[test]
fn memory_is_wanted_until_it_is_provided_or_the_link_ends() {
    let bytes = DIRECT_BYTES_MIN;
    let header = Header {
        segments: 1,
        ..Header::control(Kind::Message, 5)
    };
    let announced = || {
        let (mut link, mut log) = open();
        link.request_memory();
        let lengths = (bytes as u64).to_le_bytes().to_vec();
        let parts = [header.encode().to_vec(), lengths, vec![7; 10]];
        receive(&mut link, &mut log, &parts);
        assert!(link.has_kept() && !link.wants_read(&mut log));
        assert_eq!(link.wanted(), Some(vec![bytes]));
        (link, log)
    };
    let (mut link, mut log) = announced();
    link.provide(&mut log, vec![None]);
    assert!(!link.has_kept() && link.wanted().is_none());
    receive(&mut link, &mut log, &[vec![7; bytes - 10]]);
    assert_eq!(log.events, [Told::Frame(5)]);
    let (mut link, mut log) = announced();
    link.break_with(&mut log, Fault::Closed);
    assert_eq!(link.wanted(), None, "it is broken");
    link.provide(&mut log, vec![None]);
    assert_eq!(log.events, [Told::Broken(Fault::Closed)]);
    let (mut link, _) = announced();
    link.end();
    assert_eq!(link.wanted(), None, "it has ended");
}

#[test]
fn a_link_goes_on_over_another_type_of_stream() {
    let (mut link, mut log) = open();
    send(&mut link, &mut log, 1);
    let end = link.outbox().end();
    let link = link.map_stream(|stream| stream.sent.len());
    assert_eq!(link.stream(), Some(&(PREFACE_BYTES + HEADER_BYTES)));
    assert!(link.life().is_open() && link.outbox().end() == end);
}

#[test]
fn a_flush_sends_more_pieces_than_one_send_takes() {
    let (mut link, mut log) = open();
    let piece = vec![7; COPY_BYTES_MAX];
    for _ in 0..2 * PIECES_MAX {
        link.outbox_mut().push_copy(&piece);
    }
    link.flush(&mut log);
    assert!(link.outbox().is_empty());
    assert_eq!(sent(&link), 2 * PIECES_MAX * COPY_BYTES_MAX);
}

#[test]
fn descriptors_are_asked_for_where_there_is_a_stream() {
    let (mut link, _) = open();
    let keeps = |link: &Link<Script>| link.stream().is_some_and(|stream| stream.keeps_descriptors);
    let last = Header::control(Kind::Ping, 1);
    assert!(!keeps(&link) && !link.push_with_descriptors(last, Vec::new()));
    assert!(
        link.outbox().is_empty(),
        "it goes with its descriptors only"
    );
    link.ask_for_descriptors();
    assert!(keeps(&link) && link.push_with_descriptors(last, Vec::new()));
    assert_eq!(link.outbox().bytes(), HEADER_BYTES);
    drop(link.take_stream());
    link.ask_for_descriptors();
    assert!(!keeps(&link));
}

#[test]
fn a_lent_head_goes_out_whole_wherever_the_kernel_cuts_it() {
    let text = vec![7; 2 * COPY_BYTES_MAX];
    let header = Header {
        head_bytes: u32::try_from(text.len()).expect("short"),
        ..Header::control(Kind::Ping, 1)
    };
    let expected = [&header.encode()[..], &text].concat();
    for cut in [0, 1, HEADER_BYTES, HEADER_BYTES + 1, expected.len() - 1] {
        let (mut link, mut log) = open();
        link.resume(false); // without a preface
        link.stream_mut().expect("connected").takes = Some(cut);
        let head = Head::Lent(Box::new(text.clone()));
        link.send(&mut log, header, head, Vec::new());
        assert_eq!(link.outbox().bytes(), expected.len() - cut);
        link.flush(&mut log);
        assert_eq!(link.stream().expect("connected").sent, expected);
        assert_eq!(link.take_sent().len(), 1, "it is given back");
    }
}

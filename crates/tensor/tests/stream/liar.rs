//! A server that is none: it greets, and then does what a test says.
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use forebay_tensor::stream::{StreamError, Work};
use forebay_tensor::{Class, Key, Welcome};
use forebay_transport::stream::{Stream, Wire};
use rustix::event::{PollFd, PollFlags, poll};

use super::connect::{
    Address, Handle, Kept, TestLink, begin, failure, finish, fresh_path, link, link_with, messages,
    soon,
};
use super::sys::Memory;

/// A listening socket and its address.
fn listen() -> (UnixListener, Address) {
    let path = fresh_path();
    let listener = UnixListener::bind(&path).expect("bound");
    (listener, Address::Unix(path))
}

/// Accept and greet, as a server does.
fn accept(listener: &UnixListener) -> Wire {
    let (socket, _) = listener.accept().expect("accepted");
    let messages = messages(OwnedFd::from(socket));
    messages.recv(soon()).expect("a hello");
    let welcome = Welcome {
        slots: 16,
        grant_bytes: 16 << 20,
        incarnation: 1,
        shared_index: None,
        verbs: Vec::new(),
        note: Vec::new(),
    };
    messages.send(&mut vec![welcome.encode()]).expect("sent");
    messages.take_stream().expect("between")
}

/// A server's thread, which goes on until this is dropped.
pub struct Stalled {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Stalled {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            _ = thread.join(); // a panic has been told by its hook
        }
    }
}

/// A server that greets and does nothing until what is returned is dropped.
pub fn silent() -> (Address, Stalled) {
    let (listener, address) = listen();
    let (stop, stopped) = channel::<()>();
    let thread = Builder::new().spawn(move || {
        let wire = accept(&listener);
        _ = stopped.recv(); // it ends with its sender
        drop(wire);
    });
    let stalled = Stalled {
        stop: Some(stop),
        thread: Some(thread.expect("a thread")),
    };
    (address, stalled)
}

fn handle() -> Handle {
    Handle {
        key: Key {
            id: 0,
            generation: 1,
        },
        rows: 100,
        row_bytes: 10,
        memory: Memory::zeros(0),
    }
}

/// A pull of 20 rows of 10 bytes.
pub fn any_pull() -> (Arc<Memory>, Work) {
    handle().slice(0, 20)
}

/// The next bytes of a stream, waited for; empty at its end.
fn next(wire: &mut Wire) -> Vec<u8> {
    let mut room = [MaybeUninit::uninit(); 4096];
    loop {
        match wire.receive(&mut room) {
            Ok(bytes) => return bytes.to_vec(),
            Err(fault) => assert!(fault.is_transient(), "{fault}"),
        }
        let watch = wire.watch();
        poll(&mut [PollFd::new(&watch, PollFlags::IN)], None).expect("polled");
    }
}

fn say(wire: &mut Wire, bytes: &[u8]) {
    assert_eq!(wire.send(&[IoSlice::new(bytes)]), Ok(bytes.len()));
}

/// The tag of the first entry of the request that comes next.
fn tag(wire: &mut Wire) -> u32 {
    let mut request = Vec::new();
    while request.len() < 16 + 24 {
        request.extend(next(wire));
    }
    u32::from_le_bytes(request[36..40].try_into().expect("four"))
}

/// A response header.
fn header(status: u16, last: bool, tag: u32, bytes: u64) -> Vec<u8> {
    let mut header = Vec::new();
    header.extend_from_slice(&status.to_le_bytes());
    header.extend_from_slice(&u16::from(last).to_le_bytes());
    header.extend_from_slice(&tag.to_le_bytes());
    header.extend_from_slice(&bytes.to_le_bytes());
    header.extend_from_slice(&7u64.to_le_bytes());
    header
}

/// Serve one connection by `act` while `ask` runs with a link to it.
fn with_liar(act: impl FnOnce(Wire) + Send, ask: impl FnOnce(TestLink)) {
    let (listener, address) = listen();
    std::thread::scope(|scope| {
        let lying = scope.spawn(move || act(accept(&listener)));
        ask(link(&address));
        lying.join().expect("no panic");
    });
}

fn pull(link: &TestLink) -> (Arc<Memory>, Arc<forebay_tensor::stream::Batch<Kept>>) {
    let (out, work) = any_pull();
    let batch = begin(link, vec![Arc::clone(&out)], vec![work]);
    (out, batch)
}

fn class_of(error: &StreamError) -> Class {
    match error {
        StreamError::Tensor { error, .. } => error.class(),
        other => panic!("{other}"),
    }
}

#[test]
fn a_server_that_dies_at_any_byte_of_an_answer_breaks_the_pull() {
    for cut in [0, 1, 23, 24, 25, 123, 223] {
        let die = move |mut wire: Wire| {
            let tag = tag(&mut wire);
            let mut answer = header(0, true, tag, 200);
            answer.extend_from_slice(&[5; 200]);
            say(&mut wire, &answer[..cut]);
        };
        with_liar(die, |link| {
            let (out, batch) = pull(&link);
            finish(&link, &batch);
            let error = failure(&batch, 0);
            assert_eq!(class_of(&error), Class::Broken, "cut at {cut}: {error}");
            assert!(error.to_string().contains("unix:///the/server"));
            drop(batch);
            assert_eq!(Arc::strong_count(&out), 1, "nobody writes it any more");
        });
    }
}

#[test]
fn answers_that_nobody_asked_for_are_a_breach_and_close_the_link() {
    for lie in ["tag", "longer", "shorter", "status"] {
        let deceive = move |mut wire: Wire| {
            let tag = tag(&mut wire);
            say(
                &mut wire,
                &match lie {
                    "tag" => header(0, true, tag + 1000, 200),
                    "longer" => header(0, true, tag, 201),
                    "shorter" => header(0, true, tag, 199),
                    _ => header(999, true, tag, 0),
                },
            );
            assert!(next(&mut wire).is_empty(), "the link is closed");
        };
        with_liar(deceive, |link| {
            let (_, batch) = pull(&link);
            finish(&link, &batch);
            assert_eq!(class_of(&failure(&batch, 0)), Class::Protocol, "{lie}");
            assert!(!link.is_open());
        });
    }
}

#[test]
fn a_server_that_stops_ends_the_pull_after_the_liveness_deadline() {
    let (address, stalled) = silent();
    let link = link_with(&address, |limits| {
        limits.liveness = Duration::from_millis(200);
    });
    let (_, batch) = pull(&link);
    finish(&link, &batch);
    let error = failure(&batch, 0);
    assert_eq!(class_of(&error), Class::Broken);
    assert!(error.to_string().contains("nothing"), "{error}");
    assert!(!link.is_open());
    drop(stalled);
}

#[test]
fn a_pull_that_is_canceled_within_its_answer_keeps_its_memory_to_the_end() {
    let (go, going) = channel::<()>();
    let (begun, beginning) = channel::<()>();
    let answer = move |mut wire: Wire| {
        let first = tag(&mut wire);
        let mut bytes = header(0, true, first, 200);
        bytes.extend_from_slice(&[5; 100]);
        say(&mut wire, &bytes);
        begun.send(()).expect("heard");
        going.recv().expect("told");
        say(&mut wire, &[6; 100]);
        while !next(&mut wire).is_empty() {} // the cancel, and the end
    };
    with_liar(answer, |link| {
        let (out, batch) = pull(&link);
        beginning.recv().expect("told");
        while link.counters().received_bytes < 124 {
            assert!(link.probe());
        }
        link.cancel(&batch);
        link.cancel(&batch);
        assert!(matches!(failure(&batch, 0), StreamError::Canceled { .. }));
        drop(batch);
        assert_eq!(
            Arc::strong_count(&out),
            2,
            "the rest of the answer goes there"
        );
        go.send(()).expect("heard");
        while Arc::strong_count(&out) > 1 {
            assert!(link.probe(), "the link is as good as before");
        }
        assert_eq!(link.counters().outstanding, 0);
        link.close();
    });
}

#[test]
fn bytes_that_are_no_hello_get_a_reason() {
    let (server, address) = super::connect::server();
    let messages = messages(super::connect::dial(&address));
    messages
        .send(&mut vec![b"GET / HTTP/1.1".to_vec()])
        .expect("sent");
    let answer = messages.recv(soon()).expect("answered");
    let refused = Welcome::decode(answer[0].as_slice()).expect_err("refused");
    assert_eq!(refused.class(), Class::Protocol);
    assert!(messages.recv(soon()).is_err(), "and the end");
    while server.counters().refused == 0 {
        std::thread::yield_now();
    }
}

#[test]
fn requests_that_are_none_close_the_connection() {
    let (server, address) = super::connect::server();
    let (mut wire, _) = super::connect::greet(&address, 16).expect("welcome");
    say(&mut wire, &[0xff; 64]);
    assert!(next(&mut wire).is_empty(), "the end");
    while server.counters().broken == 0 {
        std::thread::yield_now();
    }
    assert_eq!(server.counters().peers, 0);
}

#[test]
fn whoever_says_nothing_is_dismissed() {
    let [_, (address, listening)] = super::connect::places();
    let options = forebay_tensor::stream::Options {
        handshake: Duration::from_millis(50),
        ..forebay_tensor::stream::Options::default()
    };
    let server = super::connect::server_at(listening, options);
    let mut socket = std::fs::File::from(super::connect::dial(&address));
    let mut said = Vec::new();
    socket.read_to_end(&mut said).expect("the end");
    assert_eq!(server.counters().late, 1);
}

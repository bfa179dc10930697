//! A native listener against clients that misbehave, with short deadlines.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use forebay_transport::limit::Limits;
use forebay_transport::serve::{Listening, MessageServer, ServerCounters, ServerOptions, Service};

const PATIENCE: Duration = Duration::from_secs(20);

fn server(options: ServerOptions) -> (MessageServer, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("nonblocking");
    let address = listener.local_addr().expect("an address");
    let listening = Listening::Tcp(vec![OwnedFd::from(listener)]);
    let server = MessageServer::start(listening, Service::Echo, options).expect("a thread");
    (server, address)
}

fn quick() -> ServerOptions {
    ServerOptions {
        stall: Duration::from_secs(2), // before that a client must have finished its handshake
        ..ServerOptions::default()
    }
}

fn client(address: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(address).expect("a listener");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut preface = *b"FBAY\x01\x00\x03\x00________________________________";
    preface[8..16].fill(0);
    preface[16..24].copy_from_slice(&(1u64 << 30).to_le_bytes());
    preface[24..26].copy_from_slice(&u16::MAX.to_le_bytes());
    preface[26..].fill(0);
    client.write_all(&preface[..32]).expect("room");
    client.read_exact(&mut [0; 32]).expect("a preface");
    client
}

fn message(frames: u16, lengths: &[u64], bytes: &[u8]) -> Vec<u8> {
    let mut message = vec![0; 24];
    message[4] = 8;
    message[6..8].copy_from_slice(&frames.to_le_bytes());
    message[16..20].fill(0xff);
    for length in lengths {
        message.extend_from_slice(&length.to_le_bytes());
    }
    message.extend_from_slice(bytes);
    message
}

fn wait_for(server: &MessageServer, done: impl Fn(&ServerCounters) -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done(&server.counters()) {
        assert!(
            Instant::now() < end,
            "waited in vain: {:?}",
            server.counters()
        );
        std::thread::yield_now();
    }
}

fn is_ended(client: &mut TcpStream) -> bool {
    let mut sink = vec![0; 1 << 16];
    loop {
        match client.read(&mut sink) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn half_a_message_does_not_hold_a_place_for_ever() {
    let (server, address) = server(quick());
    let mut idle = client(address);
    let mut loris = client(address);
    loris
        .write_all(&message(2, &[10, 10], b"only a part"))
        .expect("room");
    wait_for(&server, |counted| counted.stalled == 1 && counted.open == 1);
    assert!(is_ended(&mut loris));
    let whole = message(1, &[2], b"ok");
    idle.write_all(&whole).expect("the idle one is not dropped");
    let mut answer = vec![0; whole.len()];
    idle.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer, whole);
}

#[test]
fn an_answer_that_nobody_takes_does_not_hold_memory_for_ever() {
    let (server, address) = server(quick());
    let mut deaf = client(address);
    deaf.set_write_timeout(Some(Duration::from_millis(50)))
        .expect("a timeout");
    let long = message(1, &[1 << 20], &vec![7; 1 << 20]);
    while deaf.write_all(&long).is_ok() {}
    wait_for(&server, |counted| counted.stalled == 1 && counted.open == 0);
}

#[test]
fn lengths_that_are_lies_are_refused() {
    let (server, address) = server(ServerOptions::default());
    let lies: [Vec<u8>; 3] = [
        message(1, &[1 << 60], b""),
        message(2, &[u64::MAX, u64::MAX], b""),
        message(u16::MAX, &vec![1 << 40; 65_535], b""),
    ];
    for (number, lie) in (1..).zip(lies) {
        let mut liar = client(address);
        let _ = liar.write_all(&lie); // it may be refused before the last of them
        assert!(is_ended(&mut liar));
        wait_for(&server, |counted| {
            counted.failed == number && counted.open == 0
        });
        let failure = server.counters().failure.expect("a reason").to_string();
        assert!(failure.contains("frame_bytes_max"), "{failure}");
    }
}

#[test]
fn answers_above_the_high_mark_wait_for_the_client_and_arrive() {
    let limits = Limits {
        outbox_bytes_high: 1000,
        ..Limits::of_messages()
    };
    let (server, address) = server(ServerOptions {
        limits,
        ..ServerOptions::default()
    });
    let mut other = client(address);
    let whole = message(3, &[100, 0, 2000], &[5; 2100]);
    for _ in 0..50 {
        other.write_all(&whole).expect("room");
    }
    for _ in 0..50 {
        let mut answer = vec![0; whole.len()];
        other.read_exact(&mut answer).expect("an answer");
        assert_eq!(answer, whole);
    }
    server.close();
    assert!(is_ended(&mut other));
}

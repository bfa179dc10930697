//! A TLS stream that is given away after a greeting.

use super::authority::{Authority, both};
use super::pipe::{Pipe, connected, receive};
use crate::limit::Limits;
use crate::link::admission::Admission;
use crate::messages::state::State;
use crate::stream::Stream;
use crate::stream::tls::Tls;

fn state(stream: Tls<Pipe>) -> State<Tls<Pipe>> {
    State::new(stream, Limits::of_messages(), Admission::Anybody, None)
}

#[test]
fn its_session_goes_along() {
    let ca = Authority::new();
    let (server, client) = both(&ca);
    let (one, other) = connected(&server, &client, 61, 40_000);
    let (mut one, mut other) = (state(one), state(other));
    one.send(&mut vec![b"hello".to_vec()]);
    while other.take().is_none() {
        one.flush();
        other.receive();
    }
    other.send(&mut vec![b"welcome".to_vec()]);
    while one.take().is_none() {
        other.flush();
        one.receive();
    }
    let mut accepted = other.take_stream().expect("its answer is gone");
    let mut connected = one.take_stream().expect("between two messages");
    let mut got = Vec::new();
    connected
        .send(&[std::io::IoSlice::new(b"raw")])
        .expect("sent");
    while got != b"raw" {
        connected.flush().expect("alive");
        got.extend(
            receive(&mut accepted, 64)
                .expect("alive")
                .unwrap_or_default(),
        );
    }
    assert!(one.take_stream().is_none() && other.stream().is_none());
}

//! What peers that keep to the protocol say: where mutations begin.

use super::calls::{ASKS_TOKEN, SERVES, TOKEN, TRUSTS};
use super::messages as of_messages;
use crate::limit::Limits;
use crate::messages::named::{FOLLOWS, NAMED};
use crate::stream::shm::fuzzing::{CURSORS, NAME, RECORD};
use crate::stream::shm::{Name, lifeline};
use crate::wire::frame::{Codec, Header, Kind};
use crate::wire::preface::{LENDS, Preface};
use crate::wire::role::Role;

/// A frame as it stands in a stream.
fn frame(header: Header, head: &[u8], segments: &[&[u8]]) -> Vec<u8> {
    let header = Header {
        segments: u16::try_from(segments.len()).expect("few"),
        head_bytes: u32::try_from(head.len()).expect("short"),
        ..header
    };
    let mut bytes = header.encode().to_vec();
    for segment in segments {
        bytes.extend_from_slice(&(segment.len() as u64).to_le_bytes());
    }
    bytes.extend_from_slice(head);
    bytes.extend(segments.iter().copied().flatten());
    bytes
}

fn control(kind: Kind, id: u64) -> Vec<u8> {
    frame(Header::control(kind, id), &[], &[])
}

fn greeting(role: Role, features: u64) -> Vec<u8> {
    let mut preface = Preface::new(role, &Limits::default(), 0);
    preface.features |= features;
    preface.encode().to_vec()
}

fn token() -> Vec<u8> {
    frame(Header::control(Kind::Token, 0), TOKEN, &[])
}

/// An input of two bytes before what is said.
fn input(how: u8, step: u8, said: &[Vec<u8>]) -> Vec<u8> {
    [&[how, step][..], &said.concat()].concat()
}

pub fn preface() -> Vec<Vec<u8>> {
    [Role::Caller, Role::Server, Role::Messenger]
        .map(|role| greeting(role, LENDS))
        .to_vec()
}

fn name(chunk: u32, offset: u64, bytes: u64) -> Name {
    Name {
        chunk,
        slot: 3,
        generation: 1,
        offset,
        bytes,
    }
}

pub fn named() -> Vec<Vec<u8>> {
    let mut table = vec![FOLLOWS, NAMED];
    table.extend_from_slice(&name(7, 4096, 16).encode());
    table.push(FOLLOWS);
    let length = u8::try_from(table.len()).expect("short");
    let seed = |each: u8, following: &[u8]| [&[length, each][..], &table, following].concat();
    vec![seed(4, b"ab  cd  "), seed(1, b"ab")]
}

fn stream(kind: Kind, id: u64, time: u32) -> Header {
    Header {
        stream: kind == Kind::Call,
        time,
        ..Header::control(kind, id)
    }
}

pub fn calls() -> Vec<Vec<u8>> {
    let caller = greeting(Role::Caller, 0);
    let server = greeting(Role::Server, 0);
    let (call, reply) = (
        Header::control(Kind::Call, 1),
        Header::control(Kind::Reply, 1),
    );
    let pickled = Header {
        codec: Codec::Pickle,
        ..call
    };
    let late = Header {
        generation: 1,
        time: 5,
        ..call
    };
    let asked = [
        caller.clone(),
        frame(call, b"add", &[b"one", b"", &[7; 300]]),
        frame(Header { id: 2, ..late }, b"late", &[]),
        frame(stream(Kind::Credit, 3, 4), &[], &[]),
        frame(stream(Kind::Call, 3, 0), b"items", &[]),
        control(Kind::Ping, 9),
        frame(stream(Kind::Credit, 3, 2), &[], &[]),
        control(Kind::Cancel, 3),
        control(Kind::Goodbye, 0),
    ];
    let answered = [
        server,
        frame(reply, b"three", &[&[1; 70]]),
        frame(Header::control(Kind::Item, 3), b"first", &[]),
        frame(Header::control(Kind::Item, 3), b"", &[b"second"]),
        control(Kind::Pong, 1),
        frame(
            Header {
                time: 1,
                ..Header::control(Kind::Failure, 2)
            },
            b"why",
            &[],
        ),
        frame(Header::control(Kind::Reply, 3), b"", &[]),
    ];
    let shown = [caller.clone(), token(), frame(call, b"in", &[])];
    let trusted = [caller, frame(pickled, b"as pickle", &[b"segment"])];
    vec![
        input(SERVES, 15, &asked),
        input(SERVES, 3, &asked),
        input(0, 15, &answered),
        input(0, 2, &answered),
        input(SERVES | ASKS_TOKEN, 15, &shown),
        input(SERVES | TRUSTS, 6, &trusted),
    ]
}

pub fn lending() -> Vec<Vec<u8>> {
    let mut table = vec![NAMED];
    table.extend_from_slice(&name(4, 4096, 4096).encode());
    let lent = |kind| {
        let header = Header {
            named: true,
            ..Header::control(kind, 2)
        };
        [
            control(Kind::Chunk, 4),
            frame(header, b"lent", &[&table]),
            control(Kind::Gone, 4),
            control(Kind::Renew, 5),
        ]
    };
    vec![
        input(SERVES, 15, &lent(Kind::Call)),
        input(0, 15, &lent(Kind::Reply)),
    ]
}

fn message(frames: &[&[u8]]) -> Vec<u8> {
    frame(Header::control(Kind::Message, 0), &[], frames)
}

pub fn messages() -> Vec<Vec<u8>> {
    let greeting = greeting(Role::Messenger, 0);
    let mut table = vec![FOLLOWS, NAMED];
    table.extend_from_slice(&name(1, 0, 2).encode());
    let said = [
        greeting.clone(),
        message(&[b"hello"]),
        message(&[b"", &[3; 500], b"end"]),
        control(Kind::Ping, 4),
        frame(Header::control(Kind::Shared, 0), &[], &[&table, b"follows"]),
        control(Kind::Pong, 4),
    ];
    let shown = [greeting, token(), message(&[b"in"])];
    vec![
        input(of_messages::TRUSTS, 15, &said),
        input(0, 4, &said),
        input(of_messages::PROVIDES, 7, &said),
        input(of_messages::ASKS_TOKEN, 15, &shown),
    ]
}

pub fn native() -> Vec<Vec<u8>> {
    let said = [
        greeting(Role::Messenger, 0),
        message(&[b"echo", b"back", &[9; 200]]),
        message(&[b"store", b"key", b"none"]),
        message(&[b"health"]),
        message(&[b"nobody"]),
    ]
    .concat();
    [15, 5].map(|step| [&[step][..], &said].concat()).to_vec()
}

pub fn shared() -> Vec<Vec<u8>> {
    let act = |kind: u8, said: [u8; 32]| [&[kind][..], &said].concat();
    let record = |record: lifeline::Record| act(RECORD, record.encode());
    let cursors = |head: u64, tail: u64, count: u8| {
        let name = Name {
            generation: head,
            ..name(count.into(), tail, 0)
        };
        act(CURSORS, name.encode())
    };
    let opened = [
        record(lifeline::Record::Chunk(5)),
        act(NAME, name(5, 4096, 8192).encode()),
        act(NAME, name(0, 0, 1).encode()),
        record(lifeline::Record::Gone(5)),
    ];
    let moved = [
        cursors(0, 100, 200),
        cursors(150, 260, 255),
        cursors(455, 400, 0),
    ];
    vec![opened.concat(), moved.concat()]
}

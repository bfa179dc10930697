//! Garbage and damaged records into both ends: a fault or nothing, never a panic.

use std::io::IoSlice;

use super::authority::{Authority, both};
use super::pipe::{connected, ends, handshake, receive};
use crate::stream::tls::Certificate;
use crate::stream::{Stream, StreamFault};

/// Numbers that are the same in every run (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).expect("64 bits") % below
    }
}

#[test]
fn a_damaged_record_is_a_fault_and_nothing_of_it_is_delivered() {
    let ca = Authority::new();
    let (server, client) = both(&ca);
    for at in 0..32 {
        let (mut one, mut other) = connected(&server, &client, usize::MAX, 1 << 20);
        one.send(&[IoSlice::new(b"ten bytes.")]).expect("sent");
        one.inner().out.borrow_mut().bytes[at] ^= 0x10;
        match receive(&mut other, 100) {
            // The version in a record's header means nothing any more, RFC 8446 5.1.
            Ok(Some(bytes)) => assert_eq!((at, &bytes[..]), (2, &b"ten bytes."[..])),
            Ok(None) => assert!((3..5).contains(&at), "a longer length waits for more: {at}"),
            Err(StreamFault::Tls(_)) => {
                let told = other.inner().out.borrow().bytes.len();
                assert!(told > 0, "the peer is told by an alert: {at}");
                assert!(receive(&mut other, 100).is_err(), "the fault stays");
                assert!(other.send(&[IoSlice::new(b"x")]).is_err());
            }
            other => panic!("{at}: {other:?}"),
        }
    }
}

#[test]
fn garbage_and_mutated_handshakes_never_panic() {
    let ca = Authority::new();
    let (server, client) = both(&ca);
    let mut numbers = Numbers(0x5eed);
    let mut faults = 0;
    for round in 0..150 {
        let step = 300 + numbers.next(3000);
        let (mut one, mut other) = ends(&server, &client, step, 1 << 20);
        one.flush().expect("alive");
        // Damage a byte, drop some, repeat some, or begin with garbage, in either direction.
        for way in [one.inner().out.clone(), one.inner().into.clone()] {
            if way.borrow().bytes.is_empty() {
                other.flush().expect("alive");
                let _ = receive(&mut other, 4096);
            }
            let mut way = way.borrow_mut();
            let length = way.bytes.len().max(1);
            let at = numbers.next(length);
            match numbers.next(5) {
                0 => way.bytes.truncate(at),
                1 => way
                    .bytes
                    .extend((0..numbers.next(400)).map(|i| i.to_le_bytes()[0])),
                2 => {
                    way.bytes = (0..length)
                        .map(|_| numbers.next(256).to_le_bytes()[0])
                        .collect();
                }
                3 if at + 1 < length => drop(way.bytes.drain(at..=at)),
                _ => {
                    if let Some(byte) = way.bytes.get_mut(at) {
                        *byte ^= 1 << numbers.next(8);
                    }
                }
            }
        }
        let outcomes = handshake(&mut one, &mut other);
        faults += usize::from(outcomes.iter().any(Result::is_err));
        let _ = (
            one.send(&[IoSlice::new(&[1; 99])]),
            other.send(&[IoSlice::new(&[1; 99])]),
        );
        let _ = (receive(&mut one, 999), receive(&mut other, 999));
        one.finish();
        assert!(one.kept_bytes() < 1 << 20, "round {round}");
    }
    assert!(faults > 75, "{faults}");
}

#[test]
fn mutated_traffic_never_panics_and_never_lies() {
    let ca = Authority::new();
    let (server, client) = both(&ca);
    let mut numbers = Numbers(0xfeed);
    for _ in 0..60 {
        let (mut one, mut other) =
            connected(&server, &client, 2000 + numbers.next(50_000), 1 << 22);
        let sent: Vec<u8> = (0..70_000u32).map(|i| (i % 241) as u8).collect();
        let _ = one.send(&[IoSlice::new(b"h"), IoSlice::new(&sent)]);
        let _ = one.flush();
        {
            let mut way = one.inner().out.borrow_mut();
            let at = numbers.next(way.bytes.len());
            way.bytes[at] ^= 1 << numbers.next(8);
        }
        let mut got = Vec::new();
        while let Ok(Some(bytes)) = receive(&mut other, 500 + numbers.next(40_000)) {
            got.extend(bytes);
        }
        assert!(
            [b"h", &sent[..]].concat().starts_with(&got),
            "only what was sent"
        );
        let _ = other.flush();
        let _ = (receive(&mut one, 99), one.send(&[IoSlice::new(&sent)]));
    }
}

#[test]
fn a_mutated_certificate_is_read_or_refused() {
    let ca = Authority::new();
    let pem = std::fs::read(ca.sign("server", "localhost", false).certificate).expect("written");
    let der = {
        use rustls::pki_types::{CertificateDer, pem::PemObject};
        CertificateDer::from_pem_slice(&pem)
            .expect("a certificate")
            .to_vec()
    };
    assert!(Certificate::read(&der).is_some());
    for at in 0..der.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut changed = der.clone();
            changed[at] ^= flip;
            let _ = Certificate::read(&changed);
            let _ = Certificate::read(&der[..at]);
        }
    }
}

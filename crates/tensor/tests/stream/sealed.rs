//! Over TLS, by sockets that take a part of what there is at a time.
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use forebay_tensor::stream::{Entrance, Options, Server};
use forebay_tensor::{Hello, Operation, Rows};
use forebay_transport::link::Admission;
use forebay_transport::serve::Listening;
use forebay_transport::stream::Wire;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};

use super::authority::{Authority, both};
use super::connect::{
    TestLink, TestServer, assert_well, begin, finish, greet_over, link_over, publish, run,
};
use super::sys::Memory;

/// Four records of TLS, and far less than what is asked for; with less than a segment of the loopback device each waits
/// for the timer of a late acknowledgement.
const SOCKET_BYTES: usize = 64 << 10;

fn narrow(socket: impl AsFd) {
    set_socket_send_buffer_size(&socket, SOCKET_BYTES).expect("a size that can be");
    set_socket_recv_buffer_size(&socket, SOCKET_BYTES).expect("a size that can be");
}

/// A server behind TLS, and a link to it.
fn sealed(authority: &Authority) -> (TestServer, TestLink) {
    let (tls, client) = both(authority);
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    listener.set_nonblocking(true).expect("nonblocking");
    narrow(&listener); // whoever is accepted has it from there
    let port = listener.local_addr().expect("bound").port();
    let entrance = Entrance {
        listening: Listening::Tcp(vec![listener.into()]),
        tls: Some(Arc::new(tls)),
        admission: Admission::Anybody,
    };
    let server = Server::start(vec![entrance], Options::default()).expect("started");
    server.open();
    let socket: OwnedFd = TcpStream::connect(("127.0.0.1", port))
        .expect("connects")
        .into();
    narrow(&socket);
    let stream = client.connect(Arc::new(socket), "localhost");
    let hello = Hello {
        slots: 16,
        fabrics: 0,
    };
    let greeted = greet_over(Wire::from(stream.expect("a client")), hello);
    let (wire, welcome) = greeted.expect("welcome");
    assert!(matches!(wire, Wire::Tls(_)));
    (server, link_over(wire, &welcome, |_| {}))
}

#[test]
fn rows_of_every_size_come_and_go_over_tls() {
    let authority = Authority::new();
    let (server, link) = sealed(&authority);
    for (rows, row_bytes) in [(1, 1), (1000, 37), (64, 4096), (9, 131_072), (3, 1 << 20)] {
        let (handle, mut content) = publish(&server, "tensor", rows, row_bytes);
        let (out, work) = handle.slice(0, rows);
        assert_well(&run(&link, vec![Arc::clone(&out)], vec![work]));
        assert!(out.content() == content, "pulled {rows} x {row_bytes}");
        let turned: Vec<u8> = content.iter().map(|byte| !byte).collect();
        let all = Rows::Slice {
            first: 0,
            count: rows,
        };
        let values = Memory::new(&turned);
        for operation in [Operation::Set, Operation::Add] {
            let work = handle.push(all, &values, operation);
            assert_well(&run(&link, vec![Arc::clone(&values)], vec![work]));
            for (byte, value) in content.iter_mut().zip(&turned) {
                *byte = match operation {
                    Operation::Set => *value,
                    Operation::Add => byte.wrapping_add(*value),
                };
            }
            assert!(handle.memory.content() == content, "{operation:?}");
        }
    }
}

/// Both directions are full at once: neither side may wait for the other to take before it takes itself.
#[test]
fn pulls_and_pushes_pass_each_other_over_tls() {
    let authority = Authority::new();
    let (server, link) = sealed(&authority);
    let (down, content) = publish(&server, "down", 256, 8192);
    let (up, _) = publish(&server, "up", 256, 8192);
    let values = Memory::new(&content);
    let (mut kept, mut works) = (vec![Arc::clone(&values)], Vec::new());
    let mut outs = Vec::new();
    for at in 0..16 {
        let (out, work) = down.slice(at * 16, 16);
        outs.push(out);
        works.push(work);
        if at % 4 == 0 {
            let all = Rows::Slice {
                first: 0,
                count: 256,
            };
            works.push(up.push(all, &values, Operation::Set));
        }
    }
    kept.extend(outs.iter().cloned());
    let batch = begin(&link, kept, works);
    finish(&link, &batch);
    assert_well(&batch);
    let pulled: Vec<u8> = outs.iter().flat_map(|out| out.content()).collect();
    assert!(pulled == content, "what was pulled");
    assert!(up.memory.content() == content, "what was pushed");
}

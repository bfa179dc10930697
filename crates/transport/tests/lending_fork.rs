//! What a process borrows and a fork: alone, since it is about all that the process holds.

use std::time::{Duration, Instant};

use forebay_transport::calls::{Connection, Options, Outgoing, Taker};
use forebay_transport::link::{Head, Payload};
use forebay_transport::stream::unix;
use forebay_transport::wire::{Codec, Role};
use forebay_transport::{Buffer, limit, share};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

fn received(caller: &Connection, server: &Connection, byte: u8) -> Vec<Buffer> {
    let segment = vec![byte; limit::LEND_BYTES_MIN];
    let outgoing = Outgoing {
        codec: Codec::Pickle,
        one_way: false,
        remaining: None,
        generation: 0,
        head: Head::Borrowed(b"head"),
        segments: vec![Box::new(segment) as Payload],
    };
    let id = caller.start(outgoing, Taker::Thread).expect("sent");
    let call = std::thread::scope(|scope| {
        scope.spawn(|| caller.drain(Some(soon())));
        server
            .next_call(Some(soon()))
            .expect("alive")
            .expect("a call")
    });
    let head = Head::Borrowed(&[]);
    let answered = server.reply(id, Codec::Pickle, head, Vec::new());
    answered.expect("sent");
    caller.wait(id, Some(soon())).expect("an answer");
    call.segments
}

#[test]
fn what_is_held_before_a_fork_stays_as_it_is_and_what_comes_after_is_right() {
    let (ours, theirs) = unix::pair().expect("sockets");
    let caller = Connection::new(ours, Options::new(Role::Caller, "server")).expect("a caller");
    let server = Connection::new(theirs, Options::new(Role::Server, "caller")).expect("a server");
    received(&caller, &server, 1);
    let held = received(&caller, &server, 5);
    assert!(held[0].is_shared());
    share::keep_borrowed();
    assert!(held[0].as_slice().iter().all(|&byte| byte == 5));
    drop(held);
    let next = received(&caller, &server, 6);
    assert!(next[0].as_slice().iter().all(|&byte| byte == 6));
}

//! Side sockets between real ends.

use super::*;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::{Mode, chmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, connect, socket_with};
use rustix::pipe::{PipeFlags, pipe_with};

/// The directory of one test, which the listener makes; removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("forebay-side-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn socket(&self) -> PathBuf {
        self.0.join("side")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn listening() -> (SideListener, Scratch) {
    let scratch = Scratch::new();
    let listener = SideListener::bind(&scratch.socket()).expect("bind");
    (listener, scratch)
}

fn connected(listener: &SideListener) -> (OwnedFd, Side) {
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .expect("socket");
    connect(
        &socket,
        &SocketAddrUnix::new(listener.path()).expect("address"),
    )
    .expect("connect");
    (
        socket,
        listener.accept().expect("accept").expect("a worker"),
    )
}

fn send(socket: &OwnedFd, record: &[u8], descriptors: &[BorrowedFd<'_>]) {
    packet::send(socket, record, descriptors, SendFlags::empty()).expect("send");
}

fn hello_record(slot: u32, nonce: u64) -> Vec<u8> {
    [&[0][..], &slot.to_le_bytes(), &nonce.to_le_bytes()].concat()
}

fn record(kind: u8, id: u64, attempt: u32, payload: &[u8]) -> Vec<u8> {
    [
        &[kind][..],
        &id.to_le_bytes(),
        &attempt.to_le_bytes(),
        payload,
    ]
    .concat()
}

/// A worker that has said hello, and the write end of its output.
fn identified(listener: &SideListener) -> (OwnedFd, Side, OwnedFd, OwnedFd) {
    let (socket, mut side) = connected(listener);
    let (reading, writing) = pipe_with(PipeFlags::CLOEXEC).expect("pipe");
    send(&socket, &hello_record(3, 99), &[reading.as_fd()]);
    let mut buffer = RecordBuffer::default();
    let Ok(Received::Record(Record::Hello {
        slot,
        nonce,
        output,
    })) = side.receive(&mut buffer)
    else {
        panic!("no hello");
    };
    assert_eq!((slot, nonce), (3, 99));
    (socket, side, writing, output)
}

#[test]
fn a_hello_brings_the_output_which_does_not_block() {
    let (listener, _scratch) = listening();
    let (_socket, side, writing, output) = identified(&listener);
    assert_eq!(
        side.pid(),
        i32::try_from(std::process::id()).expect("a pid")
    );
    let mut bytes = [0; 8];
    assert_eq!(rustix::io::read(&output, &mut bytes), Err(Errno::AGAIN));
    rustix::io::write(&writing, b"hi").expect("write");
    assert_eq!(rustix::io::read(&output, &mut bytes), Ok(2));
}

#[test]
fn records_keep_their_borders_and_the_end_is_reported() {
    let (listener, _scratch) = listening();
    let (socket, mut side, ..) = identified(&listener);
    let long = vec![b'x'; SIDE_RECORD_BYTES_MAX - HEAD_BYTES];
    send(&socket, &record(1, 7, 2, &long), &[]);
    send(&socket, &record(2, 7, 2, b"\x80"), &[]);
    send(&socket, &record(3, 7, 2, b"careful"), &[]);
    drop(socket);
    let mut buffer = RecordBuffer::default();
    let Ok(Received::Record(Record::Log { id, attempt, bytes })) = side.receive(&mut buffer) else {
        panic!("no log");
    };
    assert_eq!((id, attempt, bytes), (RequestId(7), 2, &*long));
    assert!(matches!(
        side.receive(&mut buffer),
        Ok(Received::Record(Record::Progress { map: b"\x80", .. }))
    ));
    assert!(matches!(
        side.receive(&mut buffer),
        Ok(Received::Record(Record::Warning {
            text: "careful",
            ..
        }))
    ));
    assert!(matches!(side.receive(&mut buffer), Ok(Received::End)));
}

#[test]
fn nothing_is_no_end() {
    let (listener, _scratch) = listening();
    assert!(listener.accept().expect("accept").is_none());
    let (_socket, mut side) = connected(&listener);
    assert!(matches!(
        side.receive(&mut RecordBuffer::default()),
        Ok(Received::Nothing)
    ));
}

#[test]
fn what_does_not_begin_with_a_hello_and_its_pipe_is_refused() {
    let (listener, _scratch) = listening();
    let (reading, _writing) = pipe_with(PipeFlags::CLOEXEC).expect("pipe");
    let null = std::fs::File::open("/dev/null").expect("open");
    let cases: [(Vec<u8>, Option<BorrowedFd<'_>>); 4] = [
        (record(1, 7, 1, b"log"), Some(reading.as_fd())),
        (hello_record(1, 1), None),
        (hello_record(1, 1), Some(null.as_fd())),
        (vec![0; 5], Some(reading.as_fd())),
    ];
    for (packet, descriptor) in cases {
        let (socket, mut side) = connected(&listener);
        send(&socket, &packet, descriptor.as_slice());
        let mut buffer = RecordBuffer::default();
        let received = side.receive(&mut buffer);
        assert!(
            matches!(received, Err(Error::Malformed { .. })),
            "{packet:?}"
        );
    }
}

mod as_root {
    use super::*;

    #[test]
    #[ignore = "starts a process of another user, which needs root: sudo make test"]
    fn a_process_of_another_user_is_turned_away() {
        use std::os::unix::process::CommandExt;
        use std::process::{Command, Stdio};
        let (listener, scratch) = listening();
        // As if the directory had let it through.
        chmod(&scratch.0, Mode::from_raw_mode(0o755)).expect("chmod");
        chmod(listener.path(), Mode::from_raw_mode(0o666)).expect("chmod");
        let script = "import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); \
                  s.connect(sys.argv[1]); print('in', flush=True); print(s.recv(9) == b'')";
        let mut stranger = Command::new("python3");
        let stranger = stranger
            .args(["-I", "-c", script])
            .arg(listener.path())
            .uid(65_534);
        let stranger = stranger.stdout(Stdio::piped()).spawn().expect("python3");
        let mut polled = [rustix::event::PollFd::new(
            &listener,
            rustix::event::PollFlags::IN,
        )];
        let limit = forebay_base::time::timespec(Duration::from_secs(10));
        assert_eq!(
            rustix::event::poll(&mut polled, Some(&limit)),
            Ok(1),
            "it connects"
        );
        assert!(
            listener.accept().expect("accept").is_none(),
            "it is not let in"
        );
        let told = stranger.wait_with_output().expect("it ends").stdout;
        assert_eq!(told, b"in\nTrue\n", "it sees the end");
    }
}

#[test]
fn hostile_records_are_errors() {
    let (listener, _scratch) = listening();
    let (socket, mut side, ..) = identified(&listener);
    let mut buffer = RecordBuffer::default();
    let second_hello = hello_record(1, 1);
    for packet in [
        &b"\x01"[..],
        &second_hello,
        &record(9, 1, 1, b""),
        &record(3, 1, 1, b"\xff"),
        &vec![1; SIDE_RECORD_BYTES_MAX + 1],
    ] {
        send(&socket, packet, &[]);
        assert!(side.receive(&mut buffer).is_err(), "{}", packet.len());
    }
}

#[test]
fn an_interrupt_names_the_run_and_a_full_socket_is_reported() {
    let (listener, _scratch) = listening();
    let (socket, side, ..) = identified(&listener);
    assert!(side.interrupt(RequestId(5), 2).expect("send"));
    let mut bytes = [0; 32];
    let length = rustix::io::read(&socket, &mut bytes).expect("read");
    assert_eq!(&bytes[..length], &*record(1, 5, 2, b""));
    let sent = (0..100_000)
        .take_while(|_| side.interrupt(RequestId(5), 2).expect("send"))
        .count();
    assert!(
        sent < 100_000,
        "a worker that does not read fills its socket"
    );
    drop(socket);
    assert!(side.interrupt(RequestId(5), 2).is_err());
}

#[test]
fn the_file_is_private_replaced_when_stale_and_gone_at_the_end() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    let path = scratch.socket();
    let stale = SideListener::bind(&path).expect("bind");
    let listener = SideListener::bind(&path).expect("a stale socket is replaced");
    let mode = path.metadata().expect("stat").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(listener);
    assert!(!path.exists());
    drop(stale);
    std::fs::write(&path, "mine").expect("write");
    assert!(matches!(SideListener::bind(&path), Err(Error::Config(_))));
}

#[test]
fn a_directory_that_other_users_may_enter_is_refused_with_what_to_do() {
    let scratch = Scratch::new();
    drop(SideListener::bind(&scratch.socket()).expect("the directory is made"));
    chmod(&scratch.0, Mode::from_raw_mode(0o755)).expect("chmod");
    let error = SideListener::bind(&scratch.socket()).expect_err("not private");
    let (Error::Config(text), directory) = (error, scratch.0.display()) else {
        panic!("not a wrong setting");
    };
    let start = format!("side socket: {directory} (user ");
    assert!(
        text.starts_with(&start) && text.contains("mode 755"),
        "{text}"
    );
    assert!(
        text.ends_with("use a directory of your own (0700)"),
        "{text}"
    );
}

#[test]
fn a_socket_whose_file_was_removed_is_made_again() {
    let (mut listener, scratch) = listening();
    std::fs::remove_dir_all(&scratch.0).expect("as those who clean /tmp do");
    assert!(listener.is_gone());
    listener.bind_again().expect("free");
    assert!(!listener.is_gone());
    drop(identified(&listener));
}

#[test]
fn a_listener_that_closes_leaves_the_file_of_its_successor() {
    let scratch = Scratch::new();
    let path = scratch.socket();
    let first = SideListener::bind(&path).expect("bind");
    std::fs::remove_file(&path).expect("as those who clean /tmp do");
    let second = SideListener::bind(&path).expect("bind");
    drop(first);
    assert!(path.exists(), "the successor's workers find no listener");
    drop(second);
    assert!(!path.exists());
}

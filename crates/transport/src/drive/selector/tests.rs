//! On real sockets: whose events arrive, whatever happens to numbers and files.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::io::{Errno, dup};

use super::*;

type Names = Vec<&'static str>;

fn pair() -> (UnixStream, UnixStream) {
    UnixStream::pair().expect("a socketpair")
}

fn selector() -> Selector<&'static str> {
    Selector::new().expect("an epoll set")
}

/// Wait for at most `ms`: payloads that are ready, and how many events meant nothing.
fn ready(selector: &mut Selector<&'static str>, ms: u64) -> (Names, usize) {
    let (set, _) = selector.waiting().expect("a set");
    let mut events = Events::default();
    events.reserve(16);
    let timeout = Timeout::after(Duration::from_millis(ms));
    set.wait(&mut events, timeout).expect("a wait");
    let known: Names = events
        .iter()
        .filter_map(|event| selector.resolve(event).map(|(entry, _)| entry.payload))
        .collect();
    let ghosts = events.iter().count() - known.len();
    (known, ghosts)
}

#[test]
fn brings_what_is_ready_until_it_is_not() {
    let (mut near, mut far) = pair();
    let mut selector = selector();
    let fd = near.as_raw_fd();
    assert_eq!(
        selector.insert(fd, WatchKind::Attached, Interest::READ, "near"),
        Ok(None)
    );
    assert_eq!(ready(&mut selector, 0), (vec![], 0));
    far.write_all(b"x").expect("sent");
    assert_eq!(ready(&mut selector, 0), (vec!["near"], 0));
    near.read_exact(&mut [0]).expect("received");
    assert_eq!(ready(&mut selector, 0), (vec![], 0));
}

#[test]
fn without_interest_an_entry_stays_and_is_silent_even_at_a_hang_up() {
    let (near, far) = pair();
    let mut selector = selector();
    let fd = near.as_raw_fd();
    selector
        .insert(fd, WatchKind::Attached, Interest::READ, "near")
        .expect("attached");
    selector.change(fd, Interest::NONE).expect("silenced");
    drop(far);
    assert_eq!(ready(&mut selector, 0), (vec![], 0));
    selector.change(fd, Interest::READ).expect("watched again");
    assert_eq!(ready(&mut selector, 0), (vec!["near"], 0));
    assert!(selector.remove(fd).is_some());
}

#[test]
fn a_wait_is_not_shorter_than_asked() {
    let mut selector = selector();
    let start = Instant::now();
    assert_eq!(ready(&mut selector, 20), (vec![], 0));
    assert!(start.elapsed() >= Duration::from_millis(20));
}

#[test]
fn a_number_is_taken_once_and_missed_once() {
    let (near, _far) = pair();
    let mut selector = selector();
    let fd = near.as_raw_fd();
    for kind in [WatchKind::Registered, WatchKind::Attached] {
        selector
            .insert(fd, kind, Interest::READ, "first")
            .expect("watched");
        let again = selector.insert(fd, WatchKind::Attached, Interest::READ, "second");
        assert_eq!(again, Err(WatchError::Taken));
        assert!(selector.remove(fd).is_some());
        assert!(selector.remove(fd).is_none());
        assert_eq!(
            selector.change(fd, Interest::BOTH),
            Err(WatchError::Missing)
        );
    }
}

#[test]
fn what_the_kernel_refuses_leaves_nothing_behind() {
    let file: OwnedFd = std::fs::File::open("/proc/self/exe")
        .expect("a file")
        .into();
    let mut selector = selector();
    let fd = file.as_raw_fd();
    let refused = selector.insert(fd, WatchKind::Registered, Interest::READ, "file");
    assert_eq!(refused, Err(WatchError::System(Errno::PERM)));
    assert!(selector.get(fd).is_none());
    let refused = selector.insert(-1, WatchKind::Attached, Interest::READ, "none");
    assert_eq!(refused, Err(WatchError::System(Errno::BADF)));
}

#[test]
fn an_attached_number_that_names_another_file_now_gives_way() {
    let (near, _far) = pair();
    let mut selector = selector();
    let fd = near.as_raw_fd();
    selector
        .insert(fd, WatchKind::Attached, Interest::READ, "old")
        .expect("attached");
    let (other, mut peer) = pair();
    // What a close and a lucky accept do, in one step: no other test can get the number in between.
    let mut near: OwnedFd = near.into();
    rustix::io::dup2(&other, &mut near).expect("the number means another file");
    assert_eq!(
        selector.insert(fd, WatchKind::Attached, Interest::READ, "new"),
        Ok(Some("old"))
    );
    peer.write_all(b"x").expect("sent");
    assert_eq!(ready(&mut selector, 0), (vec!["new"], 0));
}

#[test]
fn a_file_that_outlives_its_descriptor_is_silenced() {
    let (near, mut far) = pair();
    let mut selector = selector();
    let fd = near.as_raw_fd();
    selector
        .insert(fd, WatchKind::Attached, Interest::READ, "near")
        .expect("attached");
    let (living, mut peer) = pair();
    selector
        .insert(
            living.as_raw_fd(),
            WatchKind::Attached,
            Interest::READ,
            "living",
        )
        .expect("attached");
    let survivor = dup(&near).expect("a duplicate");
    drop(near);
    selector.remove(fd);
    far.write_all(b"x").expect("sent");
    peer.write_all(b"x").expect("sent");
    let (names, ghosts) = ready(&mut selector, 0);
    assert_eq!((names, ghosts), (vec!["living"], 1));
    selector.rebuild().expect("a fresh set");
    assert_eq!(ready(&mut selector, 0), (vec!["living"], 0));
    drop(survivor);
}

//! Listening with a lock and without, in directories of every kind.

use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::net::SocketType;

use super::exclusive::lock_name;
use super::*;

/// A directory of one test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("base-{name}-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&path).expect("made");
        Self(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("sock")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn bound(path: &Path) -> Result<ExclusiveListener, ListenError> {
    ExclusiveListener::bind(path, SocketType::STREAM, Directory::Private)
}

fn bound_without_lock(path: &Path) -> Result<Listener, ListenError> {
    Listener::bind(path, SocketType::STREAM, Directory::Private)
}

#[test]
fn one_process_listens_and_leaves_nothing() {
    let scratch = Scratch::new("one");
    let path = scratch.0.join("made").join("sock");
    let listener = bound(&path).expect("free");
    assert_eq!(path.metadata().expect("a file").mode() & 0o777, 0o600);
    assert!(UnixStream::connect(&path).is_ok());
    let own = std::process::id();
    match bound(&path) {
        Err(ListenError::InUse { holder, .. }) => assert_eq!(holder, Some(own)),
        other => panic!("{other:?}"),
    }
    drop(listener);
    let left = std::fs::read_dir(path.parent().expect("one")).expect("a directory");
    assert_eq!(left.count(), 0);
}

#[test]
fn a_stale_socket_is_replaced_and_a_file_is_not() {
    let scratch = Scratch::new("stale");
    drop(std::os::unix::net::UnixListener::bind(scratch.socket()).expect("bound"));
    drop(bound(&scratch.socket()).expect("nobody holds the lock"));
    std::fs::write(scratch.socket(), "precious").expect("written");
    assert!(matches!(
        bound(&scratch.socket()),
        Err(ListenError::NotASocket(_))
    ));
    assert_eq!(std::fs::read(scratch.socket()).expect("kept"), b"precious");
}

#[test]
fn a_directory_that_others_may_read_is_not_private_and_one_that_they_write_is_neither() {
    let scratch = Scratch::new("exposed");
    let mode = |mode| {
        std::fs::set_permissions(&scratch.0, Permissions::from_mode(mode)).expect("ours");
    };
    let check = |wanted| check_directory(&scratch.socket(), wanted).is_ok();
    for (bits, private, unwritable) in [
        (0o700, true, true),
        (0o755, false, true),
        (0o777, false, false),
        (0o1777, false, true),
    ] {
        mode(bits);
        let found = (check(Directory::Private), check(Directory::Unwritable));
        assert_eq!(found, (private, unwritable), "{bits:o}");
    }
    mode(0o700);
}

#[test]
fn a_socket_whose_file_was_removed_can_be_bound_again() {
    let scratch = Scratch::new("again");
    let mut listener = bound(&scratch.socket()).expect("free");
    std::fs::remove_file(scratch.socket()).expect("there");
    assert!(listener.socket().is_gone());
    listener.bind_again().expect("free");
    assert!(!listener.socket().is_gone() && UnixStream::connect(scratch.socket()).is_ok());
}

#[test]
fn a_successors_files_are_left_alone() {
    let scratch = Scratch::new("successor");
    let first = bound(&scratch.socket()).expect("free");
    std::fs::remove_file(scratch.socket()).expect("there");
    std::fs::remove_file(lock_name(&scratch.socket())).expect("there");
    let second = bound(&scratch.socket()).expect("free");
    drop(first);
    assert!(!second.socket().is_gone());
    assert!(matches!(
        bound(&scratch.socket()),
        Err(ListenError::InUse { .. })
    ));
}

#[test]
fn without_a_lock_a_socket_in_use_is_replaced_and_its_owner_leaves_the_successor() {
    let scratch = Scratch::new("shared");
    let path = scratch.0.join("made").join("sock");
    let first = bound_without_lock(&path).expect("the directory is made");
    let second = bound_without_lock(&path).expect("the first is replaced");
    drop(first);
    assert!(!second.is_gone() && UnixStream::connect(&path).is_ok());
    assert!(!lock_name(&path).exists());
    assert_eq!(path.metadata().expect("a file").mode() & 0o777, 0o600);
    drop(second);
    assert!(!path.exists());
}

#[test]
fn without_a_lock_the_directory_and_other_files_are_checked_too() {
    let scratch = Scratch::new("checked");
    std::fs::write(scratch.socket(), "precious").expect("written");
    assert!(matches!(
        bound_without_lock(&scratch.socket()),
        Err(ListenError::NotASocket(_))
    ));
    std::fs::set_permissions(&scratch.0, Permissions::from_mode(0o755)).expect("ours");
    assert!(matches!(
        bound_without_lock(&scratch.socket()),
        Err(ListenError::Exposed { .. })
    ));
    std::fs::set_permissions(&scratch.0, Permissions::from_mode(0o700)).expect("ours");
}

#[test]
fn binding_again_leaves_what_has_the_name_by_now() {
    let scratch = Scratch::new("taken");
    let mut listener = bound_without_lock(&scratch.socket()).expect("free");
    std::fs::remove_file(scratch.socket()).expect("there");
    std::fs::write(scratch.socket(), "precious").expect("written");
    assert!(listener.bind_again().is_err());
    drop(listener);
    assert_eq!(std::fs::read(scratch.socket()).expect("kept"), b"precious");
}

#[test]
fn a_process_of_this_user_is_accepted_with_its_number() {
    let scratch = Scratch::new("own");
    let listener = bound_without_lock(&scratch.socket()).expect("free");
    assert!(listener.accept_own().expect("accept").is_none());
    let _client = UnixStream::connect(scratch.socket()).expect("connected");
    let (_, peer) = listener.accept_own().expect("accept").expect("a client");
    let own = i32::try_from(std::process::id()).expect("a process id");
    assert_eq!(peer.pid.map(std::num::NonZeroI32::get), Some(own));
}

#[test]
fn a_path_that_does_not_fit_is_named_with_its_length() {
    let long = PathBuf::from("/tmp").join("x".repeat(200));
    let error = address(&long).expect_err("too long").to_string();
    assert!(
        error.contains("205 bytes") && error.contains("107"),
        "{error}"
    );
}

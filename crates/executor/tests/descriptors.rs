//! A process without a descriptor left. Alone in its program, whose limit it lowers.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use forebay_executor::dispatcher::{Dispatcher, Settings, Waited};
use forebay_executor::machine::Policy;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, shutdown, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What is looked at, in ticks of the kernel's accounts (10 ms).
const WATCHED: Duration = Duration::from_millis(500);

/// Ticks of the processor that this process has used.
fn ticks(stat: &File) -> u64 {
    let mut text = [0; 1024];
    let count = stat.read_at(&mut text, 0).expect("read");
    let text = String::from_utf8_lossy(&text[..count]).into_owned();
    let (_, fields) = text.rsplit_once(')').expect("a name");
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let number = |place: usize| fields[place].parse::<u64>().expect("a number");
    number(11) + number(12)
}

#[test]
fn a_worker_that_finds_no_descriptor_waits_without_costing_a_core() {
    let directory = std::env::temp_dir().join(format!("forebay-door-{}", std::process::id()));
    let path = directory.join("side");
    let dispatcher = Dispatcher::start(Settings {
        policy: Policy {
            durable: false,
            guaranteed: [0; 3],
            ..Policy::default()
        },
        side_socket: Some(path.clone()),
        ..Settings::default()
    })
    .expect("a dispatcher");
    let stat = File::open("/proc/self/stat").expect("opened");
    let side: OwnedFd = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("made");
    let before = getrlimit(Resource::Nofile);
    // The kernel gives the lowest number that is free, and none from the limit on.
    let lowest = File::open("/dev/null").expect("opened");
    let none = u64::try_from(lowest.as_raw_fd()).expect("a number");
    drop(lowest);
    let limit = |current| Rlimit { current, ..before };
    setrlimit(Resource::Nofile, limit(Some(none))).expect("lowered");

    connect(&side, &SocketAddrUnix::new(&path).expect("an address")).expect("connected");
    let used = ticks(&stat);
    // Nothing is to happen meanwhile.
    let nothing = dispatcher.orders(Some(WATCHED)).expect("polled");
    assert!(matches!(nothing, Waited::Items(ref orders) if orders.is_empty()));
    let used = ticks(&stat) - used;
    setrlimit(Resource::Nofile, before).expect("raised");
    assert!(used < 10, "{used} of 50 ticks were used for nothing");

    // It is let in now: who leaves is left.
    shutdown(&side, rustix::net::Shutdown::Write).expect("left");
    let patience = Timespec {
        tv_sec: 20,
        tv_nsec: 0,
    };
    let mut watched = [PollFd::new(&side, PollFlags::IN)];
    assert_eq!(poll(&mut watched, Some(&patience)).expect("polled"), 1);
    dispatcher.close();
    let _ = std::fs::remove_dir_all(directory);
}

//! What is written is read, message by message.

use std::fmt::Debug;

use super::*;
use crate::confine::Confinement;
use crate::death::{Cause, Death};
use crate::error::Result;

const HANDLE: Handle = Handle {
    slot: 7,
    generation: u64::MAX - 1,
};
const DEADLINES: Deadlines = Deadlines {
    start_ms: 120_000,
    idle_ms: 1 << 40,
    lifetime_ms: 1,
    key: 9,
    private_bytes_max: 1 << 29,
    limits: Limits {
        memory_bytes: 1 << 33,
        cpu_millis: 1_500,
        open_files: 256,
        processes: 64,
        advisory: true,
        stateful: true,
    },
};

fn launch() -> Launch {
    Launch {
        arguments: vec![b"python".to_vec(), Vec::new(), b"-c".to_vec()],
        environment: vec![(b"NAME".to_vec(), b"\xff=value".to_vec())],
        directory: b"/tmp".to_vec(),
        readiness: Readiness::Line(b"ready".to_vec()),
        caller_looks: true,
        stdio: true,
    }
}

/// What is written is read, and nothing that is shorter or longer.
fn check<M: PartialEq + Debug>(message: &M, bytes: &[u8], decode: fn(&[u8]) -> Result<M>) {
    assert_eq!(&decode(bytes).expect("as it was written"), message);
    for end in 0..bytes.len() {
        assert!(decode(&bytes[..end]).is_err(), "{message:?} cut at {end}");
    }
    let longer = [bytes, b"x"].concat();
    assert!(decode(&longer).is_err(), "{message:?} with a byte too many");
}

/// One of each kind.
pub(crate) fn each_request() -> Vec<KeeperRequest> {
    let (handle, deadlines) = (HANDLE, DEADLINES);
    vec![
        KeeperRequest::Template {
            template: 3,
            launch: launch(),
            setup: b"setup".to_vec(),
            spares: 2,
        },
        KeeperRequest::Branch {
            handle,
            parent: HANDLE,
            deadlines,
        },
        KeeperRequest::Keep {
            key: 3,
            min_idle: 2,
        },
        KeeperRequest::Fork {
            handle,
            template: 3,
            deadlines,
        },
        KeeperRequest::Start {
            handle,
            launch: launch(),
            deadlines,
        },
        KeeperRequest::Reset {
            handle,
            deadline_ms: 1_000,
        },
        KeeperRequest::Kill {
            handle,
            cause: Cause::Discarded,
        },
        KeeperRequest::Output { handle },
        KeeperRequest::Shutdown,
        KeeperRequest::Follow {
            handle,
            beyond: 1 << 40,
        },
    ]
}

#[test]
fn requests() {
    for message in each_request() {
        check(&message, &message.encode(), KeeperRequest::decode);
    }
}

/// One of each kind.
pub(crate) fn each_event() -> Vec<Event> {
    let death = Death {
        cause: Cause::Signal,
        pid: 4711,
        code: 9,
        peak_bytes: 1 << 31,
        limit_bytes: 1 << 30,
        text: b"last words".to_vec(),
    };
    let (handle, text) = (HANDLE, b"said".to_vec());
    let directory = b"/tmp/1".to_vec();
    let started = Event::Started {
        handle,
        pid: 4711,
        directory,
    };
    let written = Event::Written {
        handle,
        total: 1 << 33,
        text: text.clone(),
    };
    vec![
        started,
        Event::Died { slot: 7, death },
        Event::Output { handle, text },
        Event::Heavy { slot: 7 },
        written,
    ]
}

#[test]
fn events() {
    for message in each_event() {
        check(&message, &message.encode(), Event::decode);
    }
}

/// One of each kind.
pub(crate) fn each_order() -> Vec<Order> {
    let (setup, directory) = (b"setup".to_vec(), b"/tmp/1".to_vec());
    let (handle, next) = (HANDLE, b"/tmp/2".to_vec());
    let confinement = Some(Confinement {
        group: b"/sys/fs/cgroup/1".to_vec(),
        data_bytes: 1 << 33,
        open_files: 256,
        alone: true,
    });
    let fork = |confinement| Order::Fork {
        handle,
        next: next.clone(),
        confinement,
    };
    let branch = Order::Branch {
        handle,
        directory: directory.clone(),
        confinement: None,
    };
    let serve = Order::Serve {
        handle,
        confinement: confinement.clone(),
    };
    vec![
        Order::Setup { setup, directory },
        Order::Skip { handle },
        Order::Spare {
            next: b"/tmp/4".to_vec(),
        },
        fork(None),
        fork(confinement),
        branch,
        serve,
    ]
}

#[test]
fn orders() {
    for message in each_order() {
        check(&message, &message.encode(), Order::decode);
    }
}

/// One of each kind.
pub(crate) fn each_report() -> Vec<Report> {
    let (handle, reason) = (HANDLE, b"has threads".to_vec());
    vec![
        Report::Ready,
        Report::Unfit { reason },
        Report::Forked { handle, pid: -1 },
        Report::SpareForked { pid: 4711 },
        Report::HasExitHooks,
        Report::NotForked { handle, errno: 11 },
    ]
}

#[test]
fn reports() {
    for message in each_report() {
        check(&message, &message.encode(), Report::decode);
    }
}

#[test]
fn unknown_messages_and_absurd_lengths_are_errors() {
    for kind in [0, 11, 255] {
        assert!(KeeperRequest::decode(&[kind]).is_err());
        assert!(Event::decode(&[kind]).is_err());
        assert!(Order::decode(&[kind]).is_err());
        assert!(Report::decode(&[kind]).is_err());
    }
    let unknown_cause = [&[5][..], &[0; 12], &[255]].concat();
    assert!(KeeperRequest::decode(&unknown_cause).is_err());
    assert!(Report::decode(&[2, 255, 255, 255, 255]).is_err());
    let endless = [&[1, 0, 0, 0, 0][..], &[255; 4]].concat();
    assert!(KeeperRequest::decode(&endless).is_err());
}

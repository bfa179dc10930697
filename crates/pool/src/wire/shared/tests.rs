use super::*;
use crate::death::{Cause, Death};

const HANDLE: Handle = Handle {
    slot: 3,
    generation: 1 << 40,
};

fn launch() -> Launch {
    Launch {
        arguments: vec![b"python".to_vec()],
        environment: vec![(b"HOME".to_vec(), b"/".to_vec())],
        directory: b"/srv".to_vec(),
        ..Launch::default()
    }
}

fn kind() -> Kind {
    Kind {
        digest: vec![1; 32],
        name: b"Digits".to_vec(),
        template: vec![2; 32],
        launch: launch(),
        setup: b"setup".to_vec(),
        private: true,
        leases: 3,
        limits: Limits {
            memory_bytes: 1 << 40,
            cpu_millis: 500,
            open_files: 64,
            processes: 4,
            advisory: true,
            stateful: true,
        },
    }
}

pub(crate) fn requests() -> Vec<Request> {
    let (ticket, handle) = (9, HANDLE);
    let name = b"Digits".to_vec();
    let (unanswered, preface_read, key, from) = (77, true, 5, 6);
    vec![
        Request::Hello { ticket, version: 1 },
        Request::Kind {
            ticket,
            kind: Box::new(kind()),
        },
        Request::Ask {
            ticket,
            key,
            group: 7,
        },
        Request::Lend {
            ticket,
            handle,
            report: b"report".to_vec(),
        },
        Request::Death { ticket, handle },
        Request::Output { ticket, handle },
        Request::Status { ticket },
        Request::Services { ticket, from },
        Request::Drain { ticket, name },
        Request::Leave { ticket },
        Request::Branch { ticket, handle },
        Request::Follow {
            ticket,
            handle,
            seen: 1 << 40,
        },
        Request::Directory { ticket, handle },
        Request::Launch {
            ticket,
            handle,
            launch: Box::new(launch()),
            port: 65_535,
            own: true,
        },
        Request::Refill {
            ticket,
            key,
            min_idle: 2,
        },
        Request::Events {
            ticket,
            from: 1 << 40,
        },
        Request::StopRefill { ticket, key },
        Request::StopEvents { ticket },
        Request::Release { handle, unanswered },
        Request::Abandon {
            handle,
            unanswered,
            preface_read,
            report: b"report".to_vec(),
        },
        Request::Discard {
            handle,
            cause: Cause::Returned,
        },
        Request::Overdue { handle },
        Request::Open { handle },
        Request::ReleaseShared {
            handle,
            closed: true,
        },
    ]
}

/// Those about one lease.
fn lease_replies() -> Vec<Reply> {
    let (ticket, handle, pid) = (9, HANDLE, 12);
    let text = b"text".to_vec();
    let death = Death {
        cause: Cause::Signal,
        pid,
        code: 9,
        peak_bytes: 1 << 33,
        limit_bytes: 1 << 34,
        text,
    };
    vec![
        Reply::Lent {
            ticket,
            lent: lent(),
        },
        Reply::Joined {
            ticket,
            handle,
            key: 5,
            group: 7,
        },
        Reply::Start {
            ticket,
            handle,
            leases: 1 << 40,
        },
        Reply::Started { ticket, pid },
        Reply::Died { ticket, death },
    ]
}

pub(crate) fn replies() -> Vec<Reply> {
    let ticket = 9;
    let (key, next) = (5, 6);
    let text = b"text".to_vec();
    let deaths = vec![(Cause::Exit, 2)];
    let fields = std::array::from_fn(|index| index as u64);
    let (limit, reason) = (text.clone(), text.clone());
    let others = vec![
        Reply::Status {
            ticket,
            fields,
            deaths,
        },
        Reply::Kind {
            ticket,
            key,
            terms: Terms {
                canary_every: 10,
                min_idle: 2,
                leak_after_ms: 1 << 40,
                reset_ms: 30_000,
            },
        },
        Reply::Output {
            ticket,
            text: text.clone(),
        },
        Reply::Services {
            ticket,
            rows: vec![row()],
            next,
        },
        Reply::Drained {
            ticket,
            ended: 1,
            marked: 2,
        },
        Reply::Refused {
            ticket,
            limit,
            maximum: 1,
            value: 2,
            next: text,
        },
        Reply::Failed { ticket, reason },
        Reply::Written {
            ticket,
            total: 1 << 40,
            text: b"line".to_vec(),
        },
        Reply::Directory {
            ticket,
            path: b"/tmp/service".to_vec(),
        },
        Reply::Events {
            ticket,
            next: 1 << 40,
            events: events(),
        },
    ];
    [lease_replies(), others].concat()
}

fn lent() -> Lent {
    Lent {
        handle: HANDLE,
        pid: 12,
        unanswered: 77,
        preface_read: true,
        changes_hands: true,
        quiet: true,
        check: true,
        has_own: true,
        port: 65_535,
        report: b"report".to_vec(),
    }
}

fn row() -> Row {
    Row {
        slot: 3,
        pid: 12,
        name: b"text".to_vec(),
        state: ServiceState::Settling,
        holder: 4,
        age_ms: 5,
    }
}

fn events() -> Vec<ServiceEvent> {
    let transitions = [
        Transition::Start,
        Transition::Lease,
        Transition::Release,
        Transition::Reset,
        Transition::End(Cause::Contaminated),
        Transition::Death(Cause::Signal),
    ];
    let event = |transition| ServiceEvent {
        at_ms: 1 << 41,
        transition,
        name: b"Digits".to_vec(),
        pid: 12,
        handle: HANDLE,
    };
    transitions.map(event).to_vec()
}

#[test]
fn every_message_survives_the_wire_and_none_is_read_when_cut_short() {
    for request in requests() {
        let bytes = request.encode();
        assert_eq!(Request::decode(&bytes).expect("whole"), request);
        for end in 0..bytes.len() {
            assert!(Request::decode(&bytes[..end]).is_err(), "{request:?}");
        }
    }
    for reply in replies() {
        let bytes = reply.encode();
        assert_eq!(Reply::decode(&bytes).expect("whole"), reply);
        for end in 0..bytes.len() {
            assert!(Reply::decode(&bytes[..end]).is_err(), "{reply:?}");
        }
    }
}

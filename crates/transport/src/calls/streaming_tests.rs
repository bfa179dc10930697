//! Streams between two states: any interleaving keeps order, credit and the one end; a peer that breaks the rules is cut.

use std::collections::BTreeMap;
use std::time::Instant;

use proptest::prelude::*;
use rustix::io::Errno;

use crate::calls::call::{Outcome, Taker};
use crate::calls::items::Next;
use crate::calls::state::ConnectionState;
use crate::calls::state_tests::{Script, ends};
use crate::calls::streaming::StreamReadiness;
use crate::counted;
use crate::error::{Cause, Fault, Violation};
use crate::limit::{Limits, STREAM_BYTES, STREAM_CREDIT_MAX};
use crate::link::outbox::{Head, Payload};
use crate::wire::frame::{Header, Kind, Reason};
use crate::wire::preface::Preface;
use crate::wire::role::Role;

#[derive(Clone, Debug)]
enum Act {
    Start { credit: u32 },
    Run,
    Send { which: usize, hold: bool },
    Take { which: usize },
    Leave { which: usize },
    End { which: usize, fails: bool },
    ToServer,
    ToCaller,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let which = 0..4_usize;
    let act = prop_oneof![
        1 => (1..6_u32).prop_map(|credit| Act::Start { credit }),
        2 => Just(Act::Run),
        6 => (which.clone(), any::<bool>()).prop_map(|(which, hold)| Act::Send { which, hold }),
        6 => which.clone().prop_map(|which| Act::Take { which }),
        1 => which.clone().prop_map(|which| Act::Leave { which }),
        1 => (which, any::<bool>()).prop_map(|(which, fails)| Act::End { which, fails }),
        4 => Just(Act::ToServer),
        4 => Just(Act::ToCaller),
    ];
    prop::collection::vec(act, 1..120)
}

#[allow(clippy::struct_excessive_bools)] // each is a fact of its own, not a mode
#[derive(Default)]
struct Model {
    credit: u32,
    runs: bool,
    sent: u64,
    taken: u64,
    /// What was taken in the last go, which is consumed at the next one.
    taken_last: u64,
    left: bool,
    server_ended: bool,
    caller_ended: bool,
}

struct World {
    caller: ConnectionState<Script>,
    server: ConnectionState<Script>,
    streams: BTreeMap<u64, Model>,
}

fn nothing() -> Head<'static> {
    Head::Borrowed(&[])
}

impl World {
    fn new(step: usize) -> Self {
        let (caller, mut server) = ends(step, usize::MAX, Errno::AGAIN);
        assert!(server.attach_driver());
        Self {
            caller,
            server,
            streams: BTreeMap::new(),
        }
    }

    fn id(&self, which: usize) -> Option<u64> {
        let which = which % self.streams.len().max(1);
        self.streams.keys().copied().nth(which)
    }

    fn start(&mut self, credit: u32) -> u64 {
        let id = self.caller.calls().next_id();
        let header = Header {
            stream: true,
            ..Header::control(Kind::Call, id)
        };
        self.caller
            .begin_stream(header, nothing(), Vec::new(), Taker::Queue, credit);
        let model = Model {
            credit,
            ..Model::default()
        };
        self.streams.insert(id, model);
        id
    }

    fn run(&mut self) {
        while let Some(Ok(call)) = self.server.inbox().next(Instant::now()) {
            assert!(call.stream);
            self.streams.get_mut(&call.id).expect("started").runs = true;
        }
    }

    fn send(&mut self, id: u64, hold: bool) -> StreamReadiness {
        let readiness = self.server.readiness(id, Instant::now());
        let model = self.streams.get_mut(&id).expect("started");
        if !model.runs || model.server_ended {
            assert_eq!(readiness, StreamReadiness::Cancelled);
        } else if readiness == StreamReadiness::Ready {
            let header = Header {
                head_bytes: 8,
                ..Header::control(Kind::Item, id)
            };
            let text = model.sent.to_le_bytes();
            self.server
                .send_item(header, Head::Borrowed(&text), Vec::new(), Vec::new(), hold);
            model.sent += 1;
            let consumed = model.taken - model.taken_last;
            assert!(
                model.sent - consumed <= u64::from(model.credit),
                "ran ahead of its credit"
            );
        }
        readiness
    }

    fn take(&mut self, id: u64) -> bool {
        self.caller.give_credit(id);
        let next = self.caller.items().take(id);
        let model = self.streams.get_mut(&id).expect("started");
        model.taken_last = 0;
        match next {
            Next::Items(items) => {
                assert!(!model.caller_ended && !model.left);
                for item in &items {
                    assert_eq!(item.head.as_slice(), model.taken.to_le_bytes());
                    model.taken += 1;
                }
                model.taken_last = items.len() as u64;
                assert!(model.taken_last <= u64::from(model.credit / 2).max(1));
                return true;
            }
            Next::End(Some(_)) => {
                assert!(!model.caller_ended && !model.left && model.server_ended);
                assert_eq!(model.taken, model.sent, "the end overtook an item");
                model.caller_ended = true;
            }
            Next::End(None) => assert!(model.caller_ended || model.left),
            Next::Nothing => assert!(!model.caller_ended && !model.left),
        }
        false
    }

    fn leave(&mut self, id: u64) {
        self.caller.cancel_stream(id);
        self.streams.get_mut(&id).expect("started").left = true;
    }

    fn end(&mut self, id: u64, fails: bool) {
        let model = self.streams.get_mut(&id).expect("started");
        if model.runs && !model.server_ended {
            let kind = if fails { Kind::Failure } else { Kind::Reply };
            let reason = fails.then_some(Reason::Raised);
            let header = Header::control(kind, id);
            self.server.answer(header, reason, nothing(), Vec::new());
            model.server_ended = true;
        }
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Start { credit } if self.streams.len() < 4 => drop(self.start(credit)),
            Act::Start { .. } => {}
            Act::Run => self.run(),
            Act::ToServer => self.server_reads(),
            Act::ToCaller => self.caller_reads(),
            Act::Send { which, hold } => drop(self.id(which).map(|id| self.send(id, hold))),
            Act::Take { which } => drop(self.id(which).map(|id| self.take(id))),
            Act::Leave { which } => drop(self.id(which).map(|id| self.leave(id))),
            Act::End { which, fails } => drop(self.id(which).map(|id| self.end(id, fails))),
        }
    }

    /// Whoever may send again has been granted credit, which a driver is notified of.
    fn server_reads(&mut self) {
        let waited = self.that_are(StreamReadiness::Waiting);
        self.caller.flush();
        self.server.receive();
        let granted = self.server.take_granted();
        for id in self.that_are(StreamReadiness::Ready) {
            assert!(!waited.contains(&id) || granted.contains(&id));
        }
    }

    /// The caller holds the items that have arrived and were not taken, of 8 bytes each.
    fn check_bytes(&mut self) {
        let held = self.caller.items().bytes();
        assert_eq!((held % 8, self.caller.counters().inbox_bytes), (0, held));
    }

    fn that_are(&self, readiness: StreamReadiness) -> Vec<u64> {
        let ids = self.streams.keys().copied();
        ids.filter(|&id| self.server.readiness(id, Instant::now()) == readiness)
            .collect()
    }

    fn caller_reads(&mut self) {
        self.server.flush();
        self.caller.receive();
    }

    /// Move bytes until neither end has received any for a while: every other step would block.
    fn deliver(&mut self) {
        let mut quiet = 0;
        while quiet < 8 {
            let before = self.caller.link.offset() + self.server.link.offset();
            self.server_reads();
            self.caller_reads();
            let after = self.caller.link.offset() + self.server.link.offset();
            quiet = if before == after { quiet + 1 } else { 0 };
        }
    }

    /// Deliver everything, run what waits, consume and end all streams.
    fn settle(&mut self) {
        self.deliver();
        self.run();
        for id in self.streams.keys().copied().collect::<Vec<_>>() {
            self.end(id, false);
        }
        self.deliver();
        for id in self.streams.keys().copied().collect::<Vec<_>>() {
            while self.take(id) {}
        }
    }
}

proptest! {
    #[test]
    fn any_interleaving_keeps_order_credit_and_the_one_end(acts in acts(), step in 1..80_usize) {
        let _watch = counted::Watch;
        let mut world = World::new(step);
        for act in &acts {
            counted::step();
            world.act(act);
            world.check_bytes();
            assert_eq!((world.caller.link.fault(), world.server.link.fault()), (None, None), "both keep to the rules");
        }
        world.settle();
        for (id, model) in &world.streams {
            assert!(model.left || model.caller_ended, "stream {id} has no end");
            assert!(model.left || model.taken == model.sent, "items of stream {id} are lost");
        }
        assert_eq!((world.caller.items().in_flight(), world.caller.items().cancelled()), (0, 0), "ended streams are known");
        assert!(world.server.credits().is_empty(), "credit of ended streams is held");
        assert_eq!(world.caller.items().bytes(), 0, "bytes of taken items are held");
    }
}

/// A frame of any kind about one of few streams, with a credit or time that is small, large or none.
fn headers() -> impl Strategy<Value = Header> {
    let kinds = prop::sample::select(vec![
        Kind::Call,
        Kind::Reply,
        Kind::Failure,
        Kind::Cancel,
        Kind::Goodbye,
        Kind::Item,
        Kind::Credit,
    ]);
    let times = prop::sample::select(vec![0, 1, 2, STREAM_CREDIT_MAX, u32::MAX]);
    (kinds, 1..4_u64, times, any::<bool>(), 0..3_u32).prop_map(
        |(kind, id, time, stream, generation)| Header {
            time,
            generation,
            stream: stream && kind == Kind::Call,
            ..Header::control(kind, id)
        },
    )
}

proptest! {
    #[test]
    fn no_sequence_of_frames_confuses_an_end(
        to_caller in prop::collection::vec(headers(), 0..40),
        to_server in prop::collection::vec(headers(), 0..40),
    ) {
        let mut world = World::new(usize::MAX);
        let ids = [world.start(1), world.start(3)];
        for (ours, theirs) in to_caller.iter().zip(&to_server) {
            world.server.send(*ours, nothing(), Vec::new());
            world.caller.send(*theirs, nothing(), Vec::new());
            for _ in 0..4 {
                world.server_reads();
                world.caller_reads();
            }
            while let Some(Ok(call)) = world.server.inbox().next(Instant::now()) {
                if call.stream && world.server.readiness(call.id, Instant::now()) == StreamReadiness::Ready {
                    world.server.send_item(Header::control(Kind::Item, call.id), nothing(), Vec::new(), Vec::new(), true);
                }
            }
        }
        for id in ids {
            world.caller.cancel_stream(id);
            prop_assert!(matches!(world.caller.items().take(id), Next::End(_)));
        }
        prop_assert_eq!((world.caller.items().in_flight(), world.caller.items().bytes()), (0, 0));
    }
}

#[test]
fn the_first_credit_and_the_call_are_there_together() {
    let mut world = World::new(usize::MAX);
    let id = world.start(3);
    for _ in 0..4 {
        world.server_reads();
    }
    world.run();
    for _ in 0..3 {
        assert_eq!(world.send(id, true), StreamReadiness::Ready);
    }
    assert_eq!(world.send(id, true), StreamReadiness::Waiting);
}

#[test]
fn leaving_ends_a_stream_at_both_ends_whether_it_runs_or_not() {
    for runs in [false, true] {
        let mut world = World::new(usize::MAX);
        let id = world.start(3);
        for _ in 0..4 {
            world.server_reads();
        }
        if runs {
            world.run();
        }
        world.leave(id);
        for _ in 0..4 {
            world.server_reads();
        }
        assert_eq!(
            world.server.readiness(id, Instant::now()),
            StreamReadiness::Cancelled
        );
        assert_eq!(
            world.server.take_cancelled(),
            if runs { vec![id] } else { vec![] }
        );
        world.run();
        world.end(id, false);
        for _ in 0..4 {
            world.caller_reads();
        }
        assert_eq!(world.caller.items().cancelled(), 0, "its end was confirmed");
        assert!(world.server.credits().is_empty());
    }
}

#[test]
fn a_call_of_the_next_lease_ends_the_streams_of_the_one_before() {
    let mut world = World::new(usize::MAX);
    let id = world.start(3);
    for _ in 0..4 {
        world.server_reads();
    }
    world.run();
    let header = Header {
        generation: 1,
        ..Header::control(Kind::Call, 99)
    };
    world.caller.send(header, nothing(), Vec::new());
    for _ in 0..4 {
        world.server_reads();
    }
    assert_eq!(world.server.take_cancelled(), [id]);
    assert_eq!(world.send(id, false), StreamReadiness::Cancelled);
}

#[test]
fn bytes_hold_a_stream_that_has_credit() {
    let mut world = World::new(usize::MAX);
    let id = world.start(100);
    for _ in 0..4 {
        world.server_reads();
    }
    world.run();
    let mut sent = 0;
    let long = || -> Vec<Payload> { vec![Box::new(vec![0; STREAM_BYTES / 4])] };
    while world.server.readiness(id, Instant::now()) == StreamReadiness::Ready {
        let header = Header {
            segments: 1,
            ..Header::control(Kind::Item, id)
        };
        world
            .server
            .send_item(header, nothing(), long(), Vec::new(), false);
        sent += 1;
        for _ in 0..40 {
            world.caller_reads();
        }
    }
    assert_eq!(sent, 4);
    assert_eq!(world.caller.items().bytes(), STREAM_BYTES);
}

/// A header that a peer sends to an end of this role where one stream of credit 1 is open, and what it is notified.
#[allow(clippy::type_complexity)]
fn broken_rules() -> Vec<(Role, Vec<Header>, Violation)> {
    let item = |id| Header::control(Kind::Item, id);
    let call = |id| Header {
        stream: true,
        ..Header::control(Kind::Call, id)
    };
    let credit = |id, count| Header {
        time: count,
        ..Header::control(Kind::Credit, id)
    };
    let overflow = Violation::Credit {
        id: 1,
        limit: STREAM_CREDIT_MAX,
        value: STREAM_CREDIT_MAX,
    };
    let none = Violation::Credit {
        id: 1,
        limit: STREAM_CREDIT_MAX,
        value: 0,
    };
    let end = Header::control(Kind::Reply, 1);
    let again = Header::control(Kind::Call, 1);
    let stale = Header {
        generation: u32::MAX,
        ..again
    };
    vec![
        (Role::Server, vec![again], Violation::Repeated(1)),
        (Role::Server, vec![stale], Violation::Repeated(1)),
        (Role::Caller, vec![item(7)], Violation::NoStream(7)),
        (
            Role::Caller,
            vec![item(1), item(1)],
            Violation::Overdrawn(1),
        ),
        (Role::Caller, vec![end, item(1)], Violation::NoStream(1)),
        (Role::Caller, vec![credit(1, 1)], Violation::NotServing),
        (Role::Server, vec![item(1)], Violation::NoStream(1)),
        (Role::Server, vec![call(2)], Violation::Uncredited(2)),
        (
            Role::Server,
            vec![credit(3, 1), call(2)],
            Violation::Uncredited(2),
        ),
        (Role::Server, vec![credit(1, STREAM_CREDIT_MAX)], overflow),
        (Role::Server, vec![credit(1, 0)], none),
    ]
}

#[test]
fn a_peer_that_breaks_the_rules_is_told_which() {
    for (role, headers, violation) in broken_rules() {
        let mut world = World::new(usize::MAX);
        world.start(1);
        for _ in 0..4 {
            world.server_reads();
        }
        world.run();
        let breaks = match role {
            Role::Server => &mut world.caller,
            _ => &mut world.server,
        };
        for header in headers {
            breaks.send(header, nothing(), Vec::new());
        }
        for _ in 0..8 {
            world.server_reads();
            world.caller_reads();
        }
        let notified = match role {
            Role::Server => world.server.link.fault(),
            _ => world.caller.link.fault(),
        };
        let Some(Fault::Protocol { violation: got, .. }) = notified else {
            panic!("{violation}: {notified:?}");
        };
        assert_eq!(*got, violation);
    }
}

#[test]
fn a_peer_that_does_not_speak_streams_ends_those_that_were_asked_for() {
    let (mut caller, mut server) = ends(usize::MAX, usize::MAX, Errno::AGAIN);
    let id = caller.calls().next_id();
    let header = Header {
        stream: true,
        ..Header::control(Kind::Call, id)
    };
    caller.begin_stream(header, nothing(), Vec::new(), Taker::Queue, 1);
    let old = Preface {
        features: 0,
        ..Preface::new(Role::Server, &Limits::default(), 0)
    };
    let script = caller.link.stream().expect("connected");
    script.into.replace(old.encode().into());
    for _ in 0..2 {
        caller.receive(); // the first one would block
    }
    assert_eq!(caller.link.fault(), None);
    assert_eq!(caller.items().take_ready(), [id]);
    let Next::End(Some(Outcome::Broken { fault, sent })) = caller.items().take(id) else {
        panic!("it has not ended");
    };
    assert_eq!((fault, sent), (Fault::Broken(Cause::NoStreams), false));
    server.receive();
}

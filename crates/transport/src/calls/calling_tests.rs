//! Calls between two states, in any order of events: each runs at most once and in turn, and has one outcome, its own.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rustix::io::Errno;

use crate::calls::call::{Outcome, Taker};
use crate::calls::state::ConnectionState;
use crate::calls::state_tests::{Script, ends};
use crate::counted;
use crate::error::Fault;
use crate::limit::CALL_BYTES_MIN;
use crate::link::outbox::Head;
use crate::wire::frame::{Header, Kind, NO_DEADLINE, Reason};

/// Milliseconds that a call with a deadline has.
const TIME_MS: u32 = 60_000;

#[derive(Clone, Debug)]
enum Act {
    Start {
        queue: bool,
        one_way: bool,
        deadline: bool,
    },
    /// The lease ends; calls begin under the next one.
    Renew,
    /// The next call is taken, in time or long after every deadline.
    Run {
        late: bool,
    },
    Answer {
        which: usize,
        fails: bool,
    },
    Cancel {
        which: usize,
    },
    HandOver {
        which: usize,
        queue: bool,
    },
    Take {
        which: usize,
    },
    TakeFinished,
    ToServer,
    ToCaller,
    Close,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let which = 0..60_usize;
    let act = prop_oneof![
        8 => (any::<bool>(), prop::bool::weighted(0.1), any::<bool>())
            .prop_map(|(queue, one_way, deadline)| Act::Start { queue, one_way, deadline }),
        1 => Just(Act::Renew),
        6 => prop::bool::weighted(0.1).prop_map(|late| Act::Run { late }),
        6 => (which.clone(), any::<bool>()).prop_map(|(which, fails)| Act::Answer { which, fails }),
        3 => which.clone().prop_map(|which| Act::Cancel { which }),
        2 => (which.clone(), any::<bool>()).prop_map(|(which, queue)| Act::HandOver { which, queue }),
        3 => which.prop_map(|which| Act::Take { which }),
        2 => Just(Act::TakeFinished),
        8 => Just(Act::ToServer),
        8 => Just(Act::ToCaller),
    ];
    let many = prop::collection::vec(act, 1..120);
    (many, any::<bool>()).prop_map(|(mut acts, closes)| {
        if closes {
            acts.insert(acts.len() * 3 / 4, Act::Close);
        }
        acts
    })
}

#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own, not a mode
struct Model {
    one_way: bool,
    deadline: bool,
    generation: u32,
    /// Where its frame ends in the outgoing stream.
    end: u64,
    ran: bool,
    answered: Option<bool>,
    refused: Option<Reason>,
    cancelled: bool,
    outcomes: u32,
}

struct World {
    caller: ConnectionState<Script>,
    server: ConnectionState<Script>,
    calls: BTreeMap<u64, Model>,
    generation: u32,
    last_run: u64,
    closed: bool,
    /// Refused for their time, and one-way calls that were refused for whatever reason.
    expired: u64,
    dropped: u64,
}

impl World {
    fn new(step: usize) -> Self {
        let (caller, mut server) = ends(step, usize::MAX, Errno::AGAIN);
        assert!(server.attach_driver());
        Self {
            caller,
            server,
            calls: BTreeMap::new(),
            generation: 1,
            last_run: 0,
            closed: false,
            expired: 0,
            dropped: 0,
        }
    }

    fn start(&mut self, queue: bool, one_way: bool, deadline: bool) {
        let id = self.caller.calls().next_id();
        let text = id.to_le_bytes();
        let header = Header {
            one_way,
            head_bytes: 8,
            time: if deadline { TIME_MS } else { NO_DEADLINE },
            generation: self.generation,
            ..Header::control(Kind::Call, id)
        };
        let head = if queue {
            Head::Borrowed(&text)
        } else {
            Head::Lent(Box::new(text))
        };
        let end = self.caller.send(header, head, Vec::new());
        if !one_way {
            let taker = if queue { Taker::Queue } else { Taker::Thread };
            self.caller.calls().begin(id, taker, end);
        }
        let model = Model {
            one_way,
            deadline,
            generation: self.generation,
            end,
            ..Model::default()
        };
        self.calls.insert(id, model);
    }

    fn run(&mut self, late: bool) {
        let now = Instant::now();
        let now = if late {
            now + Duration::from_millis(2 * u64::from(TIME_MS))
        } else {
            now
        };
        let newest = self.server.inbox().generation();
        match self.server.inbox().next(now) {
            None => assert_eq!(
                self.server.inbox().queued(),
                0,
                "a queued call is forgotten"
            ),
            Some(Ok(call)) => {
                let model = self.calls.get_mut(&call.id).expect("started");
                assert!(
                    self.last_run < call.id,
                    "an older call overtook call {}",
                    call.id
                );
                assert_eq!(call.head.as_slice(), call.id.to_le_bytes());
                assert!(!model.ran, "call {} runs twice", call.id);
                assert!(!(late && model.deadline), "an expired call runs");
                assert_eq!(model.generation, newest, "a call of an ended lease runs");
                assert_eq!(call.one_way, model.one_way);
                self.last_run = call.id;
                model.ran = true;
            }
            Some(Err(refusal)) => {
                let Some(refusal) = refusal else {
                    self.dropped += 1;
                    return; // nobody waits for its answer
                };
                let model = self.calls.get_mut(&refusal.id).expect("started");
                assert!(!model.one_way && !model.ran, "refused what runs");
                match refusal.reason {
                    Reason::Expired => {
                        assert!(late && model.deadline, "it had time");
                        self.expired += 1;
                    }
                    Reason::Stale => assert!(model.generation < newest, "its lease goes on"),
                    other => panic!("refused for {other:?}"),
                }
                model.refused = Some(refusal.reason);
                self.server.refuse(refusal);
            }
        }
    }

    fn answer(&mut self, id: u64, fails: bool) {
        let model = self.calls.get_mut(&id).expect("started");
        if !model.ran || model.one_way || model.answered.is_some() {
            return;
        }
        model.answered = Some(fails);
        assert!(self.server.inbox().is_running(id), "it runs and is unknown");
        let kind = if fails { Kind::Failure } else { Kind::Reply };
        let header = Header {
            head_bytes: 8,
            ..Header::control(kind, id)
        };
        let text = id.to_le_bytes();
        let reason = fails.then_some(Reason::Raised);
        self.server
            .answer(header, reason, Head::Borrowed(&text), Vec::new());
        assert!(
            !self.server.inbox().is_running(id),
            "answered, and it runs on"
        );
    }

    fn cancel(&mut self, id: u64) {
        let waits = self.caller.calls().is_waiting(id);
        assert_eq!(self.caller.calls().cancel(id), waits);
        let model = self.calls.get_mut(&id).expect("started");
        if model.outcomes == 0 {
            model.cancelled = true;
        }
        if waits {
            let header = Header::control(Kind::Cancel, id);
            self.caller.send(header, Head::Borrowed(&[]), Vec::new());
        }
    }

    fn ended(&mut self, id: u64, outcome: &Outcome, broken_at: Option<u64>) {
        let model = self.calls.get_mut(&id).expect("started");
        model.outcomes += 1;
        assert!(!model.cancelled, "call {id} ends after its cancel");
        assert_eq!(model.outcomes, 1, "call {id} ends twice");
        match outcome {
            Outcome::Reply(frame) => {
                assert_eq!(model.answered, Some(false));
                assert_eq!(frame.head.as_slice(), id.to_le_bytes(), "another's answer");
            }
            Outcome::Failure(Reason::Raised, _) => assert_eq!(model.answered, Some(true)),
            Outcome::Failure(Reason::Closing, _) => assert!(self.closed && !model.ran),
            // One that came behind a newer lease was refused at once.
            Outcome::Failure(reason, _) => assert!(
                model.refused == Some(*reason) || (*reason == Reason::Stale && !model.ran),
                "call {id} failed for {reason:?}"
            ),
            Outcome::Broken { sent, .. } => {
                let at = broken_at.expect("the connection holds");
                assert_eq!(*sent, model.end <= at, "whether call {id} had left");
            }
        }
    }

    fn take(&mut self, id: u64, broken_at: Option<u64>) {
        if let Some(outcome) = self.caller.calls().take(id) {
            self.ended(id, &outcome, broken_at);
        }
    }

    fn take_finished(&mut self, broken_at: Option<u64>) {
        for (id, outcome) in self.caller.calls().take_finished() {
            self.ended(id, &outcome, broken_at);
        }
        assert!(self.caller.calls().take_finished().is_empty());
        assert_eq!(
            self.caller.calls().bytes(),
            0,
            "bytes of taken answers are held"
        );
    }

    fn hand_over(&mut self, id: u64, queue: bool) {
        let to = if queue { Taker::Queue } else { Taker::Thread };
        let before = self.caller.calls().in_flight();
        self.caller.calls().hand_over(id, to);
        assert_eq!(
            self.caller.calls().in_flight(),
            before,
            "lost on its way over"
        );
    }

    /// Goodbye: what waits is refused, what runs goes on.
    fn close(&mut self) {
        self.closed = true;
        for refusal in self.server.inbox().close() {
            let model = &self.calls[&refusal.id];
            assert!(!model.ran && !model.one_way);
            self.server.refuse(refusal);
        }
        assert_eq!(
            (self.server.inbox().queued(), self.server.inbox().bytes()),
            (0, 0)
        );
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Start {
                queue,
                one_way,
                deadline,
            } => self.start(queue, one_way, deadline),
            Act::Renew => self.generation += 1,
            Act::Run { late } => self.run(late),
            Act::Answer { which, fails } => self.about(which, |world, id| world.answer(id, fails)),
            Act::Cancel { which } => self.about(which, Self::cancel),
            Act::HandOver { which, queue } => {
                self.about(which, |world, id| world.hand_over(id, queue));
            }
            Act::Take { which } => self.about(which, |world, id| world.take(id, None)),
            Act::TakeFinished => self.take_finished(None),
            Act::ToServer => self.server_reads(),
            Act::ToCaller => self.caller_reads(),
            Act::Close => self.close(),
        }
    }

    /// What both ends say of their calls is what has happened to them.
    fn check_books(&mut self) {
        let known = |model: &&Model| !model.one_way && !model.cancelled && model.outcomes == 0;
        let known = self.calls.values().filter(known).count();
        let (asking, answering) = (self.caller.counters(), self.server.counters());
        assert_eq!(asking.in_flight, known, "calls in flight");
        assert_eq!(
            answering.inbox_bytes,
            answering.inbox_calls * (CALL_BYTES_MIN + 8),
            "bytes of calls that wait"
        );
        let inbox = self.server.inbox();
        assert_eq!(answering.inbox_calls, inbox.queued(), "calls that wait");
        for (&id, model) in &self.calls {
            let runs = model.ran && !model.one_way && model.answered.is_none();
            assert_eq!(inbox.is_running(id), runs, "call {id} runs or not");
            let awaited = inbox.awaits(id);
            assert_ne!(awaited, inbox.is_cancelled(id));
            assert!(runs || !awaited, "call {id} does not run, and is awaited");
            assert!(awaited || !runs || model.cancelled, "call {id} is awaited");
            let waits = self.caller.calls().is_waiting(id);
            assert!(!waits || (model.outcomes == 0 && !model.one_way));
        }
        let cancelled = self.calls.values().filter(|model| model.cancelled).count();
        assert!(asking.late_replies <= cancelled as u64, "late replies");
        assert!(
            answering.cancelled <= cancelled as u64,
            "cancelled before they ran"
        );
        assert!((self.expired..=self.expired + self.dropped).contains(&answering.expired));
        assert_eq!(inbox.is_closing(), self.closed);
    }

    /// Does something with a call that was started, if there is one.
    fn about(&mut self, which: usize, act: impl FnOnce(&mut Self, u64)) {
        let which = which % self.calls.len().max(1);
        if let Some(id) = self.calls.keys().copied().nth(which) {
            act(self, id);
        }
    }

    fn server_reads(&mut self) {
        self.caller.flush();
        self.server.receive();
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

    /// Delivers, runs and answers everything, and takes every outcome.
    fn settle(&mut self) {
        self.deliver();
        while self.server.inbox().queued() > 0 {
            self.run(false);
        }
        let ids: Vec<u64> = self.calls.keys().copied().collect();
        for id in &ids {
            self.answer(*id, false);
        }
        self.deliver();
        self.take_all(&ids, None);
        assert_eq!(
            self.server.inbox().bytes(),
            0,
            "bytes of taken calls are held"
        );
        let running = ids.iter().any(|id| self.server.inbox().is_running(*id));
        assert!(!running, "answered calls are known");
    }

    fn take_all(&mut self, ids: &[u64], broken_at: Option<u64>) {
        for id in ids {
            self.take(*id, broken_at);
        }
        self.take_finished(broken_at);
        assert_eq!(
            self.caller.calls().in_flight(),
            0,
            "calls are known after their end"
        );
        for (id, model) in &self.calls {
            let expected = u32::from(!model.one_way && !model.cancelled);
            assert_eq!(model.outcomes, expected, "call {id} has no end");
        }
    }

    /// The connection breaks: whoever waits is notified whether its frame had left.
    fn break_off(&mut self) {
        let at = self.caller.link.outbox().sent();
        self.caller.break_with(Fault::Closed);
        let ids: Vec<u64> = self.calls.keys().copied().collect();
        self.take_all(&ids, Some(at));
    }
}

proptest! {
    #[test]
    fn each_call_runs_at_most_once_in_turn_and_has_one_outcome(
        acts in acts(),
        step in 1..80_usize,
        breaks in any::<bool>(),
    ) {
        let _watch = counted::Watch;
        let mut world = World::new(step);
        for act in &acts {
            counted::step();
            world.act(act);
            world.check_books();
            assert_eq!((world.caller.link.fault(), world.server.link.fault()), (None, None));
        }
        if breaks {
            world.break_off();
        } else {
            world.settle();
        }
    }
}

//! Programs that share services, against the lender's facts and the pool's decisions, without sockets: messages wait in
//! queues, and a turn of the lender takes one of each program that it is given.
//!
//! What [`Loans`](super::loans) and [`Borrower`](super::borrower) do between them is written here once more, as small as
//! it can be; a service starts and dies at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::BorrowerId;
use super::ledger::{Admission, Asked, GivenBack, Ledger, Question};
use super::shared_leases::{Joined, SharedLeases};
use crate::machine::{Action, Grant, Key, Machine, Ticket};
use crate::wire::Handle;
use crate::wire::shared::{QuestionId, Request};

const SHARED: Key = 0;
const KEYS: Key = 2;
/// Leases of one service of the shared key.
const SHARE: u32 = 3;
const MAX_SIZE: u32 = 3;
const MAX_LEASES: usize = 2;
const PROGRAMS: usize = 2;
const GROUP: u32 = 0;

/// An answer on its way.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Lent(QuestionId, Key, Handle),
    Joined(QuestionId, Handle),
    Refused(QuestionId),
}

#[derive(Clone, Debug)]
enum Step {
    Ask(usize, Key),
    /// A program reads one answer.
    Read(usize),
    /// It ends a lease: the service is to be discarded, or to come back settled or not.
    End(usize, usize, bool, bool),
    /// It says how a service whose last lease has ended comes back.
    GiveBack(usize),
    Leave(usize, usize),
    /// The lender serves a message of each of these programs, and learns that one has exited, maybe.
    Turn(Vec<usize>, Option<usize>),
    /// What settles has answered.
    Settle,
    /// All messages arrive.
    Rest,
}

#[derive(Default)]
struct Program {
    id: BorrowerId,
    shared: SharedLeases,
    sent: VecDeque<Request>,
    answers: VecDeque<Answer>,
    expected: BTreeMap<QuestionId, Key>,
    /// Leases of each service.
    leases: BTreeMap<(u32, u64), (Key, u32)>,
    /// Services whose last lease has ended, and how each comes back.
    ending: VecDeque<(Handle, Request)>,
    tickets: QuestionId,
}

const fn handle_of((slot, generation): (u32, u64)) -> Handle {
    Handle { slot, generation }
}

impl Program {
    fn is_busy(&self) -> bool {
        !(self.sent.is_empty() && self.answers.is_empty() && self.ending.is_empty())
    }

    fn ask(&mut self, key: Key) {
        self.tickets += 1;
        self.expected.insert(self.tickets, key);
        self.send_question(self.tickets, key);
    }

    fn send_question(&mut self, ticket: QuestionId, key: Key) {
        let group = GROUP;
        self.sent.push_back(Request::Ask { ticket, key, group });
    }

    fn read(&mut self) {
        match self.answers.pop_front() {
            Some(Answer::Lent(ticket, key, handle)) if self.expected.remove(&ticket).is_some() => {
                let Handle { slot, generation } = handle;
                let before = self.leases.insert((slot, generation), (key, 1));
                assert!(before.is_none(), "lent twice");
                if key == SHARED && self.shared.open(handle) {
                    self.sent.push_back(Request::Open { handle });
                }
            }
            Some(Answer::Joined(ticket, handle)) => self.join(ticket, handle),
            Some(Answer::Refused(ticket)) => drop(self.expected.remove(&ticket)),
            _ => {}
        }
    }

    fn join(&mut self, ticket: QuestionId, handle: Handle) {
        let (key, group, closed) = (SHARED, GROUP, false);
        if !self.expected.contains_key(&ticket) {
            if self.shared.is_held(handle) {
                let notice = Request::ReleaseShared { handle, closed };
                self.sent.push_back(notice);
            }
            return;
        }
        match self
            .shared
            .join(handle, Request::Ask { ticket, key, group })
        {
            Joined::Begun => {
                self.expected.remove(&ticket);
                let leases = self.leases.get_mut(&(handle.slot, handle.generation));
                let (_, count) = leases.expect("a lease that it joins");
                *count += 1;
                assert!(*count <= SHARE, "{count} leases of one service");
            }
            Joined::Postponed => {}
            Joined::Void(question) => self.sent.push_back(question),
        }
    }

    fn end(&mut self, index: usize, discard: bool, settled: bool) {
        let held: Vec<(u32, u64)> = self.leases.keys().copied().collect();
        let Some(&lease) = held.get(index % held.len().max(1)) else {
            return;
        };
        let handle = handle_of(lease);
        if let Some((_, count)) = self.leases.get_mut(&lease) {
            *count -= 1;
        }
        if let Some(others) = self.shared.release(handle) {
            let closed = discard;
            let notice = Request::ReleaseShared { handle, closed };
            self.sent.push_back(notice);
            if others {
                return;
            }
        }
        assert_eq!(self.leases.remove(&lease).map(|(_, count)| count), Some(0));
        let notice = if discard {
            let cause = crate::death::Cause::Discarded;
            Request::Discard { handle, cause }
        } else {
            let unanswered = u64::from(!settled);
            Request::Release { handle, unanswered }
        };
        self.ending.push_back((handle, notice));
    }

    fn give_back(&mut self) {
        let Some((handle, notice)) = self.ending.pop_front() else {
            return;
        };
        self.sent.push_back(notice);
        for question in self.shared.give_back(handle) {
            if let Request::Ask { ticket, .. } = question
                && self.expected.contains_key(&ticket)
            {
                self.sent.push_back(question);
            }
        }
    }

    fn leave(&mut self, index: usize) {
        let asked: Vec<QuestionId> = self.expected.keys().copied().collect();
        if let Some(&ticket) = asked.get(index % asked.len().max(1)) {
            self.expected.remove(&ticket);
            self.sent.push_back(Request::Leave { ticket });
        }
    }
}

struct World {
    machine: Machine,
    ledger: Ledger,
    programs: Vec<Program>,
    generations: BTreeMap<u32, u64>,
    closed: BTreeSet<(u32, u64)>,
    actions: Vec<Action>,
    woken: Vec<Ticket>,
    next_ticket: Ticket,
    next_program: BorrowerId,
}

impl World {
    fn new() -> Self {
        let mut machine = Machine::new(MAX_SIZE, MAX_SIZE);
        machine.share(SHARED, SHARE);
        let mut world = Self {
            machine,
            ledger: Ledger::new(MAX_LEASES, 8),
            programs: Vec::new(),
            generations: BTreeMap::new(),
            closed: BTreeSet::new(),
            actions: Vec::new(),
            woken: Vec::new(),
            next_ticket: 0,
            next_program: 0,
        };
        for _ in 0..PROGRAMS {
            let program = world.newcomer();
            world.programs.push(program);
        }
        world
    }

    fn newcomer(&mut self) -> Program {
        self.next_program += 1;
        self.ledger.admit(self.next_program, 1);
        Program {
            id: self.next_program,
            ..Program::default()
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Ask(program, key) => self.programs[*program].ask(*key),
            Step::Read(program) => self.programs[*program].read(),
            Step::End(program, index, discard, settled) => {
                self.programs[*program].end(*index, *discard, *settled);
            }
            Step::GiveBack(program) => self.programs[*program].give_back(),
            Step::Leave(program, index) => self.programs[*program].leave(*index),
            Step::Turn(programs, exits) => self.turn(programs, *exits),
            Step::Settle => {
                for slot in self.machine.unlent().collect::<Vec<_>>() {
                    self.decide(|machine, actions| machine.readable(slot, actions));
                }
                self.catch_up();
            }
            Step::Rest => self.rest(),
        }
        self.check();
    }

    fn turn(&mut self, programs: &[usize], exits: Option<usize>) {
        for &program in programs {
            if let Some(request) = self.programs[program].sent.pop_front() {
                self.serve(self.programs[program].id, &request);
            }
        }
        if let Some(program) = exits {
            self.exit(program);
        }
        self.catch_up();
    }

    fn rest(&mut self) {
        let all: Vec<usize> = (0..PROGRAMS).collect();
        while self.programs.iter().any(Program::is_busy) {
            for program in &mut self.programs {
                program.read();
                program.give_back();
            }
            self.turn(&all, None);
        }
        self.check_at_rest();
    }

    fn decide<D>(&mut self, decision: impl FnOnce(&mut Machine, &mut Vec<Action>) -> D) -> D {
        let decided = decision(&mut self.machine, &mut self.actions);
        for action in std::mem::take(&mut self.actions) {
            match action {
                Action::Wake(ticket, _) => self.woken.push(ticket),
                Action::Evict(slot) => self.bury(slot),
            }
        }
        decided
    }

    fn bury(&mut self, slot: u32) {
        self.ledger.forget(slot);
        self.machine.free_slot(slot);
    }

    fn lose(&mut self, slot: u32) {
        self.decide(|machine, actions| machine.lose(slot, actions));
        self.bury(slot);
    }

    fn answer(&mut self, program: BorrowerId, answer: Answer) {
        let mut programs = self.programs.iter_mut();
        let program = programs.find(|one| one.id == program);
        program.expect("it is here").answers.push_back(answer);
    }

    fn serve(&mut self, program: BorrowerId, request: &Request) {
        match *request {
            Request::Ask { ticket, key, group } => {
                assert!(!self.ledger.is_open(program, ticket), "asked twice");
                self.ask(Question::new(program, ticket, key, group));
            }
            Request::Open { handle } if self.ledger.holds(program, handle) => {
                self.decide(|machine, actions| machine.open(handle.slot, actions));
            }
            Request::ReleaseShared { handle, closed } if self.ledger.holds(program, handle) => {
                if closed {
                    self.closed.insert((handle.slot, handle.generation));
                }
                self.decide(|machine, actions| {
                    machine.release_shared(handle.slot, closed, actions)
                });
            }
            Request::Release { handle, unanswered } => self.release(program, handle, unanswered),
            Request::Discard { handle, .. } => self.discard(program, handle),
            Request::Leave { ticket } => {
                if let Some(asked) = self.ledger.leave(program, ticket) {
                    self.decide(|machine, actions| machine.leave(asked, actions));
                }
                if let Some(handle) = self.ledger.take_back(program, ticket) {
                    self.discard(program, handle);
                }
                self.unpark(program);
            }
            _ => {}
        }
    }

    fn release(&mut self, program: BorrowerId, handle: Handle, unanswered: u64) {
        let Handle { slot, .. } = handle;
        if self.ledger.give_back(program, handle, unanswered, 0) == GivenBack::Stale {
            return;
        }
        if self.machine.is_lendable(slot) {
            self.decide(|machine, actions| machine.release(slot, unanswered == 0, actions));
        } else {
            self.lose(slot);
        }
        self.unpark(program);
    }

    fn discard(&mut self, program: BorrowerId, handle: Handle) {
        if self.ledger.give_up(program, handle, 0) {
            self.lose(handle.slot);
            self.unpark(program);
        }
    }

    fn exit(&mut self, place: usize) {
        let newcomer = self.newcomer();
        let gone = std::mem::replace(&mut self.programs[place], newcomer);
        let (asked, held) = self.ledger.remove(gone.id);
        for ticket in asked {
            self.decide(|machine, actions| machine.leave(ticket, actions));
        }
        for handle in held {
            self.lose(handle.slot);
        }
    }

    fn ask(&mut self, question: Question) {
        let Question {
            program,
            ticket,
            key,
            ..
        } = question;
        if key == SHARED
            && !self.ledger.has_parked(program)
            && let Some(slot) = self.machine.join(key, question.caller_group())
        {
            self.join(question, slot);
            return;
        }
        match self.ledger.admit_question(question) {
            Admission::Ask => self.ask_pool(question),
            Admission::Parked => {}
            Admission::Refused => self.answer(program, Answer::Refused(ticket)),
        }
    }

    fn ask_pool(&mut self, question: Question) {
        let (key, group) = (question.key, question.caller_group());
        if let Some(slot) = self.machine.take(key, group, |_| true) {
            self.lend(question, slot);
            return;
        }
        self.next_ticket += 1;
        let ticket = self.next_ticket;
        let granted = self.decide(|machine, actions| machine.ask(ticket, key, group, actions));
        let hurry_ms = None;
        match granted {
            Some(grant) => self.grant(question, grant),
            None if self.ledger.wait(ticket, Asked { question, hurry_ms }) => {}
            None => {
                self.decide(|machine, actions| machine.leave(ticket, actions));
                self.answer(question.program, Answer::Refused(question.ticket));
            }
        }
    }

    fn grant(&mut self, question: Question, grant: Grant) {
        match grant {
            Grant::Join { slot } => self.join(question, slot),
            Grant::Take { slot, .. } => self.lend(question, slot),
            Grant::Start { slot } => {
                self.ledger.begin(slot, question.key, 0);
                self.lend(question, slot);
            }
        }
    }

    fn join(&mut self, question: Question, slot: u32) {
        let generation = self.generations[&slot];
        let handle = Handle { slot, generation };
        assert!(
            self.ledger.holds(question.program, handle),
            "joins what its program does not hold"
        );
        self.answer(question.program, Answer::Joined(question.ticket, handle));
    }

    fn lend(&mut self, question: Question, slot: u32) {
        let Question {
            program,
            ticket,
            key,
            ..
        } = question;
        let generation = self.generations.entry(slot).or_default();
        *generation += 1;
        let generation = *generation;
        let handle = Handle { slot, generation };
        self.ledger.hold(program, handle, ticket, false, 0);
        self.answer(program, Answer::Lent(ticket, key, handle));
    }

    fn unpark(&mut self, program: BorrowerId) {
        while let Some(question) = self.ledger.next_parked(program) {
            self.ask_pool(question);
        }
    }

    fn catch_up(&mut self) {
        loop {
            let machine = &mut self.machine;
            let joined = self.ledger.unpark_joined(|question| {
                let shared = question.key == SHARED;
                shared
                    .then(|| machine.join(question.key, question.caller_group()))
                    .flatten()
            });
            for (question, slot) in joined {
                self.join(question, slot);
            }
            if self.woken.is_empty() {
                return;
            }
            for ticket in std::mem::take(&mut self.woken) {
                self.look(ticket);
            }
        }
    }

    fn look(&mut self, ticket: Ticket) {
        if let Some(Asked { question, .. }) = self.ledger.question(ticket)
            && let Some(grant) = self.machine.collect(ticket)
        {
            self.ledger.answered(ticket);
            self.grant(question, grant);
            self.unpark(question.program);
        }
    }

    /// What holds at any moment between two turns.
    fn check(&self) {
        let occupied: Vec<u32> = self.machine.occupied().collect();
        assert_eq!(self.machine.live() as usize, occupied.len(), "live");
        assert!(self.machine.live() <= MAX_SIZE);
        let mut held = 0;
        for slot in occupied {
            let generation = self.generations.get(&slot).copied().unwrap_or(0);
            let handle = Handle { slot, generation };
            let holds = |program: &&Program| self.ledger.holds(program.id, handle);
            let holders = self.programs.iter().filter(holds).count();
            assert!(holders <= 1, "slot {slot} is of {holders} programs");
            held += holders;
        }
        let unlent = self.machine.idle() + self.machine.settling();
        assert_eq!(
            held + unlent,
            self.machine.live() as usize,
            "lent to nobody"
        );
    }

    /// What holds once all messages have arrived.
    fn check_at_rest(&mut self) {
        for program in &self.programs {
            let held = program.leases.keys().copied().map(handle_of);
            let known = held.filter(|handle| self.ledger.holds(program.id, *handle));
            assert_eq!(known.count(), program.leases.len(), "ended behind its back");
            assert_eq!(self.ledger.held_by(program.id), program.leases.len());
            let mut asked = program.expected.keys();
            assert!(
                asked.all(|&ticket| self.ledger.is_open(program.id, ticket)),
                "a question is lost"
            );
        }
        let mut parked = Vec::new();
        self.ledger.unpark_joined(|question| {
            parked.push(question);
            None::<()>
        });
        for question in parked {
            assert!(!self.ledger.may_hold_more(question.program), "parked");
            let waits = self.machine.waiters() > 0; // it would be overtaken
            assert!(waits || !self.could_share(question), "beside its service");
        }
        self.check_users();
    }

    /// Whether a program has a service that a question of it could share.
    fn could_share(&self, question: Question) -> bool {
        let program = self.programs.iter().find(|one| one.id == question.program);
        let leases = &program.expect("it is here").leases;
        let has_room = |(lease, &(key, count)): (&(u32, u64), &(Key, u32))| {
            key == SHARED && count < SHARE && !self.closed.contains(lease)
        };
        question.key == SHARED && leases.iter().any(has_room)
    }

    /// The machine knows as many leases of each service as its program has: so many more can begin, and no more.
    fn check_users(&mut self) {
        if self.machine.waiters() > 0 {
            return; // nobody joins past them
        }
        for place in 0..PROGRAMS {
            let program = &self.programs[place];
            let open = program
                .leases
                .iter()
                .filter(|&(lease, &(key, _))| key == SHARED && !self.closed.contains(lease));
            let room: u32 = open.map(|(_, &(_, count))| SHARE - count).sum();
            let group = Question::new(program.id, 0, SHARED, GROUP).caller_group();
            let mut joined = Vec::new();
            while let Some(slot) = self.machine.join(SHARED, group) {
                joined.push(slot);
            }
            assert_eq!(joined.len(), room as usize, "room to share");
            for slot in joined {
                let ended =
                    self.decide(|machine, actions| machine.release_shared(slot, false, actions));
                assert!(ended, "one of several");
            }
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let program = || 0..PROGRAMS;
    let index = any::<usize>;
    prop_oneof![
        5 => (program(), 0..KEYS).prop_map(|(program, key)| Step::Ask(program, key)),
        4 => program().prop_map(|program| Step::Ask(program, SHARED)),
        6 => program().prop_map(Step::Read),
        5 => (program(), index(), prop::bool::weighted(0.2), any::<bool>())
            .prop_map(|(program, index, discard, settled)| Step::End(program, index, discard, settled)),
        4 => program().prop_map(Step::GiveBack),
        1 => (program(), index()).prop_map(|(program, index)| Step::Leave(program, index)),
        9 => (
            prop::collection::vec(program(), 1..5),
            prop::option::weighted(0.05, program()),
        )
            .prop_map(|(programs, exits)| Step::Turn(programs, exits)),
        1 => Just(Step::Settle),
        3 => Just(Step::Rest),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn programs_that_share_services_lose_none_and_wait_for_none_that_they_could_share(
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
        }
        world.step(&Step::Settle);
        world.step(&Step::Rest);
    }
}

//! Random batches against a random kernel, and the invariants of the module.
#[path = "../../../transport/tests/counted/mod.rs"]
mod counted;

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use proptest::prelude::*;

use super::{Done, Errno, Flight, Issue, Keeper};
use crate::batch::{Batch, Files, Operations};
use crate::file::{BlockFile, Mode};
use crate::operation::{Kind, Operation};
use crate::sys::lent;

const SLOTS: u32 = 8;
const TURN: u32 = 3;
const BYTES: u32 = 64;
/// Operations of a batch at most.
const COUNT: usize = 12;

/// The memory of a batch, and a count that says whether its keeper is alive.
struct Owner {
    operations: Vec<Cell<Operation>>,
    results: Vec<i64>,
    bytes: Vec<u8>,
    kept: Arc<AtomicU32>,
}

struct Held(Arc<AtomicU32>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn file() -> BlockFile {
    BlockFile::open("/dev/null", Mode::ReadWrite, false).expect("every machine has it")
}

impl Owner {
    fn new(kinds: &[Kind]) -> Self {
        Self::numbered(0, kinds)
    }

    /// Operations whose offsets say which they are.
    fn numbered(number: usize, kinds: &[Kind]) -> Self {
        let operation = |(index, &kind): (usize, &Kind)| Operation {
            offset: (number * COUNT + index) as u64 * u64::from(BYTES),
            buffer_offset: index as u64 * u64::from(BYTES),
            length: BYTES,
            kind: kind as u8,
            ..Operation::default()
        };
        let operations = kinds.iter().enumerate().map(operation);
        Self {
            operations: operations.map(Cell::new).collect(),
            results: vec![i64::MIN; kinds.len()],
            bytes: vec![0; BYTES as usize * kinds.len()],
            kept: Arc::new(AtomicU32::new(0)),
        }
    }

    fn batch(&mut self, file: &BlockFile, exact: bool) -> Batch {
        let (listed, memory, results) =
            lent::changing(&self.operations, &mut self.bytes, &mut self.results);
        Batch::new(
            Operations::Listed(listed),
            Files::One(file.clone()),
            memory,
            results,
            exact,
        )
        .expect("within bounds")
    }

    fn keeper(&self) -> Keeper {
        self.kept.fetch_add(1, Ordering::Relaxed);
        Box::new(Held(Arc::clone(&self.kept)))
    }

    /// Somebody writes nonsense over an operation.
    fn spoil(&self, index: usize) {
        let operation = &self.operations[index];
        operation.set(Operation {
            flags: 1,
            ..operation.get()
        });
    }
}

/// What the random kernel and its clients do next.
#[derive(Clone, Debug)]
enum Act {
    Admit {
        kinds: Vec<u8>,
        exact: bool,
        kept: bool,
        buffer: Option<u16>,
    },
    Issue(u8),
    /// Complete the operation in flight at this buffer with all, some, or no bytes, or an error.
    Complete(usize, Ending),
    /// The kernel does not take the newest so many.
    Retract(u8),
    FailRetracted,
    Detach(usize),
    Spoil(usize),
    FailAll,
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    Whole,
    Short,
    Nothing,
    TooMuch,
    Again,
    Interrupted,
    Failed,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let ending = prop_oneof![
        8 => Just(Ending::Whole),
        4 => Just(Ending::Short),
        2 => Just(Ending::Nothing),
        1 => Just(Ending::TooMuch),
        1 => Just(Ending::Again),
        1 => Just(Ending::Interrupted),
        2 => Just(Ending::Failed),
    ];
    let kinds = prop::collection::vec(0_u8..4, 0..=COUNT);
    let act = prop_oneof![
        20 => (kinds, any::<bool>(), any::<bool>(), prop::option::of(0_u16..3))
            .prop_map(|(kinds, exact, kept, buffer)| Act::Admit { kinds, exact, kept, buffer }),
        40 => (1_u8..12).prop_map(Act::Issue),
        60 => (any::<prop::sample::Index>(), ending)
            .prop_map(|(at, ending)| Act::Complete(at.index(64), ending)),
        10 => (1_u8..6).prop_map(Act::Retract),
        10 => Just(Act::FailRetracted),
        10 => (0_usize..16).prop_map(Act::Detach),
        5 => (0_usize..64).prop_map(Act::Spoil),
        1 => Just(Act::FailAll),
    ];
    prop::collection::vec(act, 1..80)
}

/// Where an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Left,
    Flying,
    Again,
    Over(i64),
}

fn errno(errno: Errno) -> i64 {
    i64::from(-errno.raw_os_error())
}

/// An operation, as the documentation says what becomes of it.
#[derive(Clone, Debug)]
struct Expected {
    kind: Kind,
    state: State,
    slot: u32,
    moved: u32,
    spoiled: bool,
}

impl Expected {
    fn has_slot(&self) -> bool {
        matches!(self.state, State::Flying | State::Again)
    }

    /// Whether a sync behind it is to be called off.
    fn fails_sync(&self) -> bool {
        let State::Over(result) = self.state else {
            return false;
        };
        self.spoiled || (self.kind == Kind::Write && result != i64::from(BYTES))
    }

    fn complete(&mut self, result: i32, exact: bool, detached: bool) {
        let tried_again = [Errno::AGAIN, Errno::INTR].map(errno);
        self.state = if tried_again.contains(&result.into()) && !detached {
            State::Again
        } else if result < 0 || !self.kind.moves_bytes() {
            State::Over(result.into())
        } else {
            self.moved = (self.moved + result.unsigned_abs()).min(BYTES);
            match (self.kind, result) {
                _ if !exact || detached || self.moved == BYTES => State::Over(self.moved.into()),
                (Kind::Read, 0) => State::Over(errno(Errno::NODATA)),
                (_, 0) => State::Over(errno(Errno::NOSPC)),
                _ => State::Again,
            }
        };
    }
}

/// A batch, its memory, and what has to become of it.
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own, not a mode
struct Case {
    owner: Owner,
    operations: Vec<Expected>,
    exact: bool,
    kept: bool,
    buffer: Option<u16>,
    detached: bool,
    leaked: bool,
    done: bool,
}

impl Case {
    fn in_slots(&self) -> usize {
        self.operations.iter().filter(|one| one.has_slot()).count()
    }

    fn in_state(&self, state: State) -> usize {
        let there = self.operations.iter().filter(|one| one.state == state);
        there.count()
    }

    /// End what is left, or waits for another try, with a result.
    fn end(&mut self, states: &[State], result: i64) {
        for one in &mut self.operations {
            if states.contains(&one.state) {
                one.state = State::Over(result);
            }
        }
    }

    /// End what is over without the kernel, and say which operation is the next one that is not.
    fn front(&mut self) -> Option<usize> {
        self.front_of(|_| true)
    }

    /// End what is over without the kernel, as far as its result is there.
    fn catch_up(&mut self) {
        self.front_of(|result| result != i64::MIN);
    }

    fn front_of(&mut self, is_over: impl Fn(i64) -> bool) -> Option<usize> {
        loop {
            let left = |one: &Expected| one.state == State::Left;
            let index = self.operations.iter().position(left)?;
            if !is_over(self.owner.results[index]) {
                return Some(index);
            }
            let failed = self.operations[..index].iter().any(Expected::fails_sync);
            let one = &self.operations[index];
            let result = if one.spoiled {
                Errno::INVAL
            } else if !one.kind.moves_bytes() && failed && self.in_slots() == 0 {
                Errno::CANCELED
            } else {
                return Some(index);
            };
            self.operations[index].state = State::Over(errno(result));
        }
    }
}

#[derive(Default)]
struct World {
    cases: Vec<Case>,
    /// Batch and index of what the kernel has, the oldest first.
    flying: Vec<(usize, usize)>,
}

impl World {
    fn result_of(one: &Expected, ending: Ending) -> i32 {
        let length = (BYTES - one.moved).cast_signed();
        match (ending, one.kind) {
            (Ending::Again, _) => -Errno::AGAIN.raw_os_error(),
            (Ending::Interrupted, _) => -Errno::INTR.raw_os_error(),
            (Ending::Failed, _) => -Errno::IO.raw_os_error(),
            (_, Kind::Fsync | Kind::Fdatasync) | (Ending::Nothing, _) => 0,
            (Ending::Whole, _) => length,
            (Ending::Short, _) => length / 2,
            (Ending::TooMuch, _) => length + 7,
        }
    }

    fn act(&mut self, flight: &mut Flight, file: &BlockFile, act: Act) {
        counted::step();
        match act {
            Act::Admit {
                kinds,
                exact,
                kept,
                buffer,
            } => self.admit(flight, file, &kinds, (exact, kept, buffer)),
            Act::Issue(count) => self.issue(flight, count),
            Act::Complete(at, ending) if !self.flying.is_empty() => {
                self.complete(flight, at % self.flying.len(), ending);
            }
            Act::Retract(count) => self.retract(flight, count),
            Act::FailRetracted => self.fail_retracted(flight),
            Act::Detach(number) if number < self.cases.len() => self.detach(flight, number),
            Act::Spoil(at) if !self.cases.is_empty() => self.spoil(at),
            Act::FailAll => self.fail_all(flight),
            Act::Complete(..) | Act::Detach(_) | Act::Spoil(_) => {}
        }
        self.look(flight);
    }

    fn admit(
        &mut self,
        flight: &mut Flight,
        file: &BlockFile,
        kinds: &[u8],
        (exact, kept, buffer): (bool, bool, Option<u16>),
    ) {
        let kinds: Vec<_> = kinds.iter().filter_map(|&kind| Kind::of(kind)).collect();
        let mut owner = Owner::numbered(self.cases.len(), &kinds);
        let batch = owner.batch(file, exact);
        let keeper = kept.then(|| owner.keeper());
        flight.admit(batch, buffer, self.cases.len() as u64, keeper);
        let operations = kinds.into_iter().map(|kind| Expected {
            kind,
            state: State::Left,
            slot: 0,
            moved: 0,
            spoiled: false,
        });
        self.cases.push(Case {
            operations: operations.collect(),
            owner,
            exact,
            kept,
            buffer,
            detached: false,
            leaked: false,
            done: false,
        });
    }

    fn issue(&mut self, flight: &mut Flight, count: u8) {
        for _ in 0..count {
            let could = flight.can_issue();
            if let Some(issue) = flight.next() {
                assert!(could, "nothing could be issued, and something was");
                self.issued(&issue);
            } else {
                self.check_nothing_left();
                assert!(
                    !flight.can_issue(),
                    "looked at, and it still says that it can"
                );
                return;
            }
        }
    }

    /// Invariants 1, 3 and 4: of what is handed out.
    fn issued(&mut self, issue: &Issue<'_>) {
        let at = usize::try_from(issue.offset / u64::from(BYTES)).expect("small");
        let (number, index) = (at / COUNT, at % COUNT);
        let taken = |one: &Expected| one.has_slot() && one.slot == issue.slot;
        let holders = self.cases.iter().flat_map(|case| &case.operations);
        let holders = holders.filter(|one| taken(one)).count();
        let case = &mut self.cases[number];
        let again = case.operations[index].state == State::Again;
        assert_eq!(holders, usize::from(again), "two in one slot");
        if again {
            assert!(taken(&case.operations[index]), "another slot");
        } else {
            assert!(!case.detached, "issued for nobody");
            let failed = case.operations[..index].iter().any(Expected::fails_sync);
            let is_sync = !issue.kind.moves_bytes();
            assert!(!(is_sync && failed), "synced all the same");
            assert_eq!(case.front(), Some(index), "issued twice, or too early");
            let waits = !issue.kind.moves_bytes() && case.in_slots() > 0;
            assert!(!waits, "a sync overtook what was before it");
        }
        let bytes = case.owner.bytes.as_ptr() as u64;
        let one = &mut case.operations[index];
        let moves = issue.kind.moves_bytes();
        let begin = index as u64 * u64::from(BYTES) * u64::from(moves);
        assert_eq!(
            (
                issue.kind,
                issue.address - bytes,
                issue.length,
                issue.buffer
            ),
            (
                one.kind,
                begin + u64::from(one.moved),
                BYTES - one.moved,
                case.buffer
            )
        );
        assert_eq!(
            issue.offset % u64::from(BYTES),
            one.moved.into(),
            "elsewhere"
        );
        (one.state, one.slot) = (State::Flying, issue.slot);
        self.flying.push((number, index));
    }

    /// All that can go has gone: slots are taken, or what is next waits as a sync.
    fn check_nothing_left(&mut self) {
        let in_slots: usize = self.cases.iter().map(Case::in_slots).sum();
        let again: usize = self
            .cases
            .iter()
            .map(|case| case.in_state(State::Again))
            .sum();
        assert_eq!(again, 0, "a batch waits for ever: a try is forgotten");
        if in_slots == SLOTS as usize {
            return;
        }
        for case in &mut self.cases {
            let Some(index) = case.front() else { continue };
            let waits = !case.operations[index].kind.moves_bytes() && case.in_slots() > 0;
            assert!(waits, "a batch waits for ever: there was room");
        }
    }

    fn complete(&mut self, flight: &mut Flight, at: usize, ending: Ending) {
        let (number, index) = self.flying.swap_remove(at);
        let case = &mut self.cases[number];
        let one = &mut case.operations[index];
        let result = Self::result_of(one, ending);
        one.complete(result, case.exact, case.detached);
        flight.complete(one.slot, result);
    }

    fn retract(&mut self, flight: &mut Flight, count: u8) {
        let mut detached = false;
        for _ in 0..count {
            let Some((number, index)) = self.flying.pop() else {
                break;
            };
            let case = &mut self.cases[number];
            let one = &mut case.operations[index];
            flight.retract(one.slot);
            one.state = State::Again;
            detached |= case.detached;
        }
        if detached {
            // Who retracts later than at once fails what he retracts.
            self.fail_retracted(flight);
        }
    }

    fn fail_retracted(&mut self, flight: &mut Flight) {
        flight.fail_retracted(Errno::NOMEM);
        for case in &mut self.cases {
            case.end(&[State::Again], errno(Errno::NOMEM));
        }
    }

    fn detach(&mut self, flight: &mut Flight, number: usize) {
        let case = &mut self.cases[number];
        case.catch_up();
        let keeper = (!case.kept && !case.done && !case.detached).then(|| case.owner.keeper());
        let left = flight.detach(number as u64, keeper);
        let Some(left) = left else {
            assert!(case.done || case.detached, "it was there");
            return;
        };
        assert!(!case.done && !case.detached, "detached twice");
        case.end(&[State::Left, State::Again], errno(Errno::CANCELED));
        (case.detached, case.kept) = (true, true);
        let expected = (case.in_slots(), case.owner.bytes.len() as u64);
        assert_eq!((left.left as usize, left.bytes), expected);
    }

    /// Somebody writes over an operation that was not issued yet.
    fn spoil(&mut self, at: usize) {
        let number = at % self.cases.len();
        let case = &mut self.cases[number];
        let left = |one: &Expected| one.state == State::Left && one.kind.moves_bytes();
        if let Some(index) = case.operations.iter().rposition(left) {
            case.owner.spoil(index);
            case.operations[index].spoiled = true;
        }
    }

    fn fail_all(&mut self, flight: &mut Flight) {
        let in_slots: usize = self.cases.iter().map(Case::in_slots).sum();
        self.cases.iter_mut().for_each(Case::catch_up);
        let lost = flight.fail_all(Errno::IO) as usize;
        assert!(
            (self.flying.len()..=in_slots).contains(&lost),
            "lost {lost}"
        );
        self.flying.clear();
        for case in &mut self.cases {
            case.leaked = case.in_slots() > 0;
            case.end(
                &[State::Left, State::Flying, State::Again],
                errno(Errno::IO),
            );
        }
    }

    /// Invariants 1 and 2: the books are right, and a batch is done once, as soon as it can be.
    fn look(&mut self, flight: &mut Flight) {
        loop {
            let has_done = flight.has_done();
            let done = flight.take_done();
            assert_eq!(has_done, done.is_some());
            let Some(done) = done else { break };
            self.check_done(done);
        }
        let over = |one: &Expected| matches!(one.state, State::Over(_));
        for case in &self.cases {
            assert!(
                case.done || !case.operations.iter().all(over),
                "a batch waits for ever: all of it is over"
            );
        }
        self.check_books(flight);
    }

    fn check_done(&mut self, done: Done) {
        let case = &mut self.cases[usize::try_from(done.ticket).expect("small")];
        assert!(!case.done, "done twice");
        case.done = true;
        assert_eq!(case.front(), None, "done with operations left");
        assert_eq!(case.in_slots(), 0, "done with operations in flight");
        assert_eq!(done.detached, case.detached);
        assert_eq!(done.bytes, case.owner.bytes.len() as u64);
        let alive = || case.owner.kept.load(Ordering::Relaxed);
        assert_eq!(alive(), case.kept.into(), "the memory went before the end");
        assert_eq!(done.keeper.is_some(), case.kept && !case.leaked);
        drop(done.keeper);
        assert_eq!(alive(), u32::from(case.kept && case.leaked));
        let results = case.owner.results.iter();
        for (one, &result) in case.operations.iter().zip(results) {
            assert_ne!(result, i64::MIN, "done without all results");
            assert_eq!(one.state, State::Over(result), "another result: {one:?}");
        }
        self.check_order(usize::try_from(done.ticket).expect("small"));
    }

    /// Invariant 3: no sync went well behind a write that did not.
    fn check_order(&self, number: usize) {
        let case = &self.cases[number];
        let mut failed = false;
        for (one, &result) in case.operations.iter().zip(&case.owner.results) {
            match one.kind {
                Kind::Write => failed |= result != i64::from(BYTES),
                Kind::Fsync | Kind::Fdatasync => {
                    assert!(!failed || result < 0, "synced all the same");
                }
                Kind::Read => {}
            }
        }
    }

    fn check_books(&self, flight: &Flight) {
        let live = || self.cases.iter().filter(|case| !case.done);
        let count = |state: State| live().map(|case| case.in_state(state)).sum::<usize>();
        assert_eq!(flight.flying() as usize, count(State::Flying));
        assert_eq!(
            flight.retracted(),
            count(State::Again),
            "a batch waits for ever: a try is forgotten"
        );
        assert!(count(State::Flying) + count(State::Again) <= SLOTS as usize);
        let awaited = live().filter(|case| !case.detached);
        let awaited: usize = awaited.map(|case| case.in_state(State::Flying)).sum();
        assert_eq!(flight.awaited() as usize, awaited);
        assert_eq!(flight.is_empty(), live().count() == 0);
        let numbered = self.cases.iter().enumerate();
        let tickets: Vec<_> = numbered
            .filter(|(_, case)| !case.done && !case.detached)
            .map(|(number, _)| number as u64)
            .collect();
        let mut told: Vec<_> = flight.tickets().collect();
        told.sort_unstable();
        assert_eq!(told, tickets, "somebody waits for others");
        let kept = live().filter(|case| case.detached);
        let kept: usize = kept.map(|case| case.owner.bytes.len()).sum();
        assert_eq!(flight.detached().sum::<u64>(), kept as u64);
        let more = count(State::Again) + count(State::Left) > 0;
        assert!(more || !flight.can_issue(), "nothing is left to issue");
    }

    /// Let the kernel end everything.
    fn finish(&mut self, flight: &mut Flight) {
        while !flight.is_empty() {
            self.issue(flight, u8::MAX);
            self.look(flight);
            // What is over without the kernel is over as soon as it was looked for.
            let stuck = self.flying.is_empty() && !flight.is_empty();
            assert!(
                !stuck,
                "nothing in flight, and not done: a batch waits for ever"
            );
            while !self.flying.is_empty() {
                self.complete(flight, 0, Ending::Whole);
            }
            self.look(flight);
        }
        assert!(
            self.cases.iter().all(|case| case.done),
            "a batch was forgotten"
        );
        assert!(!flight.can_issue());
    }
}

proptest! {
    #[test]
    #[cfg_attr(miri, ignore = "fstat of a file that is written, which miri has not")]
    fn every_batch_ends_once_with_all_its_results_whatever_the_kernel_does(acts in acts()) {
        static FILE: LazyLock<BlockFile> = LazyLock::new(file); // a failed ring leaks what it has open
        let mut flight = Flight::new(SLOTS, TURN);
        let mut world = World::default();
        let _watch = counted::Watch;
        for act in acts {
            world.act(&mut flight, &FILE, act);
        }
        world.finish(&mut flight);
    }
}

fn admitted(flight: &mut Flight, owner: &mut Owner, ticket: u64) {
    let batch = owner.batch(&file(), false);
    flight.admit(batch, None, ticket, None);
}

#[test]
#[cfg_attr(miri, ignore = "fstat of a file that is written, which miri has not")]
fn a_sync_goes_out_after_the_writes_before_it_and_beside_those_behind_it() {
    let mut owner = Owner::new(&[Kind::Write, Kind::Write, Kind::Fsync, Kind::Write]);
    let mut flight = Flight::new(SLOTS, SLOTS);
    admitted(&mut flight, &mut owner, 1);
    let first = flight.next().expect("a write").slot;
    let second = flight.next().expect("a write").slot;
    assert!(flight.next().is_none(), "the sync waits for both");
    flight.complete(first, 64);
    assert!(flight.next().is_none(), "the sync waits for one more");
    flight.complete(second, 64);
    assert_eq!(flight.next().expect("the sync").kind, Kind::Fsync);
    assert_eq!(flight.next().expect("a write").kind, Kind::Write);
}

#[test]
fn batches_take_turns_so_that_a_long_one_does_not_hold_up_a_short_one() {
    let mut long = Owner::new(&[Kind::Read; 7]);
    let mut short = Owner::numbered(1, &[Kind::Read; 2]);
    let mut flight = Flight::new(32, 3);
    admitted(&mut flight, &mut long, 1);
    admitted(&mut flight, &mut short, 2);
    let mut order = Vec::new();
    while let Some(issue) = flight.next() {
        order.push((issue.offset / u64::from(BYTES), issue.slot));
    }
    let numbers: Vec<_> = order.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [0, 1, 2, 12, 13, 3, 4, 5, 6]);
    for &(_, slot) in &order[..5] {
        flight.complete(slot, 64);
    }
    assert_eq!(flight.take_done().map(|done| done.ticket), Some(2));
}

/// Short batches that end one after the other would give a long one a turn without end.
#[test]
fn a_batch_that_ends_after_its_turn_makes_nobody_elses_longer() {
    let mut over = Owner::new(&[Kind::Read]);
    let mut long = Owner::numbered(1, &[Kind::Read; 7]);
    let mut short = Owner::numbered(2, &[Kind::Read; 2]);
    let mut flight = Flight::new(32, 3);
    admitted(&mut flight, &mut over, 1);
    admitted(&mut flight, &mut long, 2);
    admitted(&mut flight, &mut short, 3);
    let slot = flight.next().expect("the only one of its batch").slot;
    assert_eq!(flight.next().expect("a read").offset, 12 * u64::from(BYTES));
    flight.complete(slot, 64);
    assert_eq!(flight.take_done().map(|done| done.ticket), Some(1));
    let mut numbers = Vec::new();
    while let Some(issue) = flight.next() {
        numbers.push(issue.offset / u64::from(BYTES));
    }
    assert_eq!(numbers, [13, 14, 24, 25, 15, 16, 17, 18]);
}

#[test]
fn memory_that_changed_after_the_check_fails_its_operation_and_no_other() {
    let mut owner = Owner::new(&[Kind::Read; 3]);
    let mut flight = Flight::new(SLOTS, SLOTS);
    admitted(&mut flight, &mut owner, 1);
    let changed = &owner.operations[1];
    changed.set(Operation {
        length: 3 * BYTES, // beyond the buffer
        ..changed.get()
    });
    let slots: Vec<_> = std::iter::from_fn(|| flight.next().map(|issue| issue.slot)).collect();
    assert_eq!(slots.len(), 2);
    for slot in slots {
        flight.complete(slot, 64);
    }
    assert!(flight.take_done().is_some());
    assert_eq!(
        owner.results,
        [64, -i64::from(Errno::INVAL.raw_os_error()), 64]
    );
}

#[test]
fn no_sync_is_well_behind_a_write_that_somebody_wrote_over() {
    let mut owner = Owner::new(&[Kind::Write, Kind::Fsync]);
    let mut flight = Flight::new(SLOTS, SLOTS);
    admitted(&mut flight, &mut owner, 1);
    owner.spoil(0);
    assert!(flight.next().is_none(), "nothing of it may go out");
    assert_eq!(owner.results, [Errno::INVAL, Errno::CANCELED].map(errno));
}

#[test]
fn an_operation_that_the_kernel_never_takes_ends_with_its_error() {
    let mut owner = Owner::new(&[Kind::Read]);
    let mut flight = Flight::new(SLOTS, SLOTS);
    admitted(&mut flight, &mut owner, 1);
    let mut tries = 0;
    while let Some(issue) = flight.next() {
        let slot = issue.slot;
        flight.complete(slot, -Errno::AGAIN.raw_os_error());
        tries += 1;
        assert!(tries < 1000, "for ever");
    }
    assert_eq!(tries, 101, "once, and a hundred times again");
    assert_eq!(owner.results, [-i64::from(Errno::AGAIN.raw_os_error())]);
}

//! Random batches against a random kernel, and the invariants of the module.
#[path = "../../../transport/tests/counted/mod.rs"]
mod counted;

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;

use super::{Errno, Flight};
use crate::batch::{Batch, Files, Operations};
use crate::file::{BlockFile, Mode};
use crate::operation::{Kind, Operation};
use crate::sys::lent;

const SLOTS: u32 = 8;
const TURN: u32 = 3;
const BYTES: u32 = 64;

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
        let operations = kinds.iter().map(|&kind| Operation {
            length: BYTES,
            kind: kind as u8,
            ..Operation::default()
        });
        Self {
            operations: operations.map(Cell::new).collect(),
            results: vec![i64::MIN; kinds.len()],
            bytes: vec![0; BYTES as usize],
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
}

/// What the random kernel and its clients do next.
#[derive(Clone, Debug)]
enum Act {
    Admit {
        kinds: Vec<u8>,
        exact: bool,
    },
    Issue(u8),
    /// Complete the operation in flight at this place with all, some, or no bytes, or an error.
    Complete(usize, Ending),
    /// The kernel does not take the newest so many.
    Retract(u8),
    FailRetracted,
    Detach(usize),
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    Whole,
    Short,
    Nothing,
    Again,
    Failed,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let ending = prop_oneof![
        4 => Just(Ending::Whole),
        2 => Just(Ending::Short),
        1 => Just(Ending::Nothing),
        1 => Just(Ending::Again),
        1 => Just(Ending::Failed),
    ];
    let act = prop_oneof![
        2 => (prop::collection::vec(0_u8..4, 0..12), any::<bool>())
            .prop_map(|(kinds, exact)| Act::Admit { kinds, exact }),
        4 => (1_u8..12).prop_map(Act::Issue),
        6 => (any::<prop::sample::Index>(), ending)
            .prop_map(|(at, ending)| Act::Complete(at.index(64), ending)),
        1 => (1_u8..6).prop_map(Act::Retract),
        1 => Just(Act::FailRetracted),
        1 => (0_usize..16).prop_map(Act::Detach),
    ];
    prop::collection::vec(act, 1..80)
}

/// An operation that the kernel has, as it was handed out.
#[derive(Clone, Copy, Debug)]
struct Flying {
    slot: u32,
    kind: Kind,
    length: u32,
}

#[derive(Default)]
struct World {
    owners: Vec<Owner>,
    kinds: Vec<Vec<Kind>>,
    flying: Vec<Flying>,
    done: HashMap<u64, bool>,
    detached: Vec<u64>,
}

impl World {
    fn result_of(flying: Flying, ending: Ending) -> i32 {
        let length = i32::try_from(flying.length).expect("small");
        match (ending, flying.kind) {
            (Ending::Again, _) => -Errno::AGAIN.raw_os_error(),
            (Ending::Failed, _) => -Errno::IO.raw_os_error(),
            (_, Kind::Fsync | Kind::Fdatasync) | (Ending::Nothing, _) => 0,
            (Ending::Whole, _) => length,
            (Ending::Short, _) => length / 2,
        }
    }

    fn act(&mut self, flight: &mut Flight, file: &BlockFile, act: Act) {
        counted::step();
        match act {
            Act::Admit { kinds, exact } => self.admit(flight, file, &kinds, exact),
            Act::Issue(count) => self.issue(flight, count),
            Act::Complete(at, ending) if !self.flying.is_empty() => {
                let at = at % self.flying.len();
                let flying = self.flying.swap_remove(at);
                flight.complete(flying.slot, Self::result_of(flying, ending));
            }
            Act::Retract(count) => {
                for _ in 0..count {
                    let Some(flying) = self.flying.pop() else {
                        break;
                    };
                    flight.retract(flying.slot);
                }
            }
            Act::FailRetracted => flight.fail_retracted(Errno::NOMEM),
            Act::Detach(number) if number < self.owners.len() => {
                let ticket = number as u64;
                if flight.detach(ticket, None).is_some() {
                    self.detached.push(ticket);
                }
            }
            Act::Complete(..) | Act::Detach(_) => {}
        }
        self.look(flight);
    }

    fn admit(&mut self, flight: &mut Flight, file: &BlockFile, kinds: &[u8], exact: bool) {
        let kinds: Vec<_> = kinds.iter().filter_map(|&kind| Kind::of(kind)).collect();
        let mut owner = Owner::new(&kinds);
        let batch = owner.batch(file, exact);
        owner.kept.store(1, Ordering::Relaxed);
        let held = Box::new(Held(Arc::clone(&owner.kept)));
        let ticket = self.owners.len() as u64;
        self.owners.push(owner);
        self.kinds.push(kinds);
        flight.admit(batch, None, ticket, Some(held));
    }

    fn issue(&mut self, flight: &mut Flight, count: u8) {
        for _ in 0..count {
            let Some(issue) = flight.next() else { return };
            assert!(
                issue.length <= BYTES && issue.offset + u64::from(issue.length) == BYTES.into()
            );
            let flying = Flying {
                slot: issue.slot,
                kind: issue.kind,
                length: issue.length,
            };
            assert!(
                self.flying.iter().all(|other| other.slot != flying.slot),
                "two in one slot"
            );
            self.flying.push(flying);
        }
    }

    /// Invariants 1 and 2: slots are bounded, and a batch is done once, with all results and nothing in flight.
    fn look(&mut self, flight: &mut Flight) {
        assert_eq!(flight.flying() as usize, self.flying.len());
        assert!(self.flying.len() <= SLOTS as usize);
        while let Some(done) = flight.take_done() {
            let number = usize::try_from(done.ticket).expect("small");
            assert!(self.done.insert(done.ticket, true).is_none(), "done twice");
            assert_eq!(done.detached, self.detached.contains(&done.ticket));
            let owner = &self.owners[number];
            assert_eq!(
                owner.kept.load(Ordering::Relaxed),
                1,
                "the memory went before the end"
            );
            drop(done.keeper);
            assert_eq!(owner.kept.load(Ordering::Relaxed), 0);
            let over = owner.results.iter().all(|&result| result != i64::MIN);
            assert!(over, "done without all results: {:?}", owner.results);
            self.check_order(number);
        }
    }

    /// Invariant 3: no sync went well behind a write that did not.
    fn check_order(&self, number: usize) {
        let mut failed = false;
        for (kind, &result) in self.kinds[number].iter().zip(&self.owners[number].results) {
            match kind {
                Kind::Write => failed |= result != i64::from(BYTES),
                Kind::Fsync | Kind::Fdatasync => {
                    assert!(!failed || result < 0, "synced all the same");
                }
                Kind::Read => {}
            }
        }
    }

    /// Let the kernel end everything.
    fn finish(&mut self, flight: &mut Flight) {
        while !flight.is_empty() {
            self.issue(flight, u8::MAX);
            // What is over without the kernel is over as soon as it was looked for.
            let stuck = self.flying.is_empty() && !flight.is_empty();
            assert!(
                !stuck,
                "nothing in flight, and not done: a batch waits for ever"
            );
            for flying in std::mem::take(&mut self.flying) {
                flight.complete(flying.slot, Self::result_of(flying, Ending::Whole));
            }
            self.look(flight);
        }
        assert_eq!(self.done.len(), self.owners.len(), "a batch was forgotten");
        assert!(!flight.can_issue());
    }
}

proptest! {
    #[test]
    #[cfg_attr(miri, ignore = "fstat of a file that is written, which miri has not")]
    fn every_batch_ends_once_with_all_its_results_whatever_the_kernel_does(acts in acts()) {
        let file = file();
        let mut flight = Flight::new(SLOTS, TURN);
        let mut world = World::default();
        let _watch = counted::Watch;
        for act in acts {
            world.act(&mut flight, &file, act);
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
    let mut short = Owner::new(&[Kind::Read; 2]);
    let mut flight = Flight::new(32, 3);
    admitted(&mut flight, &mut long, 1);
    admitted(&mut flight, &mut short, 2);
    let mut slots = Vec::new();
    while let Some(issue) = flight.next() {
        slots.push(issue.slot);
    }
    for &slot in &slots[..5] {
        flight.complete(slot, 64);
    }
    assert_eq!(flight.take_done().map(|done| done.ticket), Some(2));
}

#[test]
fn memory_that_changed_after_the_check_fails_its_operation_and_no_other() {
    let mut owner = Owner::new(&[Kind::Read; 3]);
    let mut flight = Flight::new(SLOTS, SLOTS);
    admitted(&mut flight, &mut owner, 1);
    let changed = &owner.operations[1];
    changed.set(Operation {
        length: BYTES + 1, // beyond the buffer
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
    assert_eq!(owner.results, [-i64::from(Errno::AGAIN.raw_os_error())]);
}

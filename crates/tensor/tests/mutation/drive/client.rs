//! A requester that asks the same again and again, which hears a server.
use std::time::{Duration, Instant};

use forebay_tensor::{
    Canceled, End, Error, Key, Limits, Operation, Outcome, Pull, Push, Requester, Rows, Span,
    Ticket, Words,
};

use super::server::{LIMITS, NAMES, ROW_BYTES, ROWS};
use crate::sys::loan::{Loan, carry};

/// Memory before and behind each destination, which nobody is to write.
const GUARD_BYTES: usize = 64;
/// What it asks for: the tensor, how many rows, in which way.
const JOBS: [(u32, usize, Way); 7] = [
    (0, 2, Way::Slice),
    (0, 3, Way::Numbers),
    (1, 2, Way::Slice),
    (1, 2, Way::Numbers),
    (2, 3, Way::Slice),
    (0, 3, Way::Push(Operation::Add)),
    (1, 2, Way::Push(Operation::Set)),
];
/// The number of the look-up, behind those.
const LOOK_UP: usize = JOBS.len();

#[derive(Clone, Copy)]
enum Way {
    Slice,
    /// Rows by their numbers, to places in the reverse order.
    Numbers,
    Push(Operation),
}

struct Memory {
    guarded: Loan,
    numbers: Loan,
    places: Loan,
}

impl Memory {
    fn new(job: usize) -> Self {
        let (tensor, rows, _) = JOBS[job];
        let bytes = rows * usize::try_from(ROW_BYTES[tensor as usize]).expect("a few");
        let words = |numbers: Vec<u64>| {
            let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_ne_bytes()).collect();
            Loan::from(bytes)
        };
        let count = rows as u64;
        Self {
            guarded: Loan::from(vec![0xee; bytes + 2 * GUARD_BYTES]),
            numbers: words((0..count).map(|at| at * 7 % ROWS).collect()),
            places: words((0..count).rev().collect()),
        }
    }

    fn span(&mut self) -> Span {
        let all = self.guarded.span();
        all.part(GUARD_BYTES, all.bytes() - 2 * GUARD_BYTES)
    }

    fn check(&self) {
        let bytes = self.guarded.bytes();
        let guards = [&bytes[..GUARD_BYTES], &bytes[bytes.len() - GUARD_BYTES..]];
        assert!(guards.concat() == [0xee; 2 * GUARD_BYTES]);
    }
}

pub struct Client {
    requester: Requester<usize>,
    memory: Vec<Memory>,
    /// The one of each job that has not ended.
    tickets: Vec<Option<Ticket>>,
    /// What went well.
    pub ended: u32,
    now: Instant,
}

impl Client {
    pub fn new() -> Self {
        let now = Instant::now();
        let limits = Limits {
            slots: LIMITS.slots,
            grant_bytes: LIMITS.grant_bytes,
            piece_bytes: 20 << 10,
            ..Limits::default()
        };
        let mut client = Self {
            requester: Requester::new(limits, now).expect("the limits can be"),
            memory: (0..JOBS.len()).map(Memory::new).collect(),
            tickets: vec![None; LOOK_UP + 1],
            ended: 0,
            now,
        };
        (0..=LOOK_UP).for_each(|job| client.ask(job));
        client
    }

    fn ask(&mut self, job: usize) {
        let asked = if job == LOOK_UP {
            self.requester.look_up(&[NAMES[0], "smell"], job)
        } else {
            self.transfer(job)
        };
        self.tickets[job] = asked.ok(); // a broken connection takes no more
    }

    fn transfer(&mut self, job: usize) -> Result<Ticket, forebay_tensor::Refused<usize>> {
        let (tensor, count, way) = JOBS[job];
        let memory = &mut self.memory[job];
        let (rows_total, row_bytes) = (ROWS, ROW_BYTES[tensor as usize]);
        let key = Key {
            id: tensor,
            generation: 1,
        };
        let slice = Rows::Slice {
            first: 1,
            count: count as u64,
        };
        let (rows, places) = match way {
            Way::Numbers => {
                let numbers = Words::new(memory.numbers.span());
                (
                    Rows::Indices(numbers),
                    Some(Words::new(memory.places.span())),
                )
            }
            Way::Slice | Way::Push(_) => (slice, None),
        };
        let span = memory.span();
        if let Way::Push(operation) = way {
            let push = Push {
                tensor: key,
                row_bytes,
                rows_total,
                rows,
                values: span,
                places,
                operation,
            };
            return self.requester.push(push, job);
        }
        let pull = Pull {
            tensor: key,
            row_bytes,
            rows_total,
            rows,
            out: span,
            places,
        };
        self.requester.pull(pull, job)
    }

    /// Bytes of the server.
    pub fn hear(&mut self, burst: &[u8], step: usize) -> Result<(), Error> {
        for mut part in burst.chunks(step) {
            // As a socket does, straight to where it is to lie.
            while !part.is_empty() {
                let mut source = Loan::from(part.to_vec());
                let count = carry(&[source.span()], &self.requester.incoming());
                assert!(count > 0, "there is always room");
                self.requester.received(count, self.now)?;
                part = &part[count..];
            }
        }
        Ok(())
    }

    /// All that the server is asked; what has ended is asked for again.
    pub fn say(&mut self) -> Vec<u8> {
        self.take_ends();
        let mut said = Vec::new();
        let mut sink = Loan::from(vec![0; 4096]);
        let mut spans = [Span::EMPTY; 8];
        loop {
            let count = self.requester.outgoing(&mut spans);
            let sent = carry(&spans[..count], &[sink.span()]);
            if sent == 0 {
                return said;
            }
            said.extend(&sink.bytes()[..sent]);
            self.requester.sent(sent, self.now);
        }
    }

    fn take_ends(&mut self) {
        while let Some(end) = self.requester.take_end() {
            let (ticket, job) = match end {
                End::Over {
                    ticket,
                    keeper,
                    result,
                } => {
                    let is_names = matches!(result, Ok(Outcome::Names(_)));
                    assert!(result.is_err() || is_names == (keeper == LOOK_UP));
                    self.ended += u32::from(result.is_ok());
                    (ticket, keeper)
                }
                End::Released { ticket, keeper } => (ticket, keeper),
            };
            assert_eq!(self.tickets[job].take(), Some(ticket), "it ends once");
            self.ask(job);
        }
    }

    /// Give one up, which is asked for again once nobody writes its memory.
    pub fn cancel(&mut self, job: usize) {
        let ticket = self.tickets[job].expect("it has not ended");
        if let Canceled::TakenBack(_) = self.requester.cancel(ticket) {
            self.ask(job);
        }
    }

    /// Have it ask whether a silent server lives.
    pub fn wait(&mut self, silence: Duration) -> Result<(), Error> {
        self.now += silence;
        self.requester.expire(self.now).map(drop)
    }

    /// The server is gone: whatever it said, everything comes back. Returns what came.
    pub fn end(mut self) -> Vec<u8> {
        let gone = Error::Broken { why: "end".into() };
        self.requester.break_off(gone);
        self.take_ends();
        assert!(self.tickets.iter().all(Option::is_none), "all have ended");
        self.memory.iter().for_each(Memory::check);
        let held: Vec<_> = self
            .memory
            .iter()
            .map(|each| each.guarded.bytes())
            .collect();
        held.concat()
    }
}

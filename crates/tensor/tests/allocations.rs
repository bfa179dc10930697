//! What a pull or push costs of the heap, once everything has its size: nothing.
//!
//! The one test of this file, because it counts what all threads of the process ask for.
mod sys;

use std::time::Instant;

use forebay_tensor::{
    Description, Dtype, End, Key, Limits, Number, Operation, Outcome, PeerId, Pull, Push,
    Requester, Rows, Shard, ShardLimits, Span, Words,
};
use sys::counting::{Counting, own_allocations};
use sys::loan::{Loan, carry};

#[global_allocator]
static HEAP: Counting = Counting;

const IN_FLIGHT: usize = 16;
/// Bytes of all rounds, so that large pulls have fewer of them.
const BYTES: usize = 32 << 20;
/// Rounds until every buffer has its size.
const WARM_UP: usize = 4;
const ROWS: u64 = 1024;

/// A shard with a tensor, and a client of it.
struct Pair {
    shard: Shard<()>,
    peer: PeerId,
    requester: Requester<()>,
    key: Key,
    row_bytes: u64,
    tensor: Loan,
    memory: Loan,
    numbers: Loan,
    now: Instant,
}

impl Pair {
    /// Rows of `row_bytes`; pulls and pushes are of `rows`.
    fn new(row_bytes: u64, rows: usize) -> Self {
        let now = Instant::now();
        let mut shard = Shard::new(ShardLimits::default()).expect("the limits can be");
        let bytes = usize::try_from(ROWS * row_bytes).expect("small");
        let mut tensor = Loan::new(bytes);
        let description = Description {
            dtype: Dtype {
                number: Number::Unsigned,
                item_bytes: 8,
                text: "<u8".into(),
            },
            shape: vec![ROWS, row_bytes / 8],
        };
        let key = shard
            .publish("a", description, tensor.span(), ())
            .expect("it can be published");
        let peer = shard.connect(16, now).expect("it is the first");
        let row = usize::try_from(row_bytes).expect("small");
        Self {
            shard,
            peer,
            requester: Requester::new(Limits::default(), now).expect("the limits can be"),
            key,
            row_bytes,
            tensor,
            memory: Loan::new(IN_FLIGHT * rows * row),
            numbers: Loan::new(rows * 8),
            now,
        }
    }

    /// Pull or push in flight number `at`.
    fn submit(&mut self, at: usize, rows: Rows, operation: Option<Operation>) {
        let Self {
            key: tensor,
            row_bytes,
            ..
        } = *self;
        let bytes = usize::try_from(rows.count() * row_bytes).expect("small");
        let memory = self.memory.span().part(at * bytes, bytes);
        let submitted = match operation {
            None => self.requester.pull(
                Pull {
                    tensor,
                    row_bytes,
                    rows_total: ROWS,
                    rows,
                    out: memory,
                    places: None,
                },
                (),
            ),
            Some(operation) => self.requester.push(
                Push {
                    tensor,
                    row_bytes,
                    rows_total: ROWS,
                    rows,
                    values: memory,
                    places: None,
                    operation,
                },
                (),
            ),
        };
        submitted.expect("it is inside");
    }

    /// Move bytes both ways until nothing moves; returns how many jobs ended well.
    fn run(&mut self) -> usize {
        let mut ended = 0;
        let mut spans = [Span::EMPTY; 64];
        loop {
            let count = self.requester.outgoing(&mut spans);
            let up = carry(&spans[..count], &self.shard.incoming(self.peer));
            self.requester.sent(up, self.now);
            self.shard
                .received(self.peer, up, self.now)
                .expect("it keeps to the protocol");
            let count = self.shard.outgoing(self.peer, &mut spans);
            let down = carry(&spans[..count], &self.requester.incoming());
            self.shard.sent(self.peer, down, self.now);
            self.requester
                .received(down, self.now)
                .expect("it keeps to the protocol");
            while let Some(end) = self.requester.take_end() {
                let moved = matches!(
                    end,
                    End::Over {
                        result: Ok(Outcome::Moved { .. }),
                        ..
                    }
                );
                ended += usize::from(moved);
            }
            if up + down == 0 {
                return ended;
            }
        }
    }

    /// Allocations of many rounds of 16 in flight.
    fn count(&mut self, submit: impl Fn(&mut Self, usize)) -> u64 {
        let rounds = (BYTES / self.memory.bytes().len()).clamp(2, 100);
        let mut before = 0;
        for round in 0..WARM_UP + rounds {
            if round == WARM_UP {
                before = own_allocations();
            }
            (0..IN_FLIGHT).for_each(|at| submit(self, at));
            assert_eq!(self.run(), IN_FLIGHT);
        }
        own_allocations() - before
    }
}

fn slices(rows: u64, operation: Option<Operation>) -> impl Fn(&mut Pair, usize) {
    move |pair, at| {
        pair.submit(
            at,
            Rows::Slice {
                first: at as u64,
                count: rows,
            },
            operation,
        );
    }
}

fn indices(operation: Option<Operation>) -> impl Fn(&mut Pair, usize) {
    move |pair, at| {
        let numbers = Words::new(pair.numbers.span());
        pair.submit(at, Rows::Indices(numbers), operation);
    }
}

/// Row numbers that are inside, as the loan's content is none.
fn zeros(pair: &mut Pair) {
    let count = pair.numbers.bytes().len();
    let zeros = vec![0; count];
    let mut source = Loan::from(zeros);
    carry(&[source.span()], &[pair.numbers.span()]);
}

/// A program that trains for days has the heap that it began with.
#[test]
fn nothing_is_allocated_for_a_pull_or_push() {
    let set = Some(Operation::Set);
    let add = Some(Operation::Add);
    for (row_bytes, rows) in [(64, 1), (64, 64), (4096, 1), (4096, 16), (4096, 300)] {
        let mut pair = Pair::new(row_bytes, rows);
        zeros(&mut pair);
        let what = format!("{rows} rows of {row_bytes} bytes");
        let count = rows as u64;
        assert_eq!(pair.count(slices(count, None)), 0, "pulls of {what}");
        assert_eq!(pair.memory.bytes()[..64], pair.tensor.bytes()[..64]);
        assert_eq!(pair.count(indices(None)), 0, "gathering pulls of {what}");
        assert_eq!(pair.count(slices(count, set)), 0, "pushes of {what}");
        assert_eq!(pair.count(indices(add)), 0, "scattering pushes of {what}");
    }
}

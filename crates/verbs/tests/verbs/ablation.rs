//! What static registration and many slots are worth, each alone and both: 32 tensors of 16 KiB a step.
//!
//! The delay line is here and not in the network: rxe answers itself without one. It holds each request before it is
//! posted and each answer before it is looked at, so a slot is taken for the whole round trip.
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use forebay_memory::Lease;
use forebay_tensor::fabric::FabricPull;
use forebay_verbs::{Arrival, Prepared, Puller, Registering};

use crate::peer::{Peer, Role, TENSOR, start};
use crate::support::{Place, holds};
use crate::sys::fill;

const TENSORS: usize = 32;
const BYTES: usize = 16_384;
const ROUNDS: usize = 4;

/// Things on their way, in order, each for so long.
struct Line<T> {
    latency: Option<Duration>,
    held: VecDeque<(Instant, T)>,
}

impl<T> Line<T> {
    fn new(latency: Option<Duration>) -> Self {
        let held = VecDeque::new();
        Self { latency, held }
    }

    /// Let something in; it comes out at once where there is no latency: the guest's clock costs a system call.
    fn pass(&mut self, thing: T) -> Option<T> {
        let Some(latency) = self.latency else {
            return Some(thing);
        };
        self.held.push_back((Instant::now() + latency, thing));
        None
    }

    fn due(&mut self, now: Instant) -> Option<T> {
        if self.next()? > now {
            return None;
        }
        self.held.pop_front().map(|(_, thing)| thing)
    }

    fn next(&self) -> Option<Instant> {
        self.held.front().map(|(due, _)| *due)
    }
}

/// One of the four: a connection to an owner in a process of its own.
struct Cell {
    name: &'static str,
    puller: Puller,
    block: Lease,
    steps: Vec<Duration>,
    _peer: Peer,
}

impl Cell {
    fn new(place: &Place, name: &'static str, slots: u32, registering: Registering) -> Self {
        let (peer, stream) = start(Role::Owner(slots, registering));
        Self {
            name,
            puller: place.puller(stream, slots, registering).expect("connected"),
            block: place.region.allocate(TENSORS * BYTES).expect("room"),
            steps: Vec::new(),
            _peer: peer,
        }
    }

    /// How long some steps take, each of which waits for all of its tensors.
    fn run(&mut self, steps: usize, latency: Option<Duration>) {
        fill(&self.block, &vec![255; TENSORS * BYTES]);
        for _ in 0..steps {
            let begun = Instant::now();
            self.step(latency);
            self.steps.push(begun.elapsed());
        }
        assert!(
            holds(&self.block, 0..TENSORS * BYTES, 0, 0),
            "{}: wrong rows",
            self.name
        );
    }

    /// Tensors per second in the middle one of its steps, and in the fastest.
    fn rates(&mut self) -> [f64; 2] {
        self.steps.sort();
        let steps = [self.steps[self.steps.len() / 2], self.steps[0]];
        let tensors = f64::from(u16::try_from(TENSORS).expect("32"));
        steps.map(|step| tensors / step.as_secs_f64())
    }

    fn step(&mut self, latency: Option<Duration>) {
        let (mut requests, mut answers) = (Line::new(latency), Line::new(latency));
        let (mut issued, mut done, mut arrivals) = (0, 0, Vec::new());
        while done < TENSORS {
            while issued < TENSORS && self.puller.has_free_slot() {
                let prepared = self.prepare(issued);
                issued += 1;
                self.post(requests.pass(prepared));
            }
            if latency.is_some() {
                let now = Instant::now();
                while let Some(request) = requests.due(now) {
                    self.post(Some(request));
                }
                while let Some(answer) = answers.due(now) {
                    done += self.settle(Some(answer));
                }
                let can_issue = issued < TENSORS && self.puller.has_free_slot();
                if done == TENSORS || can_issue {
                    continue;
                }
            }
            let until = [requests.next(), answers.next()]
                .into_iter()
                .flatten()
                .min();
            self.puller.wait(&mut arrivals, until).expect("connected");
            for arrival in arrivals.drain(..) {
                done += self.settle(answers.pass(arrival));
            }
        }
    }

    fn prepare(&mut self, tensor: usize) -> Prepared {
        let pull = FabricPull {
            token: tensor as u64,
            tensor: TENSOR,
            first: (tensor * BYTES) as u64,
            rows: BYTES as u64,
            into: self.block.clone(),
            at: tensor * BYTES,
            bytes: BYTES,
        };
        self.puller.prepare(pull).expect("a slot is free")
    }

    fn post(&mut self, request: Option<Prepared>) {
        if let Some(request) = request {
            self.puller.post(request).expect("connected");
        }
    }

    fn settle(&mut self, answer: Option<Arrival>) -> usize {
        let Some(answer) = answer else { return 0 };
        let end = self.puller.settle(answer).expect("not broken off");
        assert_eq!(end.result, Ok(()));
        1
    }
}

/// Run all four in turn, round for round; the ratio of both to neither, in the fastest steps.
///
/// What else the machine does makes steps slower and never faster, so the fastest ones are compared.
fn measure(cells: &mut [Cell; 4], latency: Option<Duration>) -> f64 {
    for cell in &mut *cells {
        cell.steps.clear();
    }
    for _ in 0..ROUNDS {
        for cell in &mut *cells {
            // A step of one slot is 32 round trips long, one of 16 slots two.
            let is_long = latency.is_some() && cell.puller.slots() == 1;
            cell.run(if is_long { 1 } else { 4 }, latency);
        }
    }
    cells[3].rates()[1] / cells[0].rates()[1]
}

/// What was measured, for people.
fn table(cells: &mut [Cell; 4], latency: Option<Duration>) -> String {
    let latency = latency.unwrap_or_default();
    let mut table = format!("{TENSORS} tensors of {BYTES} bytes a step, {latency:?} one way\n");
    let [_, base] = cells[0].rates();
    for cell in cells {
        let ([median, fastest], name) = (cell.rates(), cell.name);
        let ratio = fastest / base;
        let line = "tensors/s: median";
        writeln!(
            table,
            "  {name:<24} {line} {median:>6.0}, fastest step {fastest:>6.0}, {ratio:>6.2}x"
        )
        .expect("grows");
    }
    table
}

#[test]
#[ignore = "needs an RDMA device: make test-verbs"]
fn static_registration_and_sixteen_slots_together_beat_neither() {
    let place = Place::new("requester");
    let mut cells = [
        Cell::new(&place, "1 slot, per transfer", 1, Registering::PerTransfer),
        Cell::new(&place, "1 slot, static", 1, Registering::Once),
        Cell::new(
            &place,
            "16 slots, per transfer",
            16,
            Registering::PerTransfer,
        ),
        Cell::new(&place, "16 slots, static", 16, Registering::Once),
    ];
    for cell in &mut cells {
        cell.run(1, None); // pages and windows
    }
    let floors = [(None, 1.2), (Some(500), 2.5), (Some(2000), 8.0)];
    let ratios = floors.map(|(latency_us, floor)| {
        let latency = latency_us.map(Duration::from_micros);
        let ratio = measure(&mut cells, latency);
        print!("{}", table(&mut cells, latency));
        (ratio, floor)
    });
    let below = ratios.iter().find(|(ratio, floor)| ratio < floor);
    assert_eq!(below, None, "below its floor: {ratios:?}");
}

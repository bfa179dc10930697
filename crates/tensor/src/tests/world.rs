//! A shard and its clients over streams that carry as many bytes at a time as the dice say.
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use super::Dice;
use crate::inbox::fill;
use crate::{
    Canceled, Description, Dtype, End, Error, Key, Limits, Number, Operation, Outcome, PeerId,
    Pull, Push, Requester, Rows, Shard, ShardLimits, Span, Ticket, Words,
};

/// What fills memory that nothing was put into.
pub(crate) const UNTOUCHED: u8 = 0xee;
pub(crate) const ITEM_BYTES: usize = 4;
/// Turns of all peers after which nothing moves any more.
const ROUNDS_MAX: u32 = 1000;

/// A tensor's key, and what it held at each version.
pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) key: Key,
    pub(crate) rows: usize,
    pub(crate) row_bytes: usize,
    pub(crate) history: BTreeMap<u64, Vec<u8>>,
    /// Not a box, which would be the only way to its bytes once it is moved: the shard has another.
    memory: Vec<u8>,
    pub(crate) is_live: bool,
}

/// A pull or push with its memory, which is kept until the test is over.
pub(crate) struct Job {
    pub(crate) client: usize,
    pub(crate) ticket: Option<Ticket>,
    pub(crate) model: usize,
    pub(crate) rows: Vec<u64>,
    pub(crate) places: Option<Vec<u64>>,
    pub(crate) operation: Option<Operation>,
    pub(crate) memory: Vec<u8>,
    words: Vec<u8>,
    place_words: Vec<u8>,
    pub(crate) ends: u32,
    pub(crate) keeper_back: bool,
    pub(crate) result: Option<Result<Outcome, Error>>,
    /// The memory when it was the caller's again.
    pub(crate) after: Option<Vec<u8>>,
    /// What is looked up, where rows are not moved, and how many models there were then.
    pub(crate) names: Vec<String>,
    pub(crate) models_before: usize,
}

pub(crate) struct Client {
    pub(crate) requester: Requester<usize>,
    pub(crate) peer: PeerId,
    pub(crate) up: VecDeque<u8>,
    pub(crate) down: VecDeque<u8>,
}

pub(crate) struct World {
    pub(crate) shard: Shard<usize>,
    pub(crate) models: Vec<Model>,
    pub(crate) jobs: Vec<Job>,
    pub(crate) clients: Vec<Client>,
    pub(crate) dice: Dice,
    pub(crate) now: Instant,
    pub(crate) limits: Limits,
    /// Each byte reaches the shard on its own, so that every version is seen.
    pub(crate) byte_by_byte: bool,
    pub(crate) retired: Vec<usize>,
    /// The tickets that each connection gave out.
    tickets: HashSet<(PeerId, u64)>,
}

impl World {
    pub(crate) fn new(seed: u64, limits: Limits) -> Self {
        let shard = Shard::new(ShardLimits {
            slots: limits.slots,
            grant_bytes: limits.grant_bytes,
            ..ShardLimits::default()
        });
        Self {
            shard: shard.expect("the limits can be"),
            models: Vec::new(),
            jobs: Vec::new(),
            clients: Vec::new(),
            dice: Dice::new(seed),
            now: Instant::now(),
            limits,
            byte_by_byte: true,
            retired: Vec::new(),
            tickets: HashSet::new(),
        }
    }

    pub(crate) fn connect(&mut self) -> Client {
        Client {
            requester: Requester::new(self.limits, self.now).expect("the limits can be"),
            peer: self
                .shard
                .connect(self.limits.slots, self.now)
                .expect("there are few"),
            up: VecDeque::new(),
            down: VecDeque::new(),
        }
    }

    pub(crate) fn publish(&mut self, name: &str, rows: usize, columns: usize) {
        let row_bytes = columns * ITEM_BYTES;
        let mut memory: Vec<u8> = (0..rows * row_bytes).map(|_| self.dice.byte()).collect();
        let description = Description {
            dtype: Dtype {
                number: Number::Unsigned,
                item_bytes: 4,
                text: "<u4".into(),
            },
            shape: vec![rows as u64, columns as u64],
        };
        let keeper = self.models.len();
        let key = self
            .shard
            .publish(name, description, Span::of(&mut memory), keeper);
        let key = key.expect("it can be published");
        self.drop_model(name);
        self.models.push(Model {
            name: name.into(),
            key,
            rows,
            row_bytes,
            history: BTreeMap::from([(0, memory.clone())]),
            memory,
            is_live: true,
        });
    }

    pub(crate) fn drop_model(&mut self, name: &str) {
        let live = self
            .models
            .iter_mut()
            .find(|model| model.is_live && model.name == name);
        if let Some(model) = live {
            model.is_live = false;
        }
    }

    /// Write rows by the owner itself.
    pub(crate) fn write(&mut self, model: usize, first: usize, count: usize) {
        let model = &self.models[model];
        let values: Vec<u8> = (0..count * model.row_bytes)
            .map(|_| self.dice.byte())
            .collect();
        let rows = Rows::Slice {
            first: first as u64,
            count: count as u64,
        };
        let written = self
            .shard
            .write(model.key, rows, Operation::Set, Span::sending(&values));
        written.expect("it is inside");
        self.note_versions();
    }

    /// Keep what tensors hold now under their version.
    pub(crate) fn note_versions(&mut self) {
        for model in self.models.iter_mut().filter(|model| model.is_live) {
            let meaning = self.shard.meaning(&model.name).expect("it is live");
            model
                .history
                .entry(meaning.version)
                .or_insert_with(|| model.memory.clone());
        }
    }

    /// Submit a pull or push; a slice where `rows` follow each other and `as_slice`.
    pub(crate) fn submit(
        &mut self,
        client: usize,
        model: usize,
        rows: Vec<u64>,
        operation: Option<Operation>,
        as_slice: bool,
    ) -> Result<usize, Error> {
        let row_bytes = self.models[model].row_bytes;
        let bytes = rows.len() * row_bytes;
        let places = (self.dice.once_in(3)).then(|| shuffled(rows.len(), &mut self.dice));
        let fill = |dice: &mut Dice| (0..bytes).map(|_| dice.byte()).collect();
        let memory = match operation {
            Some(_) => fill(&mut self.dice),
            None => vec![UNTOUCHED; bytes],
        };
        let words = |numbers: &[u64]| numbers.iter().flat_map(|n| n.to_ne_bytes()).collect();
        let mut job = Job {
            words: words(&rows),
            place_words: words(places.as_deref().unwrap_or_default()),
            rows,
            places,
            operation,
            memory,
            ..Job::new(client, model)
        };
        let ticket = self.ask(&mut job, as_slice)?;
        Ok(self.submitted(job, ticket))
    }

    /// Submit a look-up of names.
    pub(crate) fn look_up(&mut self, client: usize, names: &[&str]) -> Result<usize, Error> {
        let keeper = self.jobs.len();
        let requester = &mut self.clients[client].requester;
        let ticket = requester.look_up(names, keeper).map_err(|refused| {
            assert_eq!(refused.keeper, keeper);
            refused.error
        })?;
        let job = Job {
            names: names.iter().map(|&name| name.into()).collect(),
            models_before: self.models.len(),
            ..Job::new(client, 0)
        };
        Ok(self.submitted(job, ticket))
    }

    fn submitted(&mut self, mut job: Job, ticket: Ticket) -> usize {
        let connection = self.clients[job.client].peer;
        let is_new = self.tickets.insert((connection, ticket.number()));
        assert!(is_new, "a ticket names one job for ever");
        job.ticket = Some(ticket);
        self.jobs.push(job);
        self.jobs.len() - 1
    }

    fn ask(&mut self, job: &mut Job, as_slice: bool) -> Result<Ticket, Error> {
        let model = &self.models[job.model];
        let rows = if as_slice {
            Rows::Slice {
                first: job.rows.first().copied().unwrap_or(0),
                count: job.rows.len() as u64,
            }
        } else {
            Rows::Indices(Words::new(Span::of(&mut job.words)))
        };
        let places = job
            .places
            .is_some()
            .then(|| Words::new(Span::of(&mut job.place_words)));
        let (tensor, row_bytes, rows_total) =
            (model.key, model.row_bytes as u64, model.rows as u64);
        let memory = Span::of(&mut job.memory);
        let requester = &mut self.clients[job.client].requester;
        let keeper = self.jobs.len();
        let submitted = match job.operation {
            None => requester.pull(
                Pull {
                    tensor,
                    row_bytes,
                    rows_total,
                    rows,
                    out: memory,
                    places,
                },
                keeper,
            ),
            Some(operation) => requester.push(
                Push {
                    tensor,
                    row_bytes,
                    rows_total,
                    rows,
                    values: memory,
                    places,
                    operation,
                },
                keeper,
            ),
        };
        submitted.map_err(|refused| {
            assert_eq!(refused.keeper, keeper);
            refused.error
        })
    }

    /// Have bytes go from a client towards the shard.
    pub(crate) fn client_sends(&mut self, client: usize, limit: usize) -> usize {
        let at = &mut self.clients[client];
        let mut spans = [Span::EMPTY; 5];
        let wants = at.requester.wants_write();
        let count = at.requester.outgoing(&mut spans);
        assert_eq!(wants, count > 0, "whether a client has something to send");
        let taken = take(&spans[..count], limit, &mut at.up);
        at.requester.sent(taken, self.now);
        taken
    }

    /// Have bytes reach the shard.
    pub(crate) fn shard_receives(&mut self, client: usize, limit: usize) -> Result<usize, Error> {
        let count = limit.min(self.clients[client].up.len());
        let bytes: Vec<u8> = self.clients[client].up.drain(..count).collect();
        let step = if self.byte_by_byte { 1 } else { count.max(1) };
        for part in bytes.chunks(step) {
            self.shard.feed(self.clients[client].peer, part, self.now)?;
            self.note_versions();
        }
        Ok(count)
    }

    /// Have bytes go from the shard towards a client.
    pub(crate) fn shard_sends(&mut self, client: usize, limit: usize) -> usize {
        let at = &mut self.clients[client];
        let mut spans = [Span::EMPTY; 5];
        let wants = self.shard.wants_write(at.peer);
        let owed = self.shard.has_pending_output(at.peer);
        assert_eq!(wants, owed, "no row is to be read from a file");
        let count = self.shard.outgoing(at.peer, &mut spans);
        assert_eq!(wants, count > 0, "whether a shard has something to send");
        let taken = take(&spans[..count], limit, &mut at.down);
        self.shard.sent(at.peer, taken, self.now);
        taken
    }

    /// Have bytes reach a client, as its machine says.
    pub(crate) fn client_receives(&mut self, client: usize, limit: usize) -> Result<usize, Error> {
        let at = &mut self.clients[client];
        let count = limit.min(at.down.len());
        let bytes: Vec<u8> = at.down.iter().take(count).copied().collect();
        let count = fill(at.requester.incoming(), &bytes);
        at.down.drain(..count);
        at.requester.received(count, self.now)?;
        Ok(count)
    }

    /// Have all that a client has to send reach the shard, and all its answers the client; the bytes that moved.
    pub(crate) fn exchange(&mut self, client: usize) -> usize {
        self.client_sends(client, usize::MAX) + self.answer(client)
    }

    /// Have what was sent reach the shard, and its answers the client; the bytes that moved.
    pub(crate) fn answer(&mut self, client: usize) -> usize {
        let asked = self.shard_receives(client, usize::MAX);
        let asked = asked.expect("the client keeps to the protocol");
        let answered = self.shard_sends(client, usize::MAX);
        let received = self.client_receives(client, usize::MAX);
        asked + answered + received.expect("the shard keeps to the protocol")
    }

    /// Take the ends of a client's jobs.
    pub(crate) fn take_ends(&mut self, client: usize) {
        while let Some(end) = self.clients[client].requester.take_end() {
            match end {
                End::Over {
                    ticket,
                    keeper,
                    result,
                } => {
                    self.job(ticket, keeper).ended(Some(result));
                    self.jobs[keeper].handed_back();
                }
                End::Released { ticket, keeper } => {
                    assert_eq!(self.job(ticket, keeper).ends, 1);
                    self.jobs[keeper].handed_back();
                }
            }
        }
    }

    fn job(&mut self, ticket: Ticket, keeper: usize) -> &mut Job {
        let job = &mut self.jobs[keeper];
        assert_eq!(job.ticket, Some(ticket));
        job
    }

    pub(crate) fn cancel(&mut self, number: usize) {
        let job = &mut self.jobs[number];
        let ticket = job.ticket.expect("it was submitted");
        match self.clients[job.client].requester.cancel(ticket) {
            Canceled::TakenBack(keeper) => {
                assert_eq!(keeper, number);
                job.ended(None);
                job.handed_back();
                let unit = self.models[job.model].row_bytes.max(8) as u64;
                let is_one_piece = self.limits.is_one_piece(job.rows.len() as u64 * unit);
                // Of a longer one some rows may have come.
                if job.operation.is_none() && is_one_piece {
                    assert!(job.memory.iter().all(|&byte| byte == UNTOUCHED));
                }
            }
            Canceled::Detached => job.ended(None),
            Canceled::Gone => {
                let client = job.client;
                self.take_ends(client);
                assert_eq!(self.jobs[number].ends, 1, "a job that goes on is canceled");
            }
        }
    }

    /// Move all bytes until nothing moves any more.
    pub(crate) fn drain(&mut self) {
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "bytes move without end");
            let mut moved = 0;
            for client in 0..self.clients.len() {
                moved += self.exchange(client);
                self.take_ends(client);
            }
            if moved == 0 {
                break;
            }
        }
    }

    pub(crate) fn later(&mut self, by: Duration) {
        self.now += by;
    }
}

impl Limits {
    /// Whether rows that take so many bytes go together.
    pub(crate) fn is_one_piece(&self, bytes: u64) -> bool {
        bytes <= self.piece_bytes.min(self.grant_bytes)
    }
}

impl Job {
    fn new(client: usize, model: usize) -> Self {
        Self {
            client,
            ticket: None,
            model,
            rows: Vec::new(),
            places: None,
            operation: None,
            memory: Vec::new(),
            words: Vec::new(),
            place_words: Vec::new(),
            ends: 0,
            keeper_back: false,
            result: None,
            after: None,
            names: Vec::new(),
            models_before: 0,
        }
    }

    fn ended(&mut self, result: Option<Result<Outcome, Error>>) {
        self.ends += 1;
        assert_eq!(self.ends, 1, "a job ends once");
        self.result = result;
    }

    fn handed_back(&mut self) {
        assert!(!self.keeper_back, "a keeper comes back once");
        self.keeper_back = true;
        self.after = Some(self.memory.clone());
    }

    /// All rows in the order of the request.
    pub(crate) fn memory_in_order(&self, row_bytes: usize) -> Vec<u8> {
        let rows = 0..self.rows.len();
        rows.flat_map(|at| self.row(at, row_bytes).to_vec())
            .collect()
    }

    /// Row n of the request in the job's memory.
    pub(crate) fn row(&self, at: usize, row_bytes: usize) -> &[u8] {
        let place = match &self.places {
            Some(places) => usize::try_from(places[at]).expect("small"),
            None => at,
        };
        &self.memory[place * row_bytes..][..row_bytes]
    }
}

fn take(spans: &[Span], limit: usize, into: &mut VecDeque<u8>) -> usize {
    let mut bytes = Vec::new();
    for span in spans {
        span.append_to(&mut bytes);
    }
    bytes.truncate(limit);
    into.extend(&bytes);
    bytes.len()
}

fn shuffled(count: usize, dice: &mut Dice) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count as u64).collect();
    for at in (1..count).rev() {
        numbers.swap(at, dice.below(at + 1));
    }
    numbers
}

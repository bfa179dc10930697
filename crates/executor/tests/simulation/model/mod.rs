//! A model of what the machine promises: it hears every event first, and foresees what has to come of it.
//!
//! It keeps plain maps and searches them. What the documentation leaves to the machine (which of those that may run
//! next does) it takes over from the machine and judges: `choice.rs`. What must not be left undone is in `duty.rs`, and
//! what the machine says of itself is compared in `compare.rs`.

mod choice;
mod compare;
mod duty;
mod hand;
mod known;
mod ledger;
mod memory;
mod runs;
mod told;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use forebay_executor::action::Action;
use forebay_executor::id::RequestId;
use forebay_executor::limit::RESULTS_WRITING_BYTES_MAX;
use forebay_executor::machine::{Machine, Policy};
use forebay_executor::news::News;
use forebay_executor::op::Op;
use forebay_executor::request::{Failure, Millis, Outcome, Slot, Status, Submission};

use super::event::{Answer, Event};
use hand::{Hand, Pace, Starts};
use known::{Known, Place};
use ledger::{Change, Ledger};
use memory::Memory;

pub type Verdict = Result<(), String>;

#[derive(Default)]
struct Counts {
    accepted: u64,
    refused: u64,
    ended: [u64; 6],
    deaths: u64,
}

#[allow(
    clippy::struct_excessive_bools,
    reason = "each is told by another event"
)]
pub struct Model {
    policy: Policy,
    now: Millis,
    /// When time was last told.
    ticked: Millis,
    last: RequestId,
    code: Arc<str>,
    limits: HashMap<Arc<str>, u32>,
    in_use: [bool; 3],
    is_held: bool,
    is_draining: bool,
    /// Whether what was accepted is dispatched while nothing is taken.
    cordon: Option<bool>,
    requests: BTreeMap<RequestId, Known>,
    ended: HashMap<RequestId, Status>,
    /// By idempotency key: the request and its name.
    tokens: HashMap<Arc<str>, (RequestId, Arc<str>)>,
    hands: BTreeMap<Slot, Hand>,
    starts: Starts,
    pace: [Pace; 3],
    memory: Memory,
    ledger: Ledger,
    filing: HashSet<RequestId>,
    counts: Counts,
    /// Actions that have to come of this event, and those that came and are foreseen.
    expected: Vec<String>,
    came: Vec<String>,
    /// Changes that are to be given to the store again, in this order, before anything else.
    again: Vec<Change>,
    /// Runs of shared workers whose next step is due.
    unheeded: Vec<RequestId>,
    timed_out: bool,
    is_tick: bool,
    /// A request of which the machine has yet to be asked whether a worker is kept for it.
    newest: Option<RequestId>,
    answer: Answer,
}

impl Model {
    pub fn new(policy: Policy, now: Millis) -> Self {
        Self {
            policy,
            now,
            ticked: now,
            last: RequestId(0),
            code: "".into(),
            limits: HashMap::new(),
            in_use: [false; 3],
            is_held: false,
            is_draining: false,
            cordon: None,
            requests: BTreeMap::new(),
            ended: HashMap::new(),
            tokens: HashMap::new(),
            hands: BTreeMap::new(),
            starts: Starts::default(),
            pace: [Pace::default(); 3],
            memory: Memory::default(),
            ledger: Ledger::default(),
            filing: HashSet::new(),
            counts: Counts::default(),
            expected: Vec::new(),
            came: Vec::new(),
            again: Vec::new(),
            unheeded: Vec::new(),
            timed_out: false,
            is_tick: false,
            newest: None,
            answer: Answer::Nothing,
        }
    }

    /// The store takes nothing.
    pub fn is_down(&self) -> bool {
        self.ledger.is_down
    }

    /// There is no room for one more unfinished request.
    pub fn is_full(&self) -> bool {
        self.requests.len() >= self.policy.queued_max as usize
    }

    /// The greatest id that was given.
    pub fn last(&self) -> RequestId {
        self.last
    }

    fn expect(&mut self, action: String) {
        self.expected.push(action);
    }

    /// An ended request was read back from the store.
    pub fn remember(
        &mut self,
        id: RequestId,
        status: Status,
        submission: &Submission,
        is_kept: bool,
    ) {
        if !status.has_ended() || self.requests.contains_key(&id) {
            return;
        }
        self.ended.insert(id, status);
        if let Some(key) = submission.options.idempotency.as_ref().filter(|_| is_kept) {
            let of = (id, Arc::clone(&submission.name));
            self.tokens.entry(Arc::clone(key)).or_insert(of);
        }
    }

    /// A change has happened: it goes to the store, or is kept while that takes nothing.
    fn write(&mut self, change: Change) {
        if !self.policy.durable {
            self.applied(change);
        } else if self.ledger.is_down {
            self.ledger.keep(change);
        } else {
            self.expect(format!("Store {change:?}"));
        }
    }

    /// Before the machine hears of it.
    pub fn before(&mut self, now: Millis, event: &Event) {
        self.now = self.now.max(now);
        self.expected.clear();
        self.came.clear();
        self.unheeded.clear();
        (self.timed_out, self.is_tick) = (false, false);
        self.newest = None;
        self.answer = Answer::Nothing;
        match event {
            Event::Submit(submission) => self.submit(submission),
            Event::Cancel(id) => self.cancel(*id),
            Event::Retry(ended) => self.retry(ended),
            Event::Committed(count) => self.committed(*count),
            Event::NotCommitted(count) => self.not_committed(*count),
            Event::RetryStore => self.ledger.is_wanted = self.ledger.is_down,
            Event::Filed(id, unfit) => self.filed(*id, *unfit),
            Event::Ready(slot) => self.ready(*slot),
            Event::StartFailed(slot) => self.could_not_start(*slot),
            Event::Gone(slot, death) => self.gone(*slot, death),
            Event::Finished(slot, id, attempt, outcome, peak) => {
                self.finished(*slot, *id, *attempt, outcome.clone(), *peak);
            }
            Event::Returned(slot, id, attempt) => self.returned(*slot, *id, *attempt),
            Event::Measured(slot, bytes) => self.measured(*slot, *bytes),
            Event::MachineMeasured(bytes, pressure) => {
                self.memory.machine_has(*bytes);
                self.memory.pressure = *pressure;
                self.guard();
            }
            Event::Tick => self.tick(),
            Event::Install(code, definitions) => self.install(code, definitions),
            Event::Hold(is_held) => self.is_held = *is_held,
            Event::Drain => self.drain(),
            Event::Cordon(asked) => self.cordon(*asked),
            Event::Forget(key) => self.forget_token(key),
            Event::Restore(restored, learnt, last) => self.restore(restored, learnt, *last),
        }
        let is_answer = matches!(
            event,
            Event::Committed(_) | Event::NotCommitted(_) | Event::RetryStore
        );
        if is_answer {
            self.again = self.ledger.resume();
            for change in self.again.clone() {
                self.expect(format!("Store {change:?}"));
            }
        }
        self.fail_doomed();
    }

    /// Nothing is dispatched.
    fn is_stopped(&self) -> bool {
        let ends = self
            .requests
            .values()
            .filter_map(|known| known.ending.as_ref());
        let bytes: usize = ends
            .map(|ending| match &ending.outcome {
                Outcome::Succeeded(result) => result.len(),
                _ => 0,
            })
            .sum();
        let is_behind = bytes > RESULTS_WRITING_BYTES_MAX;
        self.is_paused() || self.ledger.is_down || is_behind
    }

    /// Nothing is dispatched, because that was asked for.
    fn is_paused(&self) -> bool {
        self.is_held || self.is_draining || self.cordon == Some(false)
    }

    /// An action came: foreseen ones are counted, the others judged.
    pub fn action(&mut self, machine: &Machine, action: &Action) -> Verdict {
        let came = match action {
            Action::Store(op) => return self.stored(op),
            Action::File(id, ending) => {
                self.same_ending(*id, ending)?;
                format!("File {id}")
            }
            Action::Discard(id, attempt) => format!("Discard {id} {attempt}"),
            Action::Accepted(id) => format!("Accepted {id}"),
            Action::Retried(id, done) => format!("Retried {id} {}", done.is_ok()),
            Action::Refused(id, refusal) => {
                if refusal.code != "store" {
                    return Err(format!(
                        "law of refusals: {id} is refused as {}",
                        refusal.code
                    ));
                }
                format!("Refused {id}")
            }
            Action::Ended(id, _) => format!("Ended {id}"),
            Action::Dispatch {
                slot,
                id,
                attempt,
                journal,
            } => return self.dispatched(*slot, *id, *attempt, *journal),
            Action::Interrupt {
                slot,
                id,
                attempt,
                step,
            } => {
                if self.unheeded.contains(id) {
                    self.shared_step(*id, *step)?;
                }
                format!("Interrupt {id} {attempt} in {:?} by {step:?}", Some(slot))
            }
            Action::Recall { slot, id, attempt } => {
                self.judge_recall(*id)?;
                format!("Recall {id} {attempt} in {:?}", Some(slot))
            }
            Action::Start { slot, lane } => return self.started(machine, *slot, *lane),
            Action::Stop { slot } => {
                self.judge_stop(*slot)?;
                format!("Stop {slot}")
            }
            Action::Expel {
                slot, peak_bytes, ..
            } => format!("Expel {slot} at {peak_bytes}"),
            Action::Measure { slot } => format!("Measure {slot}"),
        };
        self.came.push(came);
        Ok(())
    }

    /// Something became true of a request, which the feed is told.
    pub fn news(&mut self, news: &News) {
        self.came.push(match news {
            News::Accepted(request) => format!("News: {} is accepted", request.id),
            News::Retried(request) => format!("News: {} is retried", request.id),
            News::Queued {
                request,
                attempt,
                reason,
            } => format!(
                "News: {} is queued after run {attempt}: {reason:?}",
                request.id
            ),
            News::Ended {
                request,
                ending,
                queued_ms,
                run_ms,
            } => format!(
                "News: {} is {:?} after {:?} ms",
                request.id,
                ending.status,
                (queued_ms, run_ms)
            ),
        });
    }

    fn stored(&mut self, op: &Op) -> Verdict {
        let change = Change::of(op);
        if self.ledger.is_down {
            return Err(format!(
                "law of the ledger: {change:?} is given to a store that is down"
            ));
        }
        self.same_deaths(op, &change)?;
        match op {
            Op::End { id, ending, .. } => self.same_ending(*id, ending)?,
            Op::Park { id, wake_at, .. } => {
                let known = self
                    .requests
                    .get_mut(id)
                    .filter(|known| known.place == Place::Waiting);
                if let Some(known) = known.filter(|_| self.again.is_empty()) {
                    let (from, until) = known.wake;
                    if until > 0 && !(from..=until).contains(wake_at) {
                        return Err(format!(
                            "law of back-offs: {id} waits until {wake_at}, not {from} to {until}"
                        ));
                    }
                    known.wake = (*wake_at, *wake_at);
                }
            }
            _ => {}
        }
        if let Some(place) = self.again.iter().position(|one| *one == change) {
            let older = self.again[..place].iter();
            let mut older = older.filter(|one| one.id().is_some() && one.id() == change.id());
            if let Some(older) = older.next() {
                return Err(format!(
                    "law of the ledger: {change:?} comes again before {older:?}"
                ));
            }
            self.again.remove(place);
        }
        self.ledger.in_flight.push_back(change);
        self.came.push(format!("Store {change:?}"));
        Ok(())
    }

    /// A change that is given again says what was so when it happened.
    fn same_deaths(&self, op: &Op, change: &Change) -> Verdict {
        let (Op::End { id, deaths, .. } | Op::Park { id, deaths, .. }) = op else {
            return Ok(());
        };
        let known = self.requests.get(id).map(|known| known.deaths);
        if self.again.contains(change) || known == Some(*deaths) {
            return Ok(());
        }
        Err(format!(
            "law of deaths: {deaths} of {id} are written, {known:?} count"
        ))
    }

    fn same_ending(&self, id: RequestId, told: &forebay_executor::request::Ending) -> Verdict {
        let known = self.requests.get(&id);
        let mut foreseen = known.and_then(|known| known.ending.clone());
        if let (Some(known), Some(ending)) = (known, &mut foreseen)
            && let Outcome::Failed(Failure::After(one)) = &told.outcome
            && known.options().after.contains(one)
            && matches!(ending.outcome, Outcome::Failed(Failure::After(_)))
        {
            ending.outcome = told.outcome.clone(); // any of those that failed may be named
        }
        if foreseen.as_ref() == Some(told) {
            return Ok(());
        }
        Err(format!(
            "law of ends: {id} ends as {told:?}, not as {foreseen:?}"
        ))
    }
}

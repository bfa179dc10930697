//! A store that commits late, fails, and keeps what it committed when the server dies.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use forebay_executor::id::RequestId;
use forebay_executor::op::{Op, Restored};
use forebay_executor::request::{Ending, Millis, Request, Status};

use super::event::Learnt;

pub struct Row {
    pub request: Arc<Request>,
    pub status: Status,
    pub attempts: u32,
    forgiven: u32,
    retried: bool,
    deaths: u32,
    wake_at: Option<Millis>,
}

pub enum Answer {
    Committed(usize),
    Failed(usize),
}

#[derive(Default)]
pub struct Disk {
    pub rows: BTreeMap<RequestId, Row>,
    journal: HashSet<(RequestId, u32)>,
    given: VecDeque<Op>,
    answers: VecDeque<Answer>,
    pub is_full: bool,
    /// Peaks that were stored, by name and code.
    pub learnt: Vec<Learnt>,
}

impl Disk {
    pub fn give(&mut self, op: Op) {
        self.given.push_back(op);
    }

    pub fn note(&mut self, id: RequestId, attempt: u32) {
        self.journal.insert((id, attempt));
    }

    pub fn has_work(&self) -> bool {
        !self.given.is_empty()
    }

    /// Commits, or fails to commit, the next `count` changes as one transaction.
    pub fn turn(&mut self, count: usize) {
        let count = count.min(self.given.len());
        if count == 0 {
            return;
        }
        if self.is_full {
            self.given.drain(..count);
            self.answers.push_back(Answer::Failed(count));
            return;
        }
        let batch: Vec<Op> = self.given.drain(..count).collect();
        for op in batch {
            self.apply(op);
        }
        self.answers.push_back(Answer::Committed(count));
    }

    pub fn answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    pub fn apply(&mut self, op: Op) {
        match op {
            Op::Accept(request) => {
                let row = Row {
                    request: Arc::clone(&request),
                    status: Status::Queued,
                    attempts: 0,
                    forgiven: 0,
                    retried: false,
                    deaths: 0,
                    wake_at: request.submission.options.not_before,
                };
                let before = self.rows.insert(request.id, row);
                assert!(before.is_none(), "accepted twice");
            }
            Op::Claim { id, attempt, .. } => {
                self.journal.remove(&(id, attempt));
                let Some(row) = self.rows.get_mut(&id) else {
                    return; // its row was in a transaction that failed
                };
                assert!(!row.status.has_ended(), "{id} is claimed after its end");
                assert!(attempt >= row.attempts, "{id} goes back to run {attempt}");
                row.status = Status::Running;
                row.attempts = attempt;
                row.wake_at = None;
            }
            Op::Unclaim { id, attempt } => {
                self.journal.remove(&(id, attempt));
                let row = self.unfinished(id, "unclaimed");
                row.status = Status::Queued;
                row.attempts = attempt - 1;
            }
            Op::Park {
                id,
                attempt,
                wake_at,
                deaths,
                ..
            } => {
                let row = self.unfinished(id, "parked");
                assert!(
                    row.attempts <= attempt,
                    "the park of {id} would count as late"
                );
                (row.status, row.attempts) = (Status::Queued, attempt);
                (row.wake_at, row.deaths) = (Some(wake_at), deaths);
            }
            Op::Retry { id, .. } => {
                let row = self.rows.get_mut(&id).expect("a row that is retried");
                assert!(row.status.has_ended(), "{id} is retried before its end");
                (row.status, row.retried) = (Status::Queued, true);
                (row.forgiven, row.deaths) = (row.attempts, 0);
                row.wake_at = None;
            }
            Op::End {
                id,
                ending,
                deaths,
                claimed,
            } => self.end(id, &ending, deaths, claimed),
            Op::Peak { name, code, bytes } => self.learn(name, code, bytes),
            Op::Acted { .. }
            | Op::Forget { .. }
            | Op::Fired { .. }
            | Op::Paused { .. }
            | Op::Resumed { .. } => {}
        }
    }

    fn learn(&mut self, name: Arc<str>, code: Arc<str>, bytes: u64) {
        let mut all = self.learnt.iter_mut();
        match all.find(|(one, of, _)| *one == name && *of == code) {
            Some((_, _, peaks)) => peaks.push(bytes),
            None => self.learnt.push((name, code, vec![bytes])),
        }
    }

    fn end(&mut self, id: RequestId, ending: &Ending, deaths: u32, claimed: u32) {
        let row = self.unfinished(id, "ended");
        assert!(
            row.attempts <= claimed,
            "the end of {id} would count as late"
        );
        row.status = ending.status;
        row.attempts = ending.attempts;
        row.deaths = deaths;
        row.wake_at = None;
    }

    fn unfinished(&mut self, id: RequestId, done: &str) -> &mut Row {
        let row = self.rows.get_mut(&id).expect("a row that is changed");
        assert!(!row.status.has_ended(), "{id} is {done} after its end");
        row
    }

    /// The server is dead: what was not committed is gone. After a loss of power the journal is too.
    pub fn recover(&mut self, power_lost: bool) -> Vec<Restored> {
        self.given.clear();
        self.answers.clear();
        let journal = std::mem::take(&mut self.journal);
        if !power_lost {
            for (id, attempt) in journal {
                if let Some(row) = self.rows.get_mut(&id).filter(|row| !row.status.has_ended()) {
                    row.status = Status::Running;
                    row.attempts = row.attempts.max(attempt);
                    row.wake_at = None;
                }
            }
        }
        let unfinished = self.rows.values().filter(|row| !row.status.has_ended());
        unfinished.map(|row| restored(row, power_lost)).collect()
    }

    /// An ended request, as an operator has it read back.
    pub fn read(&self, id: RequestId) -> Option<Restored> {
        Some(restored(self.rows.get(&id)?, false))
    }
}

fn restored(row: &Row, rebooted: bool) -> Restored {
    Restored {
        request: Request::clone(&row.request),
        status: row.status,
        attempts: row.attempts,
        forgiven: row.forgiven,
        retried: row.retried,
        deaths: row.deaths,
        wake_at: row.wake_at,
        rebooted,
    }
}

//! The reading thread: answers questions, plans removals, removes files.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_base::Queue;
use rusqlite::Connection;

use super::Answer;
use super::config::StoreConfig;
use super::fetch::{Fetched, Question, fetch};
use super::inbox::{Inbox, Seen};
use super::job::{ReadJob, WriteJob};
use super::outbox::Expiry;
use super::prune::{Candidate, Plan, RetentionAges};
use super::reader::DatabaseReader;
use super::results::{self, Unfiled};
use super::statements;
use super::unread::Unread;
use crate::id::RequestId;
use crate::limit::UNREAD_RETENTION_TIMES;
use crate::request::{Ending, Millis};

/// A request whose row was read is kept this long, since the reader may retry it (`prune_grace`).
const GRACE: Duration = Duration::from_secs(60);

/// A machine's clock may be wrong this long after its boot: meanwhile nothing is removed for its age (`boot_grace`).
const BOOT_GRACE: Duration = Duration::from_secs(3_600);

/// The thread's state.
#[derive(Debug)]
pub(super) struct ReadThread {
    config: Arc<StoreConfig>,
    connection: Connection,
    inbox: Arc<Inbox<ReadJob>>,
    writes: Arc<Inbox<WriteJob>>,
    answers: Arc<Queue<Answer>>,
    filed: Arc<results::Filed>,
    unread: Arc<Unread>,
    /// The first is being carried out.
    plans: VecDeque<Plan>,
    /// What the writer was asked to remove.
    asked: HashMap<RequestId, Candidate>,
    /// Requests that were read as a whole, and when.
    spared: VecDeque<(Instant, RequestId)>,
    retention_at: Instant,
    /// Ages of some names; `None`: they are not known yet.
    ages: Option<Arc<RetentionAges>>,
    /// Until then nothing is removed for its age.
    ages_from: Instant,
    /// Files of an earlier server that may belong to no request, while there are any left to look at.
    orphans: Option<results::Orphans>,
}

impl ReadThread {
    pub fn new(
        config: Arc<StoreConfig>,
        reader: DatabaseReader,
        inbox: Arc<Inbox<ReadJob>>,
        writes: Arc<Inbox<WriteJob>>,
        answers: Arc<Queue<Answer>>,
        filed: Arc<results::Filed>,
        rebooted: bool,
    ) -> Self {
        let orphans = results::Orphans::new(&config.directory, &config.running);
        let age = Duration::from_millis(config.retention_age_ms);
        let grace = if rebooted {
            BOOT_GRACE.min(age)
        } else {
            Duration::ZERO
        };
        let ages = (!config.awaits_ages).then(Arc::default);
        Self {
            config,
            connection: reader.into_inner(),
            inbox,
            writes,
            answers,
            filed,
            unread: Arc::default(),
            plans: VecDeque::new(),
            asked: HashMap::new(),
            spared: VecDeque::new(),
            retention_at: Instant::now(),
            ages,
            ages_from: Instant::now() + grace,
            orphans: Some(orphans),
        }
    }

    /// The results that the retention keeps for clients.
    pub fn unread(&self) -> &Arc<Unread> {
        &self.unread
    }

    /// Read until the inbox is closed and empty.
    pub fn run(mut self) {
        let mut messages = VecDeque::new();
        loop {
            // Orphans are looked for between questions, a few at a time.
            let left = match self.orphans {
                Some(_) => Duration::ZERO,
                None => self.retention_at.saturating_duration_since(Instant::now()),
            };
            if self.inbox.take(&mut messages, Some(left)) == Seen::Closed {
                return;
            }
            messages.drain(..).for_each(|message| self.take(message));
            let connection = &self.connection;
            self.orphans.take_if(|orphans| !orphans.step(connection));
            if Instant::now() >= self.retention_at {
                self.plan_retention();
            }
        }
    }

    fn take(&mut self, message: ReadJob) {
        match message {
            ReadJob::Fetch {
                id,
                question,
                ticket,
            } => {
                if question == Question::Row {
                    self.spared.push_back((Instant::now(), id));
                }
                // The caller of a row may retry it, which fails for a request that the writer removes meanwhile.
                let found = if question == Question::Row && self.asked.contains_key(&id) {
                    Fetched::Missing
                } else {
                    fetch(&self.connection, &self.config.directory, id, question)
                };
                self.answer(Answer::Fetched { ticket, id, found });
            }
            ReadJob::File { id, ending } => {
                let unfit = self.file(id, &ending);
                self.answer(Answer::Filed { id, unfit });
            }
            ReadJob::Discard { id, attempt } => {
                results::discard(&self.config.directory, id, attempt);
            }
            ReadJob::Prune { rule, ticket } => {
                self.plans.push_back(Plan::new(rule, ticket));
                // Otherwise the end of the current plan continues with this one.
                if self.plans.len() == 1 {
                    self.follow();
                }
            }
            ReadJob::Retain(ages) => self.ages = Some(Arc::new(ages)),
            ReadJob::Deleted(Ok(ids)) => {
                self.remove_files(&ids);
                self.follow();
            }
            ReadJob::Deleted(Err(why)) => {
                self.asked.clear();
                self.end_plan(Some(why));
                self.follow();
            }
        }
    }

    /// Write a result to its file, unless its run is over; the reason if what its worker left is unfit.
    fn file(&self, id: RequestId, ending: &Ending) -> Option<String> {
        // In doubt it is written: the end itself is looked at again.
        if statements::is_late(&self.connection, id, ending).unwrap_or(false) {
            return None;
        }
        let directory = &self.config.directory;
        let filed = results::file(directory, id, ending);
        match filed.and_then(|()| Ok(results::sync(directory)?)) {
            Ok(()) => {
                self.filed.add(id);
                None
            }
            Err(Unfiled::Unfit(what)) => Some(what),
            // The writer tries again with the end, and reports the error.
            Err(Unfiled::Disk(_)) => None,
        }
    }

    /// Ask the writer to remove the next step of the first plan that is not done.
    fn follow(&mut self) {
        let now = Instant::now();
        while self.spared.front().is_some_and(|(at, _)| now - *at > GRACE) {
            self.spared.pop_front();
        }
        while let Some(plan) = self.plans.front_mut() {
            let (read, unread) = (&self.spared, plan.spares_unread.then_some(&self.unread));
            let spared = |id| {
                read.iter().any(|(_, one)| *one == id)
                    || unread.is_some_and(|unread| unread.has(id))
            };
            let found = match plan.step(&self.connection, &self.config, spared) {
                Ok(found) => found,
                Err(error) => {
                    self.end_plan(Some(format!("cannot look for ended requests: {error}")));
                    continue;
                }
            };
            if found.is_empty() {
                self.end_plan(None);
                continue;
            }
            if plan.is_dry() {
                plan.pruned.count += found.len() as u64;
                plan.pruned.bytes += found.iter().map(|found| found.bytes).sum::<u64>();
                continue;
            }
            if plan.ticket.is_none() {
                // Before the rows go, so that a client that then finds none is told why.
                for found in &found {
                    self.unread.lose(found.id);
                }
            }
            let ids = found.iter().map(|found| found.id).collect();
            self.asked = found.into_iter().map(|found| (found.id, found)).collect();
            self.writes.push(WriteJob::Delete(ids));
            return;
        }
    }

    /// Remove the files of requests whose rows are gone on disk: in this order no row ever names a missing file.
    fn remove_files(&mut self, ids: &[RequestId]) {
        let Some(plan) = self.plans.front_mut() else {
            return;
        };
        let mut forgotten = Vec::new();
        for id in ids {
            for path in [
                results::path(&self.config.directory, *id),
                results::log(&self.config.directory, *id),
                results::items(&self.config.directory, *id),
            ] {
                remove(path);
            }
            if let Some(candidate) = self.asked.get(id) {
                plan.pruned.count += 1;
                plan.pruned.bytes += candidate.bytes;
                if candidate.has_key {
                    forgotten.push(*id);
                }
            }
        }
        self.asked.clear();
        if !forgotten.is_empty() {
            self.answer(Answer::Forgotten(forgotten));
        }
    }

    fn end_plan(&mut self, why: Option<String>) {
        let Some(plan) = self.plans.pop_front() else {
            return;
        };
        if let Some(ticket) = plan.ticket {
            let done = why.map_or(Ok(plan.pruned), Err);
            self.answer(Answer::Pruned { ticket, done });
        }
    }

    /// Plan the removal of what is too old, then of the oldest of what is too much.
    fn plan_retention(&mut self) {
        let config = &self.config;
        self.retention_at = Instant::now() + Duration::from_millis(config.retention_every_ms);
        // An operator's prune is under way: the retention waits for its next time.
        if !self.plans.is_empty() {
            return;
        }
        // Ends are stored by this clock. The wall clock may have been corrected backwards since, so the earlier of both
        // counts.
        let now = config.clock.now().min(config.clock.wall());
        let is_time = Instant::now() >= self.ages_from;
        if is_time {
            self.expire_calls(now.saturating_sub(config.retention_age_ms));
        }
        if is_time && let Some(ages) = &self.ages {
            let usual_ms = config.retention_age_ms;
            self.plans.push_back(if ages.is_empty() {
                Plan::by_age(now.saturating_sub(usual_ms))
            } else {
                Plan::by_ages(now, usual_ms, Arc::clone(ages))
            });
        }
        self.plans.push_back(Plan::by_bytes(config.retention_bytes));
        // Only unread results can have kept the previous plan above its limit.
        if !self.unread.is_empty() {
            let most = config
                .retention_bytes
                .saturating_mul(UNREAD_RETENTION_TIMES);
            self.plans.push_back(Plan::by_bytes_of_all(most));
        }
        self.follow();
    }

    /// Have the writer remove calls of hooks that are too old, if there are some: a server without hooks writes nothing
    /// for them.
    fn expire_calls(&self, before: Millis) {
        let old = Expiry::new(self.config.outbox.as_deref(), before);
        // What cannot be read now is looked at again by the next check.
        if old.is_any(&self.connection).unwrap_or(false) {
            self.writes.push(WriteJob::ExpireCalls(before));
        }
    }

    fn answer(&self, answer: Answer) {
        // The queue is unbounded, and closed only after this thread has ended.
        let pushed = self.answers.push(answer);
        debug_assert!(pushed.is_ok(), "an answer was lost");
    }
}

/// Remove a file that most requests do not have. One that cannot be removed is an orphan, which the next open removes.
fn remove(path: PathBuf) {
    let _ = std::fs::remove_file(path);
}

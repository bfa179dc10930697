//! Sends runs to workers, and takes them back or ends them.

use std::sync::Arc;

use rustix::process::Signal;

use crate::action::Step;
use crate::dispatcher::clients::Clients;
use crate::dispatcher::commits::Commits;
use crate::dispatcher::commits::purpose::PendingRun;
use crate::dispatcher::context::Context;
use crate::dispatcher::workers::{RunId, Workers};
use crate::error::Result;
use crate::message;
use crate::request::{Blob, Failure, Outcome, Slot, Submission};
use crate::secret;
use crate::store::Fetched;

/// The name of pickled functions, the only one that `forebay.Executor` uses.
const CALL: &str = "@call";

impl Workers {
    /// Begin a run: note it in the journal, read its arguments if they are on disk, then send it to its worker.
    ///
    /// A run that may not be repeated must be in the journal before its worker receives it: a server that dies in
    /// between would otherwise run it twice.
    pub fn dispatch(
        &mut self,
        cx: &mut Context,
        commits: &mut Commits,
        slot: Slot,
        (id, attempt): RunId,
        journal: bool,
    ) {
        let run = self.queue.next_dispatch(slot, id, attempt);
        let noted = !journal || commits.note_in_journal(run);
        if !noted || commits.fetch_arguments(run) {
            self.queue.push(run, false);
        } else if self.queue.has_runs(slot) {
            // The run itself need not wait, but those before it must be sent first.
            self.queue.push(run, true);
        } else {
            self.begin(cx, run, None);
        }
    }

    /// Whether a run waits to begin. It does not once it was withdrawn or its worker is gone.
    pub fn awaits(&self, run: PendingRun) -> bool {
        self.queue.contains(run)
    }

    /// Continue with a run that is in the journal now.
    pub fn begin_noted(&mut self, cx: &mut Context, commits: &mut Commits, run: PendingRun) {
        // A run that was withdrawn needs no arguments.
        if !self.awaits(run) || !commits.fetch_arguments(run) {
            self.begin_in_turn(cx, run, None);
        }
    }

    /// Begin a run whose arguments were read.
    pub fn begin_with_arguments(&mut self, cx: &mut Context, run: PendingRun, found: Fetched) {
        match found {
            Fetched::Arguments(arguments) => {
                self.begin_in_turn(cx, run, Some(arguments));
            }
            // It was withdrawn meanwhile, and may be another worker's now: the runs behind it may begin.
            _ if !self.awaits(run) => self.begin_in_turn(cx, run, None),
            Fetched::Failed(why) => self.fail_run(cx, run, &why),
            _ => {
                let why = "its arguments are not in the store any more";
                self.fail_run(cx, run, why);
            }
        }
    }

    /// Begin a run that no longer waits, unless an earlier run of its worker still does.
    fn begin_in_turn(&mut self, cx: &mut Context, run: PendingRun, arguments: Option<Blob>) {
        for (run, arguments) in self.queue.ready(run, arguments) {
            self.begin(cx, run, arguments.as_ref());
        }
    }

    /// Send a run to its worker, with `arguments` if they had to be read.
    fn begin(&mut self, cx: &mut Context, run: PendingRun, arguments: Option<&Blob>) {
        let PendingRun {
            slot, id, attempt, ..
        } = run;
        let view = cx.machine.view(id);
        let current = view.is_some_and(|seen| (seen.slot, seen.attempt) == (Some(slot), attempt));
        let Some(request) = cx.machine.request(id).filter(|_| current) else {
            return; // the run or its worker has ended meanwhile
        };
        let request = Arc::clone(request);
        let submission = &request.submission;
        let arguments = arguments.unwrap_or(&submission.arguments);
        let opened = match opened(cx, submission, arguments) {
            Ok(opened) => opened,
            Err(error) => return self.fail_run(cx, run, &error.to_string()),
        };
        let arguments = opened.as_ref().unwrap_or(arguments);
        let message = if &*submission.name == CALL {
            message::pickled(arguments)
        } else {
            message::run(&message::RunMessage {
                name: &submission.name,
                arguments,
                id,
                attempt,
                deadline_ms: submission.options.timeout_ms,
                traceparent: submission.options.traceparent.as_deref(),
                parent: submission.options.parent,
            })
        };
        cx.append_started(&request, attempt, slot);
        if let Some(worker) = self.processes.get_mut(slot) {
            worker.begin_unless_handed();
        }
        if let Err(error) = self.processes.dispatch(slot, (id, attempt), message) {
            let why = format!("it could not be sent to its worker: {error}");
            self.fail_run(cx, run, &why);
        }
    }

    /// End a run that cannot begin.
    fn fail_run(&mut self, cx: &mut Context, run: PendingRun, why: &str) {
        let outcome = Outcome::Failed(Failure::Refused(why.into()));
        let PendingRun {
            slot, id, attempt, ..
        } = run;
        cx.machine
            .finished(cx.now, slot, id, attempt, outcome, None);
        if self.queue.has_runs(slot) {
            self.begin_in_turn(cx, run, None); // it has ended, so those behind it may begin
        }
    }
}

/// The arguments of a run with its secrets, where some of them are sealed.
fn opened(cx: &mut Context, submission: &Submission, arguments: &Blob) -> Result<Option<Blob>> {
    if !submission.options.sealed {
        return Ok(None);
    }
    let Some(key) = cx.secrets.load()? else {
        return Ok(None);
    };
    secret::open(key, &submission.name, arguments).map(|opened| Some(opened.into()))
}

impl Workers {
    /// Recall a run that a worker was handed behind another one.
    pub fn recall(&mut self, cx: &mut Context, slot: Slot, run: RunId) {
        let (id, attempt) = run;
        if self.queue.withdraw(slot, run) {
            cx.machine.returned(cx.now, slot, id, attempt); // its worker never receives it
        } else {
            self.interrupts
                .recall(&mut self.processes, &self.sides, slot, run);
        }
    }

    /// End a run, and no other.
    pub fn interrupt(
        &mut self,
        cx: &mut Context,
        clients: &mut Clients,
        slot: Slot,
        run: RunId,
        step: Step,
    ) {
        if step != Step::Exception {
            // Its reply may have arrived: then the worker is at its next run, which must not be hit.
            self.read(cx, clients, slot);
        }
        let worker = self.processes.get(slot);
        let Some(worker) = worker.filter(|worker| worker.is_serving()) else {
            return;
        };
        if !worker.has_run(run) {
            // It has replied meanwhile; or it is still queued here, and its worker will never receive it.
            if self.queue.withdraw(slot, run) {
                let (id, attempt) = run;
                cx.machine
                    .finished(cx.now, slot, id, attempt, Outcome::Cancelled, None);
            }
            return;
        }
        if step != Step::Exception {
            self.interrupts.forget(slot);
        }
        match step {
            Step::Exception => {
                self.interrupts
                    .begin(&self.processes, &self.sides, slot, run);
            }
            Step::Terminate => worker.signal(Signal::TERM),
            Step::Kill => worker.kill(),
        }
    }
}

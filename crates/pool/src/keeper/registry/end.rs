//! How a process leaves the registry: by its template's report, by its exit, or by a deadline.

use super::Registry;
use crate::clock::now_ms;
use crate::death::Cause;
use crate::error::Error;
use crate::keeper::process::{Ended, Process};
use crate::keeper::service::Service;
use crate::keeper::source::Poller;
use crate::keeper::template::Running;
use crate::keeper::{DeadlineKind, report_of};
use crate::limit::LIFETIME_LOOK_MS;
use crate::sys::Cell;
use crate::wire::{Event, Handle, Report};
use crate::word::{Stamp, State};

impl Registry {
    pub(super) fn take_reports(&mut self, poller: &Poller, id: u32, serial: u32) {
        loop {
            let template = self
                .templates
                .get_mut(&id)
                .and_then(|template| template.running.as_mut());
            let Some(running) = template.filter(|running| running.serial() == serial) else {
                return;
            };
            let packet = match running.receive(&mut self.receiver) {
                Ok(Some(packet)) if !packet.bytes.is_empty() => packet,
                Ok(None) | Err(Error::Interrupted) => return,
                Ok(Some(_)) | Err(_) => {
                    // Its end closed: it is on its way out, and its exit comes next.
                    running.end_reports(poller);
                    return;
                }
            };
            match report_of(&packet.bytes) {
                Report::Ready | Report::HasExitHooks => {} // the latter is a service's report
                Report::Unfit { reason } => running.note_unfit(reason),
                Report::Forked { handle, pid } => {
                    running.note_reported(handle);
                    self.forked(poller, handle, pid);
                }
                Report::SpareForked { pid } => self.spare_forked(id, pid),
                Report::NotForked { handle, errno } => {
                    running.note_reported(handle);
                    self.services.remove(&handle.slot);
                    let text = not_forked("the template", errno).into_bytes();
                    self.report_not_started(handle.slot, Cause::NotStarted, text);
                }
            }
        }
    }

    pub(super) fn template_ended(&mut self, poller: &Poller, id: u32, serial: u32) {
        self.take_reports(poller, id, serial); // what it forked before it ended
        let Some(template) = self.templates.get_mut(&id) else {
            return;
        };
        let Some(running) = template
            .running
            .take_if(|running| running.serial() == serial)
        else {
            return;
        };
        let Some(Ended { how, code, .. }) = running.reap() else {
            template.running = Some(running);
            return;
        };
        let how = if how == Cause::Exit {
            "exit code"
        } else {
            "signal"
        };
        self.remove_template(poller, running, &format!("ended with {how} {code}"));
    }

    /// A template has closed its socket and its exit has not been seen; it is reaped with the
    /// orphans.
    pub(super) fn template_lost(&mut self, poller: &Poller, id: u32) {
        let running = self.templates.get(&id);
        let Some(serial) = running.and_then(|template| Some(template.running.as_ref()?.serial()))
        else {
            return;
        };
        self.take_reports(poller, id, serial);
        let running = self.templates.get_mut(&id);
        if let Some(running) = running.and_then(|template| template.running.take()) {
            running.kill();
            self.remove_template(poller, running, "closed its socket");
        }
    }

    /// Report the end of a template to the callers that wait for a service from it.
    fn remove_template(&mut self, poller: &Poller, running: Running, how: &str) {
        let remains = running.into_remains(poller);
        let (cause, text) = match remains.unfit {
            Some(reason) => (Cause::TemplateUnfit, reason),
            None => (Cause::TemplateDied, end_of_template(how, &remains.output)),
        };
        for handle in remains.pending {
            if let Some(service) = self.services.remove(&handle.slot) {
                let (cause, text) = match service.ending {
                    Some(cause) => (cause, remains.output.clone()),
                    None => (cause, text.clone()),
                };
                self.report_not_started(handle.slot, cause, text);
            }
        }
    }

    pub(super) fn service_ended(&mut self, poller: &Poller, slot: u32, serial: u32) {
        let service = self.services.get(&slot);
        if service.is_none_or(|service| service.serial != serial) || self.awaits_group(poller, slot)
        {
            return;
        }
        let Some(service) = self.services.get_mut(&slot) else {
            return;
        };
        let Some(status) = service.process.as_ref().and_then(Process::reap) else {
            return;
        };
        self.forget_copies(poller, slot, serial);
        let lease = self.lease_of(slot);
        let Some(service) = self.services.get_mut(&slot) else {
            return;
        };
        let death = service.death(status, lease);
        let update = service
            .output
            .final_update()
            .map(|(total, text)| Event::Written {
                handle: service.followed_by,
                total,
                text,
            });
        self.events.extend(update.map(|written| (written, None)));
        poller.remove(&service.output);
        if let Some(process) = &service.process {
            poller.remove(process);
        }
        self.events.push((Event::Died { slot, death }, None));
        self.services.remove(&slot);
    }

    /// End what is past its deadline.
    pub fn expire(&mut self, poller: &Poller, now: u64) {
        while let Some((kind, handle)) = self.deadlines.pop_due(now) {
            let ended = match kind {
                DeadlineKind::Start => self.expire_unanswered(handle, State::Starting),
                DeadlineKind::Reset => self.expire_unanswered(handle, State::Resetting),
                DeadlineKind::Idle => self.expire_idle(handle, now),
                DeadlineKind::Lifetime => self.expire_old(handle, now),
                DeadlineKind::Spare => {
                    self.fork_spare(handle);
                    None
                }
                DeadlineKind::ExitHooks => {
                    self.expire_exit(handle);
                    None
                }
                DeadlineKind::GroupExit => {
                    self.check_group(poller, handle);
                    None
                }
            };
            let Some(cause) = ended else {
                continue;
            };
            self.end_service(poller, handle.slot, cause);
            let service = self.services.get(&handle.slot);
            if service.is_some_and(|service| service.process.is_none()) {
                self.end_template_of(handle);
            }
        }
    }

    /// A service whose answer to a start or a reset is due: retired, unless it has answered in
    /// time and was not needed since; then it is idle.
    fn expire_unanswered(&self, handle: Handle, waiting: State) -> Option<Cause> {
        let service = self.services.get(&handle.slot)?;
        let cell = self.page.cell(handle.slot);
        let word = &cell.word;
        let seen = Stamp::load(word);
        if seen.generation != handle.generation || seen.state != waiting {
            return None;
        }
        if service.has_answered(was_left(cell)) {
            let _ = cell.since_ms.compare_exchange(
                0,
                now_ms(),
                std::sync::atomic::Ordering::AcqRel,
                std::sync::atomic::Ordering::Acquire,
            ); // idle from now on, where its caller has not let go of it
            seen.settle(word);
            return None;
        }
        let retired = seen.expire(word);
        retired.then_some(if waiting == State::Starting {
            Cause::StartDeadline
        } else {
            Cause::ResetDeadline
        })
    }

    /// A service that may have been idle for too long; retired where enough others of its key stay.
    fn expire_idle(&mut self, handle: Handle, now: u64) -> Option<Cause> {
        let service = self.service_since(handle)?;
        let deadlines = service.deadlines;
        let cell = self.page.cell(handle.slot);
        let seen = Stamp::load(&cell.word);
        let since = cell.since_ms.load(std::sync::atomic::Ordering::Acquire);
        let idle = seen.state == State::Idle;
        let due = if idle { since.min(now) } else { now } + deadlines.idle_ms;
        let keep = self.keep.get(&deadlines.key).copied().unwrap_or(0) as usize;
        if due > now || self.idle_of(deadlines.key) <= keep {
            let next = if due > now {
                due
            } else {
                now + deadlines.idle_ms
            };
            self.deadlines.push(next, DeadlineKind::Idle, handle);
            return None;
        }
        seen.expire(&cell.word).then_some(Cause::IdleTimeout)
    }

    /// A service that has lived its time; one that is in use is ended by the client when it comes back.
    fn expire_old(&mut self, handle: Handle, now: u64) -> Option<Cause> {
        self.service_since(handle)?;
        let word = &self.page.cell(handle.slot).word;
        let seen = Stamp::load(word);
        let retired = seen.state == State::Idle && seen.expire(word);
        if !retired {
            let next = now + LIFETIME_LOOK_MS;
            self.deadlines.push(next, DeadlineKind::Lifetime, handle);
        }
        retired.then_some(Cause::Lifetime)
    }

    /// The service that a handle was given for when it was started, not a later one in its slot.
    pub(super) fn service_since(&self, handle: Handle) -> Option<&Service> {
        let service = self.services.get(&handle.slot)?;
        (service.handle == handle).then_some(service)
    }

    /// Services of a key that are ready and not lent, whether or not their answer was read.
    fn idle_of(&self, key: u32) -> usize {
        let of_key = |service: &&Service| service.deadlines.key == key;
        let is_ready = |service: &&Service| {
            let cell = self.page.cell(service.handle.slot);
            match Stamp::load(&cell.word).state {
                State::Idle => true,
                State::Starting | State::Resetting => service.has_answered(was_left(cell)),
                State::Free | State::Leased | State::Retired => false,
            }
        };
        self.services
            .values()
            .filter(of_key)
            .filter(is_ready)
            .count()
    }

    /// End the template of a service that was not forked in time: it is stopped, or hangs in its imports, and would hang
    /// for ever.
    fn end_template_of(&self, handle: Handle) {
        let running = self
            .templates
            .values()
            .filter_map(|template| template.running.as_ref());
        for running in running.filter(|running| running.owes(handle)) {
            running.kill();
        }
    }

    /// End everything; services run their exit hooks, unless the client is gone.
    pub fn end_all(&mut self, poller: &Poller, orderly: bool) {
        let slots: Vec<u32> = self.services.keys().copied().collect();
        for slot in slots {
            if orderly {
                self.end_service(poller, slot, Cause::Closed);
            } else if let Some(service) = self.services.get_mut(&slot) {
                service.exit_by = None;
                service.end(Cause::Closed);
            }
        }
        // What has no process yet will not get one: its template goes too.
        self.services.retain(|_, service| service.process.is_some());
        for template in self.templates.values() {
            if let Some(running) = &template.running {
                running.end();
            }
        }
    }
}

/// Whether no caller waits for the answer of a service: its last caller has let go of it.
fn was_left(cell: &Cell) -> bool {
    cell.since_ms.load(std::sync::atomic::Ordering::Acquire) > 0
}

fn end_of_template(how: &str, output: &[u8]) -> Vec<u8> {
    let mut text = format!("the template {how}").into_bytes();
    if !output.is_empty() {
        text.extend(b"; it wrote:\n");
        text.extend(output);
    }
    text
}

/// Why a process could not make another, and what to do.
pub fn not_forked(who: &str, errno: i32) -> String {
    let reason = std::io::Error::from_raw_os_error(errno);
    let next = match rustix::io::Errno::from_raw_os_error(errno) {
        rustix::io::Errno::MFILE => "; raise ulimit -n, or open fewer files there",
        rustix::io::Errno::AGAIN => {
            "; raise ulimit -u, or processes of its limits (a copy is first a process of its original), \
             or keep fewer services at once"
        }
        _ => "",
    };
    format!("{who} could not fork: {reason}{next}")
}

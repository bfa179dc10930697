//! How a process leaves the registry: told by its template, by its exit, or by a deadline.

use rustix::net::RecvFlags;
use rustix::process::Pid;

use super::Registry;
use crate::death::Cause;
use crate::error::Error;
use crate::keeper::process::Process;
use crate::keeper::template::Running;
use crate::keeper::{Poller, deadline, report_of};
use crate::wire::{Event, Handle, Report};
use crate::word::{Stamp, State};

impl Registry {
    pub(super) fn take_reports(&mut self, poller: &Poller, id: u32, serial: u32) {
        loop {
            let template = self
                .templates
                .get_mut(&id)
                .and_then(|template| template.running.as_mut());
            let Some(running) = template.filter(|running| running.serial == serial) else {
                return;
            };
            let packet = match self.receiver.receive(&running.socket, RecvFlags::DONTWAIT) {
                Ok(Some(packet)) if !packet.bytes.is_empty() => packet,
                Ok(None) | Err(Error::Interrupted) => return,
                Ok(Some(_)) | Err(_) => {
                    // Its end closed: it is on its way out, and its exit comes next.
                    poller.remove(&running.socket);
                    running.process.kill();
                    return;
                }
            };
            match report_of(&packet.bytes) {
                Report::Ready => {}
                Report::Unfit { reason } => running.unfit = Some(reason),
                Report::Forked { handle, pid } => {
                    running.pending.remove(&handle);
                    let done = Pid::from_raw(pid)
                        .ok_or(Error::Malformed {
                            what: "a process id of 0",
                        })
                        .and_then(|pid| self.started(poller, handle, pid));
                    self.tell_failure(handle, done);
                }
                Report::NotForked { handle, errno } => {
                    running.pending.remove(&handle);
                    let errno = std::io::Error::from_raw_os_error(errno);
                    self.services.remove(&handle.slot);
                    let text = format!("the template could not fork: {errno}").into_bytes();
                    self.tell_not_started(handle.slot, Cause::NotStarted, text);
                }
            }
        }
    }

    pub(super) fn template_ended(&mut self, poller: &Poller, id: u32, serial: u32) {
        self.take_reports(poller, id, serial); // what it forked before it ended
        let Some(template) = self.templates.get_mut(&id) else {
            return;
        };
        let Some(running) = template.running.take_if(|running| running.serial == serial) else {
            return;
        };
        let Some((how, code)) = running.process.reap() else {
            template.running = Some(running);
            return;
        };
        let how = if how == Cause::Exit {
            "exit code"
        } else {
            "signal"
        };
        self.bury_template(poller, running, &format!("ended with {how} {code}"));
    }

    /// A template has closed its socket and its exit has not been seen; it is reaped with the
    /// orphans.
    pub(super) fn template_lost(&mut self, poller: &Poller, id: u32) {
        let running = self.templates.get(&id);
        let Some(serial) = running.and_then(|template| Some(template.running.as_ref()?.serial))
        else {
            return;
        };
        self.take_reports(poller, id, serial);
        let running = self.templates.get_mut(&id);
        if let Some(running) = running.and_then(|template| template.running.take()) {
            running.process.kill();
            self.bury_template(poller, running, "closed its socket");
        }
    }

    /// Tell the end of a template to whoever waits for a service from it.
    fn bury_template(&mut self, poller: &Poller, running: Running, how: &str) {
        let mut output = running.output;
        poller.remove(&running.socket);
        poller.remove(&running.process);
        poller.remove(&output);
        output.drain();
        let (cause, text) = match running.unfit {
            Some(reason) => (Cause::TemplateUnfit, reason),
            None => (Cause::TemplateDied, end_of_template(how, &output.text())),
        };
        for handle in running.pending {
            if let Some(service) = self.services.remove(&handle.slot) {
                let (cause, text) = match service.ending {
                    Some(cause) => (cause, output.text()),
                    None => (cause, text.clone()),
                };
                self.tell_not_started(handle.slot, cause, text);
            }
        }
    }

    pub(super) fn service_ended(&mut self, poller: &Poller, slot: u32, serial: u32) {
        let Some(service) = self
            .services
            .get_mut(&slot)
            .filter(|service| service.serial == serial)
        else {
            return;
        };
        let Some(status) = service.process.as_ref().and_then(Process::reap) else {
            return;
        };
        self.forget_copies(poller, slot, serial);
        let Some(service) = self.services.get_mut(&slot) else {
            return;
        };
        let death = service.death(status);
        poller.remove(&service.output);
        if let Some(process) = &service.process {
            poller.remove(process);
        }
        self.events.push((Event::Died { slot, death }, None));
        self.services.remove(&slot);
    }

    /// End what is past its deadline.
    pub fn expire(&mut self, now: u64) {
        while let Some((kind, handle)) = self.deadlines.pop_due(now) {
            let Some(service) = self.services.get_mut(&handle.slot) else {
                continue;
            };
            let cell = self.page.cell(handle.slot);
            let seen = Stamp::load(&cell.word);
            let (state, cause) = match kind {
                deadline::Kind::Start => (State::Starting, Cause::StartDeadline),
                deadline::Kind::Reset => (State::Resetting, Cause::ResetDeadline),
                deadline::Kind::Idle => {
                    if service.handle != handle {
                        continue;
                    }
                    let since = cell.since_ms.load(std::sync::atomic::Ordering::Acquire);
                    let due = if seen.state == State::Idle {
                        since.min(now)
                    } else {
                        now
                    } + service.deadlines.idle_ms;
                    if due > now {
                        self.deadlines.push(due, kind, handle);
                        continue;
                    }
                    (State::Idle, Cause::IdleTimeout)
                }
            };
            let fits = kind == deadline::Kind::Idle || seen.generation == handle.generation;
            if !fits || seen.state != state {
                continue;
            }
            // It has answered in time, and nobody has needed it since: it is idle.
            let answered = kind != deadline::Kind::Idle && service.has_answered();
            let to = if answered {
                State::Idle
            } else {
                State::Retired
            };
            if seen.swap(&cell.word, Stamp::new(to, seen.generation)) && !answered {
                service.end(cause);
                if service.process.is_none() {
                    self.end_template_of(handle);
                }
            }
        }
    }

    /// End the template that owes a service: it is stopped, or hangs in its imports, and would owe
    /// it for ever.
    fn end_template_of(&self, handle: Handle) {
        let running = self
            .templates
            .values()
            .filter_map(|template| template.running.as_ref());
        for running in running.filter(|running| running.pending.contains(&handle)) {
            running.process.kill();
        }
    }

    /// End everything.
    pub fn end_all(&mut self, cause: Cause) {
        for service in self.services.values_mut() {
            service.end(cause);
        }
        // What has no process yet will not get one: its template goes too.
        self.services.retain(|_, service| service.process.is_some());
        for template in self.templates.values() {
            if let Some(running) = &template.running {
                running.process.kill();
            }
        }
    }
}

fn end_of_template(how: &str, output: &[u8]) -> Vec<u8> {
    let mut text = format!("the template {how}").into_bytes();
    if !output.is_empty() {
        text.extend(b"; it wrote:\n");
        text.extend(output);
    }
    text
}

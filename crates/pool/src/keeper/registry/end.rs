//! How a process leaves the registry: by its exit, by a deadline, or with the client.
//!
//! **The orderly end of a service**: it runs its close hook and its exit handlers, within `EXIT_HOOKS_MS`. A service
//! that has any reports so once over its keeper link, which is read when the service is to end; one without hooks is
//! killed at once. Its end begins with the end of its connection. Then its process exits, and what is left of its group,
//! such as a resource tracker of multiprocessing that removes shared memory, has the rest of the time. The leader is not
//! reaped until then, so that the group keeps its number.

use super::Registry;
use super::orphans::has_members;
use crate::clock::now_ms;
use crate::death::Cause;
use crate::keeper::deadline::DeadlineKind;
use crate::keeper::process::Ended;
use crate::keeper::service::Service;
use crate::keeper::source::Poller;
use crate::keeper::template::{Running, Template};
use crate::limit::{EXIT_HOOKS_MS, GROUP_CHECK_MS};
use crate::wire::{Event, Handle};

impl Registry {
    pub(super) fn template_ended(&mut self, poller: &Poller, id: u32, serial: u32) {
        self.take_reports(poller, id, serial); // what it forked before it ended
        let template = self.templates.get(id).ok();
        let ended = template.and_then(|template| template.take_ended(serial));
        let Some((running, Ended { how, code, .. })) = ended else {
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
        let running = self.templates.running(id);
        let Some(serial) = running.map(|running| running.serial()) else {
            return;
        };
        self.take_reports(poller, id, serial);
        let template = self.templates.get(id).ok();
        if let Some(running) = template.and_then(Template::take_running) {
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
            if let Some(service) = self.services.remove(handle.slot) {
                let (cause, text) = match service.ending() {
                    Some(cause) => (cause, remains.output.clone()),
                    None => (cause, text.clone()),
                };
                self.events.push_not_started(handle.slot, cause, text);
            }
        }
    }

    /// The process of a service is said to have exited: reap it and report its death, unless its group has time left.
    pub(super) fn service_ended(&mut self, poller: &Poller, slot: u32, serial: u32) {
        let known = self.services.of_serial(slot, serial).is_some();
        if !known || self.awaits_group(poller, slot) {
            return;
        }
        let Some(status) = self.services.get(slot).and_then(Service::reap) else {
            return;
        };
        self.give_up_copies(poller, slot, serial);
        let lease = self.leases.generation(slot);
        let Some(mut service) = self.services.remove(slot) else {
            return;
        };
        let death = service.death(status, lease);
        if let Some(written) = service.last_written() {
            self.events.push(written);
        }
        service.unwatch(poller);
        self.events.push(Event::Died { slot, death });
    }

    /// A service has ended: the copies that it has not reported will not come.
    fn give_up_copies(&mut self, poller: &Poller, slot: u32, serial: u32) {
        self.take_copies(poller, slot, serial);
        let Some(service) = self.services.get_mut(slot) else {
            return;
        };
        for copy in service.give_up_copies(poller) {
            self.not_copied(copy, "the service to be copied ended");
        }
    }

    /// End a service that was retired at a deadline.
    pub(super) fn end_retired(&mut self, poller: &Poller, handle: Handle, cause: Cause) {
        self.end_service(poller, handle.slot, cause);
        let service = self.services.get(handle.slot);
        if service.is_some_and(|service| service.pid().is_none()) {
            self.templates.end_owing(handle);
        }
    }

    /// End a service: in order where it has asked for that and the cause allows it, at once otherwise.
    pub(super) fn end_service(&mut self, poller: &Poller, slot: u32, cause: Cause) {
        let Some(serial) = self.services.get(slot).map(Service::serial) else {
            return;
        };
        if cause.is_orderly() {
            self.take_copies(poller, slot, serial); // it may have said that it has something to do
        }
        let Some(service) = self.services.get_mut(slot) else {
            return;
        };
        if cause.is_orderly() && service.is_exiting() {
            return; // its end has begun
        }
        if cause.is_orderly() && service.has_exit_hooks() {
            let until = now_ms() + EXIT_HOOKS_MS;
            service.begin_exit(cause, until);
            self.deadlines
                .push(until, DeadlineKind::ExitHooks, service.handle());
        } else {
            service.end_at_once(cause);
        }
    }

    /// The time of a service for its exit hooks is over.
    pub(super) fn finish_exit(&mut self, handle: Handle) {
        if let Some(service) = self.services.since_mut(handle) {
            service.finish_exit();
        }
    }

    /// Whether a process that has exited leaves others that have time to end by themselves; they are looked at again.
    fn awaits_group(&mut self, poller: &Poller, slot: u32) -> bool {
        let now = now_ms();
        let Some(service) = self.services.get(slot) else {
            return false;
        };
        let (Some(until), Some(leader)) = (service.exits_until(now), service.pid()) else {
            return false;
        };
        if service.is_branching() || !has_members(leader) {
            return false;
        }
        service.unwatch_exit(poller);
        let next = until.min(now + GROUP_CHECK_MS);
        self.deadlines
            .push(next, DeadlineKind::GroupExit, service.handle());
        true
    }

    /// Look again at a service whose process has exited.
    pub(super) fn check_group(&mut self, poller: &Poller, handle: Handle) {
        if let Some(serial) = self.services.since(handle).map(Service::serial) {
            self.service_ended(poller, handle.slot, serial);
        }
    }

    /// End everything; services run their exit hooks, unless the client is gone.
    pub fn end_all(&mut self, poller: &Poller, orderly: bool) {
        for slot in self.services.slots() {
            if orderly {
                self.end_service(poller, slot, Cause::Closed);
            } else if let Some(service) = self.services.get_mut(slot) {
                service.end_at_once(Cause::Closed);
            }
        }
        // What has no process yet will not get one: its template goes too.
        self.services.forget_unstarted();
        self.templates.end_all();
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

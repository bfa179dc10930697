//! Parents and their children: requests that a run has submitted as parts of its own work.
//!
//! A child is known by its parent and the number of the call that submitted it. The parent's next run makes the same
//! calls, and finds its children instead of submitting them again. A family is kept until its parent has ended; then
//! nobody asks for a child by its number any more. The concept is `docs/concepts/executor/children.md`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::error::Refusal;
use crate::id::RequestId;
use crate::limit::{CHILDREN_MAX, DEPTH_MAX};
use crate::machine::entry::Entry;
use crate::machine::parts::Parts;
use crate::machine::register::IdMap;
use crate::machine::runs::{Cancelled, Runs, run_of};
use crate::op::{Act, KnownChild, Op};
use crate::request::{Child, Millis, Options, Slot, Submission};

/// A child, as its parent's next run asks for it.
#[derive(Debug)]
struct Known {
    id: RequestId,
    /// The index of its name.
    name: u32,
    digest: u64,
}

/// The children of each unfinished request, by the number of their call.
#[derive(Debug, Default)]
pub(super) struct Families(IdMap<HashMap<u32, Known>>);

impl Families {
    /// The child that a submission is already, which its parent submitted in an earlier run.
    ///
    /// # Errors
    /// `invalid`: it was another one.
    pub(super) fn known(
        &self,
        parts: &Parts,
        submission: &Submission,
    ) -> Result<Option<RequestId>, Box<Refusal>> {
        let own_key = submission.options.idempotency.is_some();
        let child = child_of(&submission.options).filter(|_| !own_key);
        let Some((parent, child)) = child else {
            return Ok(None);
        };
        let family = self.0.get(&parent);
        let Some(known) = family.and_then(|family| family.get(&child.call)) else {
            return Ok(None);
        };
        let name = parts.queues.name(known.name).text();
        if *name == submission.name && known.digest == child.digest {
            return Ok(Some(known.id));
        }
        let was = if *name == submission.name {
            format!("{name} with other arguments")
        } else {
            name.to_string()
        };
        Err(Box::new(Refusal::invalid(
            &format!("call {} of request {parent}", child.call),
            &format!(
                "{was}, which its earlier run submitted there as {}",
                known.id
            ),
            &submission.name,
            "a request that runs again submits the same children in the same order; give one that \
             differs an idempotency key of its own",
        )))
    }

    /// Whether a submission, if it is a child, is made by the current run of its parent, which is not being ended.
    ///
    /// # Errors
    /// `invalid`: it is not.
    pub(super) fn check_parent(parts: &Parts, submission: &Submission) -> Result<(), Box<Refusal>> {
        let Some((id, child)) = child_of(&submission.options) else {
            return Ok(());
        };
        let parent = parts.register.by_id(id);
        let makes_it = |entry: &Entry| {
            entry.run().is_some_and(|run| run.stop.is_none()) && entry.attempts() == child.attempt
        };
        if parent.is_some_and(makes_it) {
            return Ok(());
        }
        Err(Box::new(Refusal::invalid(
            &format!("the parent of {}", submission.name),
            "a request in a run that goes on and is not being ended",
            &format!("run {} of {id}", child.attempt),
            "submit it without a parent",
        )))
    }

    /// Whether a child may wait for a request that was found by its idempotency key.
    ///
    /// # Errors
    /// `invalid`: that one is above the child, or needs a key that is held above.
    pub(super) fn check_found(
        parts: &Parts,
        submission: &Submission,
        found: RequestId,
    ) -> Result<(), Box<Refusal>> {
        let parent = submission.options.parent_of_child();
        let Some(parent) = parent.and_then(|id| parts.register.by_id(id)) else {
            return Ok(());
        };
        if above(parts, parent).any(|entry| entry.id() == found) {
            return Err(Box::new(Refusal::invalid(
                &submission.name,
                "an idempotency key of a request that does not wait for it",
                &format!("that of {found}, which it is a child of"),
                "give it another key",
            )));
        }
        match parts.register.by_id(found) {
            // What runs has its key.
            Some(entry) if entry.run().is_none() => {
                check_ancestors(parts, parent, &submission.name, entry.options())
            }
            _ => Ok(()),
        }
    }

    /// Makes a submission the child of its parent, whose submitter and urgency it gets.
    ///
    /// # Errors
    /// `invalid`: the child would wait for what waits for it. `limit`: `children_max`, `depth_max`.
    pub(super) fn adopt(parts: &Parts, submission: &mut Submission) -> Result<(), Box<Refusal>> {
        let Some((id, child)) = child_of(&submission.options) else {
            return Ok(());
        };
        let Some(parent) = parts.register.by_id(id) else {
            return Ok(());
        };
        let depth = parent.options().depth() + 1;
        check_size(id, child, depth)?;
        check_ancestors(parts, parent, &submission.name, &submission.options)?;
        let urgency = parent.options().priority;
        submission.submitter = Arc::clone(&parent.submission().submitter);
        let options = Arc::make_mut(&mut submission.options);
        options.child = Some(Child { depth, ..child });
        options.priority = options.priority.max(urgency);
        Ok(())
    }

    /// Notes a request that enters the register, if it is a child of one that is there.
    pub(super) fn note(&mut self, parts: &Parts, options: &Options, id: RequestId, name: u32) {
        let Some((parent, child)) = child_of(options) else {
            return;
        };
        let digest = child.digest;
        self.add(parts, parent, child.call, Known { id, name, digest });
    }

    /// Remembers a child that an earlier server has accepted.
    pub(super) fn remember(&mut self, parts: &mut Parts, one: &KnownChild) {
        let name = parts.queues.index_of(&one.name);
        let (id, digest) = (one.id, one.digest);
        self.add(parts, one.parent, one.call, Known { id, name, digest });
    }

    fn add(&mut self, parts: &Parts, parent: RequestId, call: u32, known: Known) {
        if parts.register.key(parent).is_some() {
            self.0.entry(parent).or_default().insert(call, known);
        }
    }

    /// A child was not accepted.
    pub(super) fn withdraw(&mut self, options: &Options, id: RequestId) {
        let Some((parent, child)) = child_of(options) else {
            return;
        };
        if let Some(family) = self.0.get_mut(&parent)
            && family.get(&child.call).is_some_and(|known| known.id == id)
        {
            family.remove(&child.call);
        }
    }

    /// The children of a request, ended ones included, in the order of their calls.
    pub(super) fn of(&self, parent: RequestId) -> Vec<RequestId> {
        let mut family: Vec<_> = self.0.get(&parent).into_iter().flatten().collect();
        family.sort_unstable_by_key(|(call, _)| **call);
        family.into_iter().map(|(_, known)| known.id).collect()
    }

    /// A request has ended. `true`: it had children.
    pub(super) fn forget(&mut self, parent: RequestId) -> bool {
        !self.0.is_empty() && self.0.remove(&parent).is_some()
    }
}

fn child_of(options: &Options) -> Option<(RequestId, Child)> {
    Some((options.parent?, options.child?))
}

fn check_size(parent: RequestId, child: Child, depth: u32) -> Result<(), Box<Refusal>> {
    let object = format!("request {parent}");
    let refuse = |limit, most: u32, value: u32, next| {
        let (most, value) = (u64::from(most), u64::from(value));
        Err(Box::new(Refusal::limit(&object, limit, most, value, next)))
    };
    if child.call >= CHILDREN_MAX {
        let next = "give a child more of the work, or have children submit their own";
        return refuse("children_max", CHILDREN_MAX, child.call + 1, next);
    }
    if depth > DEPTH_MAX {
        let next = "submit without a parent what nobody waits for";
        return refuse("depth_max", DEPTH_MAX, depth, next);
    }
    Ok(())
}

/// A request and all that are above it, as far as they have not ended.
fn above<'a>(parts: &'a Parts, parent: &'a Entry) -> impl Iterator<Item = &'a Entry> {
    std::iter::successors(Some(parent), |entry| {
        parts.register.by_id(entry.options().parent_of_child()?)
    })
}

/// Refuses a child with these options that would wait for a request above it, which waits for the child.
fn check_ancestors(
    parts: &Parts,
    parent: &Entry,
    name: &str,
    options: &Options,
) -> Result<(), Box<Refusal>> {
    let before = all_before(parts, options);
    let mut needing = 0;
    for entry in above(parts, parent) {
        let id = entry.id();
        if before.contains(&id) {
            return Err(Box::new(Refusal::invalid(
                name,
                "to come after requests that do not wait for it",
                &format!("{id}, which it is a child of"),
                "leave it out of after=",
            )));
        }
        // One that has failed and runs again takes its key before it waits for the child.
        needing += u32::from(options.key.is_some() && entry.options().key == options.key);
        if needing >= options.key_at_once.max(1) {
            let key = options.key.as_deref().unwrap_or_default();
            return Err(Box::new(Refusal::invalid(
                &format!("{name}, a child of request {}", parent.id()),
                "a key that no request above it holds",
                &format!("{key:?}, which {id} ({}) holds", entry.submission().name),
                "give the child another key, or do its work in the request that holds it",
            )));
        }
    }
    Ok(())
}

/// The unfinished requests that one with these options comes after, and those that they come after.
fn all_before(parts: &Parts, options: &Options) -> HashSet<RequestId> {
    let mut found = HashSet::new();
    let mut next = options.after.clone();
    while let Some(id) = next.pop() {
        if let Some(entry) = parts.register.by_id(id)
            && found.insert(id)
        {
            next.extend_from_slice(&entry.options().after);
        }
    }
    found
}

/// Cancels the unfinished children of requests that did not succeed, and theirs: in a loop, so that a deep tree
/// cannot exhaust the stack.
pub(in crate::machine) fn cancel_children(runs: &mut Runs, parts: &mut Parts, now: Millis) {
    while let Some(child) = runs.orphaned.pop() {
        let cancelled = runs.cancel(parts, now, child);
        if !matches!(cancelled, Cancelled::Now | Cancelled::Asked) {
            continue;
        }
        let key = parts.register.key(child);
        let Some(entry) = key.and_then(|key| parts.register.get_mut(key)) else {
            continue;
        };
        let Some(parent) = entry.options().parent else {
            continue;
        };
        entry.note(now, format!("cancelled, since its parent {parent} ends"));
        if entry.first_cancel() {
            let (act, by) = (Act::Cancel, format!("its parent {parent}").into());
            runs.note(parts, now, Op::Acted { id: child, act, by });
        }
    }
}

/// A worker says that a run waits for its children, or goes on; see `Machine::waits`. `false`: nothing has changed.
pub(in crate::machine) fn waits(
    parts: &mut Parts,
    now: Millis,
    slot: Slot,
    (id, attempt): (RequestId, u32),
    waits: bool,
) -> bool {
    let Some((key, _)) = run_of(parts, slot, id, attempt) else {
        return false;
    };
    if waits {
        parts.begin_wait(now, key)
    } else {
        parts.end_wait(key)
    }
}

//! The requests that have an idempotency key, ended ones included.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::Refusal;
use crate::id::RequestId;
use crate::machine::entry::Entry;
use crate::machine::queues::Queues;
use crate::machine::register::Register;
use crate::request::{Options, Submission};

/// By idempotency key: the request, and the index of its name.
#[derive(Debug, Default)]
pub(super) struct IdempotencyKeys(HashMap<Arc<str>, (RequestId, u32)>);

impl IdempotencyKeys {
    /// The request that has the key of a submission.
    ///
    /// # Errors
    /// `invalid`: it is of another name.
    pub(super) fn known(
        &self,
        queues: &Queues,
        submission: &Submission,
    ) -> Result<Option<RequestId>, Box<Refusal>> {
        let Some(key) = &submission.options.idempotency else {
            return Ok(None);
        };
        let Some((id, of)) = self.0.get(key) else {
            return Ok(None);
        };
        let of = queues.name(*of).text();
        if *of == submission.name {
            Ok(Some(*id))
        } else {
            Err(Box::new(key_refusal(key, *id, of, &submission.name)))
        }
    }

    /// Notes the key of a request that enters the register.
    pub(super) fn note(&mut self, options: &Options, id: RequestId, name: u32) {
        if let Some(key) = &options.idempotency {
            self.0.insert(Arc::clone(key), (id, name));
        }
    }

    /// Remembers the key of an ended request that is still in the store; an unfinished one keeps it.
    pub(super) fn remember(&mut self, key: Arc<str>, id: RequestId, name: u32) {
        self.0.entry(key).or_insert((id, name));
    }

    /// The request with this key was pruned: the key is free, unless an unfinished request has it.
    pub(super) fn forget_pruned(&mut self, register: &Register, key: &str) {
        if let Some((id, _)) = self.0.get(key)
            && register.key(*id).is_none()
        {
            self.0.remove(key);
        }
    }

    /// Nothing is kept of a request: its key is free.
    pub(super) fn forget(&mut self, entry: &Entry) {
        if let Some(key) = &entry.options().idempotency
            && self.0.get(key).is_some_and(|(id, _)| *id == entry.id())
        {
            self.0.remove(key);
        }
    }
}

/// The refusal of a key that a request of another name has: the submitter would get a result of another type.
fn key_refusal(key: &str, id: RequestId, of: &str, name: &str) -> Refusal {
    Refusal {
        code: "invalid",
        message: format!(
            "{name}: the idempotency key {key:?} is that of request {id}, which is of {of}"
        ),
        object: name.into(),
        limit: String::new(),
        value: key.into(),
        next: format!("put the name into the key, such as \"{name}:{key}\""),
    }
}

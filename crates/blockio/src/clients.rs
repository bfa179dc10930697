//! The clients of batches that were handed over, which are notified of their ends.
use std::collections::HashMap;
use std::sync::Arc;

use crate::completion::{Completions, Finished};
use crate::flight::Keeper;

/// The client of a batch.
struct Client {
    completions: Arc<Completions>,
    operations: u64,
}

/// The clients of one engine, by the tickets of their batches.
#[derive(Default)]
pub(crate) struct Clients(HashMap<u64, Client>);

/// An end, to be sent to its client outside of any lock.
pub(crate) struct Notice {
    completions: Arc<Completions>,
    finished: Finished,
    /// Operations of the batch, for statistics.
    pub(crate) operations: u64,
}

impl Clients {
    /// The end of the batch `ticket` will be sent to `completions`.
    pub(crate) fn enter(&mut self, ticket: u64, completions: &Arc<Completions>, operations: usize) {
        let client = Client {
            completions: Arc::clone(completions),
            operations: operations as u64,
        };
        let before = self.0.insert(ticket, client);
        debug_assert!(before.is_none(), "two batches have the ticket {ticket}");
    }

    /// The batch was refused after all, and its client knows.
    pub(crate) fn forget(&mut self, ticket: u64) {
        self.0.remove(&ticket);
    }

    /// The batch has ended.
    pub(crate) fn leave(&mut self, ticket: u64, keeper: Option<Keeper>) -> Option<Notice> {
        let Client {
            completions,
            operations,
        } = self.0.remove(&ticket)?;
        Some(Notice {
            completions,
            finished: Finished { ticket, keeper },
            operations,
        })
    }
}

impl Notice {
    /// Notify the client. Where it has closed its queue of completions, the keeper is dropped here.
    ///
    /// That queue has to have room for as many batches as its client has in flight.
    pub(crate) fn send(self) {
        if let Err(refused) = self.completions.push(self.finished) {
            drop(refused.into_item());
        }
    }
}

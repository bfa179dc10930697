//! The values of a push: received completely, then applied.
use super::{Peer, Phase, Step};
use crate::error::Error;
use crate::requester::Rows;
use crate::responder::answers::Body;
use crate::sys::span::Span;
use crate::table::{Changed, Found, Table};
use crate::wire::Entry;

impl Peer {
    pub(super) fn values(&mut self, slot: u32, at: usize, staged: bool) -> Step {
        let Some(asked) = self.asked.get(at) else {
            self.phase = Phase::Header;
            self.answers.opened(slot);
            return Step::Again;
        };
        if staged || self.inbox.bytes().len() as u64 >= asked.bytes {
            return Step::Apply;
        }
        self.stage(asked.bytes);
        if let Phase::Values { staged, .. } = &mut self.phase {
            *staged = true;
        }
        Step::Again
    }

    /// The memory that the received push will change, and whether answers read it; `changed` is set if they do.
    pub(in crate::responder) fn changes<K>(
        &self,
        table: &Table<K>,
        changed: &mut Changed,
    ) -> (Span, bool) {
        const NOTHING: (Span, bool) = (Span::EMPTY, false);
        let Phase::Values { slot, at, .. } = self.phase else {
            return NOTHING;
        };
        let asked = &self.asked[at];
        let Found::Live(tensor) = table.find(asked.entry.key()) else {
            return NOTHING;
        };
        if tensor.file.is_some() {
            return NOTHING;
        }
        let Ok((_, rows)) = self.resolve(slot, asked, table) else {
            return NOTHING;
        };
        let is_read = table.storages.has_readers(tensor.storage);
        if is_read {
            changed.set(tensor.storage, (tensor.memory, tensor.row_bytes), rows);
        }
        match rows {
            Rows::Slice { first, count } => (tensor.rows_at(first, count), is_read),
            Rows::Indices(_) => (tensor.memory, is_read),
        }
    }

    /// Apply the received push. Unsent answers that read its rows were copied before.
    pub(in crate::responder) fn apply<K>(&mut self, table: &mut Table<K>) {
        let Phase::Values {
            slot,
            operation,
            at,
            staged,
        } = self.phase
        else {
            return;
        };
        let asked = self.asked[at];
        let bytes = usize::try_from(asked.bytes).expect("bounded by the grant");
        let values = if staged {
            &self.staging[..bytes]
        } else {
            &self.inbox.bytes()[..bytes]
        };
        let values = Span::sending(values);
        let verdict = match self.resolve(slot, &asked, table) {
            Ok((tensor, _)) if tensor.file.is_some() => Err(Error::ReadOnly {
                tensor: asked.entry.tensor,
            }),
            Ok((tensor, rows)) if tensor.can(operation) => Ok(rows),
            Ok(_) => Err(cannot_add(&asked.entry)),
            Err(error) => Err(error),
        };
        let (version, body) = match verdict {
            Ok(rows) => (
                table.write(asked.entry.tensor, rows, operation, values),
                Body::Done,
            ),
            Err(error) => (0, Body::Refusal(Box::new(error))),
        };
        let tag = asked.entry.tag;
        self.answers
            .add(slot, tag, version, 0, body, &mut table.storages);
        if !staged {
            self.inbox.consume(bytes);
        }
        self.phase = Phase::Values {
            slot,
            operation,
            at: at + 1,
            staged: false,
        };
    }
}

fn cannot_add(entry: &Entry) -> Error {
    Error::Config {
        setting: "the operation \"add\" on tensor",
        value: u64::from(entry.tensor),
        advice: "its dtype has no addition; use \"set\"",
    }
}

//! Requests without entries: look-ups, liveness probes, cancels.
use super::{Peer, Phase, Step};
use crate::error::Error;
use crate::names::Unknown;
use crate::names::frame::{TAG_BYTES, answers_cost, decode_names, encode_answer};
use crate::responder::answers::Body;
use crate::table::Table;
use crate::wire::{RequestHeader, u32_at};

/// How many unknown names of a request get similar names: the search costs time, and more are a mistake or an attack.
const NEAREST_MAX: usize = 2;

impl Peer {
    pub(super) fn names<K>(
        &mut self,
        header: RequestHeader,
        table: &mut Table<K>,
    ) -> Result<Step, Error> {
        let bytes = usize::try_from(header.bytes).expect("bounded by the longest list");
        let list = &self.staging[..bytes];
        let tag = u32_at(list, 0);
        let names = decode_names(&list[TAG_BYTES..], header.entries);
        let names = names.map_err(|what| self.violation(what))?;
        if header.entries == 0 {
            if !self.answers.probe(tag) {
                return Err(self.violation("a second liveness probe before the first was answered"));
            }
        } else {
            let (mut answer, mut unknown) = (Vec::new(), 0);
            for name in names {
                let meaning = table.find_name(name).ok_or_else(|| {
                    unknown += 1;
                    match unknown {
                        ..=NEAREST_MAX => table.unknown(name),
                        _ => Unknown::default(),
                    }
                });
                encode_answer(&meaning, &mut answer);
            }
            self.answers.open(header.slot, 1);
            self.answers.add(
                header.slot,
                tag,
                0,
                answers_cost(header.entries, self.grant_bytes),
                Body::Owned(answer),
                &mut table.storages,
            );
            self.answers.opened(header.slot);
        }
        self.phase = Phase::Header;
        Ok(Step::Again)
    }

    pub(super) fn cancel<K>(&mut self, header: RequestHeader, table: &mut Table<K>) -> Step {
        let count = 4 * usize::from(header.entries);
        if self.inbox.bytes().len() < count {
            return Step::Wait;
        }
        for tag in self.inbox.bytes()[..count].chunks_exact(4) {
            self.answers
                .cancel(header.slot, u32_at(tag, 0), &mut table.storages);
        }
        self.inbox.consume(count);
        self.phase = Phase::Header;
        Step::Again
    }
}

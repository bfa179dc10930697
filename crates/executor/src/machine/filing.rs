//! Ends whose results are large: the file comes first, and holds up nobody's commit meanwhile.

use super::Machine;
use super::entry::{Key, Place};
use crate::action::Action;
use crate::id::RequestId;
use crate::op::Op;
use crate::request::{Millis, Outcome};

impl Machine {
    /// Has the end of a request written, which is in the register; its result before it, where that becomes a file.
    pub(super) fn write_end(&mut self, now: Millis, key: Key, id: RequestId) {
        let Some(Place::Ending(ending)) = self.register.same(key, id).map(|entry| &entry.place)
        else {
            return;
        };
        let ending = ending.clone();
        let most = self.policy.result_bytes_max;
        match &ending.outcome {
            // While the store is down the file would fail too, and be made with the end.
            Outcome::Succeeded(result)
                if self.policy.durable
                    && result.len() as u64 > most
                    && self.ledger.down.is_none() =>
            {
                self.filing.insert(id);
                self.actions.push(Action::File(id, result.clone()));
            }
            _ => self.write(now, key, Op::End { id, ending }),
        }
    }

    /// The file of a result is on disk, or cannot be made: then the store says why when it is given the end.
    pub fn filed(&mut self, now: Millis, id: RequestId) {
        if !self.filing.remove(&id) {
            return;
        }
        if let Some(key) = self.register.key(id)
            && let Some(Place::Ending(ending)) = self.register.get(key).map(|entry| &entry.place)
        {
            let ending = ending.clone();
            self.write(now, key, Op::End { id, ending });
        }
        self.settle(now);
    }
}

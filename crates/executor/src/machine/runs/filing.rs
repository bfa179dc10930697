//! Ends with large results: the file is written first, beside the commits, so that no other commit waits for it.

use std::sync::Arc;

use crate::action::Action;
use crate::id::RequestId;
use crate::machine::Machine;
use crate::machine::entry::{Key, State};
use crate::op::Op;
use crate::request::{Ending, Failure, Millis, Outcome, Status};

impl Machine {
    /// Writes the end of a request, which is in the register, and first its result if that becomes a file.
    pub(in crate::machine) fn write_end(&mut self, now: Millis, key: Key, id: RequestId) {
        let Some(State::Ending(ending)) = self.register.same(key, id).map(|entry| &entry.state)
        else {
            return;
        };
        let ending = ending.clone();
        self.ledger.hold(&ending.outcome);
        let most = self.policy.result_bytes_max;
        let in_file = match &ending.outcome {
            // The file that its worker left is checked in any case.
            Outcome::InFile(_) => true,
            // While the store is down the file would fail too; it is then written with the end.
            Outcome::Succeeded(result) => result.len() as u64 > most && self.ledger.down.is_none(),
            Outcome::Failed(_) | Outcome::Cancelled => false,
        };
        if in_file && self.policy.durable {
            self.filing.insert(id);
            self.actions.push(Action::File(id, ending));
        } else {
            self.give_end(now, key, id, ending);
        }
    }

    fn give_end(&mut self, now: Millis, key: Key, id: RequestId, ending: Arc<Ending>) {
        let deaths = self.register.get(key).map_or(0, |entry| entry.deaths);
        self.write(now, key, Op::End { id, ending, deaths });
    }

    /// The file of a result is on disk, or cannot be created: then the store reports why when it is given the end.
    ///
    /// With `unfit`, the file that its worker left is not what the worker announced, for this reason: the request has
    /// failed.
    pub fn filed(&mut self, now: Millis, id: RequestId, unfit: Option<&str>) {
        if !self.filing.remove(&id) {
            return;
        }
        if let Some(key) = self.register.key(id)
            && let Some(entry) = self.register.get_mut(key)
            && let State::Ending(ending) = &mut entry.state
        {
            if let Some(why) = unfit {
                *ending = Arc::new(Ending {
                    status: Status::Failed,
                    outcome: Outcome::Failed(Failure::Unkept(why.into())),
                    ..Ending::clone(ending)
                });
            }
            let ending = Arc::clone(ending);
            self.give_end(now, key, id, ending);
        }
        self.settle(now);
    }
}

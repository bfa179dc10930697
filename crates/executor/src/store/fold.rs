//! Combines the operations of a batch into as few statements as possible.

use std::collections::HashMap;
use std::sync::Arc;

use crate::id::RequestId;
use crate::op::Op;
use crate::request::{Ending, Millis, Request};

/// The beginning of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub attempt: u32,
    pub at: Millis,
}

/// The end of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct End<'a> {
    pub id: RequestId,
    pub ending: &'a Ending,
    pub deaths: u32,
    /// As of [`Op::End`].
    pub claimed: u32,
}

/// One change of the database.
#[derive(Debug)]
pub(super) enum Change<'a> {
    /// With the claim if the run began within the batch.
    Accept(&'a Arc<Request>, Option<Claim>),
    Claim(RequestId, Claim),
    /// With the claim if the whole run was within the batch.
    End(End<'a>, Option<Claim>),
    Other(&'a Op),
}

/// Combine a claim with its accept, or with its end.
///
/// A batch is on disk as a whole, so no reader sees the states in between.
pub(super) fn fold<'a>(ops: &'a [Op], changes: &mut Vec<Change<'a>>) {
    // The last change of each request that a later operation may join.
    let mut last: HashMap<RequestId, usize> = HashMap::with_capacity(ops.len());
    for op in ops {
        match op {
            Op::Accept(request) => {
                last.insert(request.id, changes.len());
                changes.push(Change::Accept(request, None));
            }
            Op::Claim { id, attempt, at } => {
                let claim = Claim {
                    attempt: *attempt,
                    at: *at,
                };
                if let Some(Change::Accept(_, none @ None)) =
                    last.get(id).map(|&index| &mut changes[index])
                {
                    *none = Some(claim);
                    last.remove(id);
                } else {
                    last.insert(*id, changes.len());
                    changes.push(Change::Claim(*id, claim));
                }
            }
            Op::End {
                id,
                ending,
                deaths,
                claimed,
            } => {
                let (id, deaths, claimed) = (*id, *deaths, *claimed);
                let end = End {
                    id,
                    ending,
                    deaths,
                    claimed,
                };
                let before = last.remove(&id).map(|index| &mut changes[index]);
                if let Some(change) = before
                    && let Change::Claim(_, claim) = *change
                    && claim.attempt <= claimed
                {
                    *change = Change::End(end, Some(claim));
                } else {
                    // Of a run before the claim the end is late, and the claim stands without it.
                    changes.push(Change::End(end, None));
                }
            }
            Op::Unclaim { id, .. } | Op::Park { id, .. } | Op::Retry { id, .. } => {
                // A later claim is another run's: it must not join what came before.
                last.remove(id);
                changes.push(Change::Other(op));
            }
            // In their order: the row that it is about may be accepted in this batch.
            Op::Acted { .. }
            | Op::Forget { .. }
            | Op::Peak { .. }
            | Op::Fired { .. }
            | Op::Paused { .. }
            | Op::Resumed { .. } => changes.push(Change::Other(op)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::fixture::accept;
    use crate::request::{Failure, Outcome, Status};

    fn claim(id: u64, attempt: u32) -> Op {
        Op::Claim {
            id: RequestId(id),
            attempt,
            at: 2,
        }
    }

    fn end(id: u64) -> Op {
        end_of(id, 1)
    }

    fn end_of(id: u64, attempt: u32) -> Op {
        let ending = Ending {
            status: Status::Cancelled,
            attempts: attempt,
            at: 3,
            peak_bytes: None,
            outcome: Outcome::Cancelled,
        };
        Op::End {
            id: RequestId(id),
            ending: Arc::new(ending),
            deaths: 0,
            claimed: attempt,
        }
    }

    fn park(id: u64) -> Op {
        Op::Park {
            id: RequestId(id),
            attempt: 1,
            wake_at: 9,
            failure: Failure::OutcomeUnknown,
            deaths: 0,
        }
    }

    fn folded(ops: &[Op]) -> Vec<String> {
        let mut changes = Vec::new();
        fold(ops, &mut changes);
        let word = |change: &Change<'_>| match change {
            Change::Accept(request, claim) => {
                format!("accept {}{}", request.id.0, shown(claim.as_ref()))
            }
            Change::Claim(id, claim) => format!("claim {}{}", id.0, shown(Some(claim))),
            Change::End(end, claim) => format!("end {}{}", end.id.0, shown(claim.as_ref())),
            Change::Other(Op::Park { id, .. }) => format!("park {}", id.0),
            Change::Other(other) => format!("{other:?}"),
        };
        changes.iter().map(word).collect()
    }

    fn shown(claim: Option<&Claim>) -> String {
        claim.map_or(String::new(), |claim| format!(" run {}", claim.attempt))
    }

    #[test]
    fn a_claim_joins_the_accept_of_its_batch() {
        let ops = [accept(1), accept(2), claim(1, 1), end(1)];
        assert_eq!(folded(&ops), ["accept 1 run 1", "accept 2", "end 1"]);
    }

    #[test]
    fn a_claim_joins_the_end_of_its_batch() {
        let ops = [claim(1, 1), claim(2, 1), end(1)];
        assert_eq!(folded(&ops), ["end 1 run 1", "claim 2 run 1"]);
    }

    #[test]
    fn a_claim_does_not_join_the_end_of_an_earlier_run() {
        assert_eq!(folded(&[claim(1, 2), end(1)]), ["claim 1 run 2", "end 1"]);
    }

    #[test]
    fn nothing_joins_across_a_park() {
        let ops = [claim(1, 1), park(1), claim(1, 2), end_of(1, 2)];
        assert_eq!(folded(&ops), ["claim 1 run 1", "park 1", "end 1 run 2"]);
        let ops = [accept(1), claim(1, 1), park(1), claim(1, 2)];
        assert_eq!(folded(&ops), ["accept 1 run 1", "park 1", "claim 1 run 2"]);
    }
}

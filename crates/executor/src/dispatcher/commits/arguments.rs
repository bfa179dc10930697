//! Where the arguments of unfinished requests are: in memory, on their way to the disk, or on disk alone.
//!
//! Memory has a budget (`queue_bytes_max`). Arguments beyond it are detached from their submission, travel to the disk
//! with the row of their request, are dropped here once written, and are read back before the run.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::dispatcher::limit::WRITING_BYTES_MAX;
use crate::hash::{ByNumber, Numbers};
use crate::id::RequestId;
use crate::request::{Blob, Request, Submission};

/// The arguments of the requests that the store has or will have.
pub struct Arguments {
    /// The budget in memory.
    held_bytes_max: usize,
    /// Bytes of the arguments in memory, by request; `held_bytes` is their sum.
    held: ByNumber<RequestId, usize>,
    held_bytes: usize,
    /// Detached arguments whose row was not given to the store yet.
    detached: ByNumber<RequestId, Blob>,
    /// Bytes of arguments on their way to the disk alone, each with the number of the change that carries them.
    writing: VecDeque<(u64, usize)>,
    writing_bytes: usize,
    /// Requests whose arguments are on disk alone.
    on_disk: Numbers<RequestId>,
}

impl Arguments {
    /// The state after a restart: `held` are the bytes of the arguments that were read, `on_disk` the requests whose
    /// arguments were not.
    pub fn new(
        held_bytes_max: usize,
        held: Vec<(RequestId, usize)>,
        on_disk: Vec<RequestId>,
    ) -> Self {
        Self {
            held_bytes_max,
            held_bytes: held.iter().map(|(_, bytes)| bytes).sum(),
            held: held.into_iter().collect(),
            detached: ByNumber::default(),
            writing: VecDeque::new(),
            writing_bytes: 0,
            on_disk: on_disk.into_iter().collect(),
        }
    }

    /// Take the arguments out of a submission that exceeds the budget in memory. The caller passes them to
    /// [`Self::track`] once the request has an id.
    pub fn detach(&self, submission: &mut Submission) -> Option<Blob> {
        let bytes = submission.arguments.len();
        let fits = self.held_bytes + bytes <= self.held_bytes_max;
        (!fits && bytes > 0).then(|| std::mem::replace(&mut submission.arguments, Blob::from([])))
    }

    /// Account for the arguments of a submission that the machine has accepted.
    pub fn track(&mut self, id: RequestId, bytes: usize, detached: Option<Blob>) {
        if let Some(arguments) = detached {
            self.detached.insert(id, arguments);
        } else if bytes > 0 {
            self.held_bytes += bytes;
            self.held.insert(id, bytes);
        }
    }

    /// The arguments of a retried request stay on disk, where they are.
    pub fn keep_on_disk(&mut self, id: RequestId) {
        self.on_disk.insert(id);
    }

    /// The request as the store is to write it, with detached arguments put back; `change` is the number of the change
    /// that carries it.
    pub fn attach(&mut self, request: Arc<Request>, change: u64) -> Arc<Request> {
        let Some(arguments) = self.detached.remove(&request.id) else {
            return request;
        };
        self.on_disk.insert(request.id);
        self.writing.push_back((change, arguments.len()));
        self.writing_bytes += arguments.len();
        let mut whole = Request::clone(&request);
        whole.submission.arguments = arguments;
        Arc::new(whole)
    }

    /// The store has answered this many changes.
    pub fn written(&mut self, answered: u64) {
        while let Some((change, bytes)) = self.writing.front()
            && *change <= answered
        {
            self.writing_bytes -= bytes;
            self.writing.pop_front();
        }
    }

    /// Whether too many bytes are on their way to the disk to accept more.
    pub fn are_behind(&self) -> bool {
        self.writing_bytes > WRITING_BYTES_MAX
    }

    /// Whether the arguments of a request must be read before it runs.
    pub fn are_on_disk(&self, id: RequestId) -> bool {
        self.on_disk.contains(&id)
    }

    /// A request has ended or was refused.
    pub fn forget(&mut self, id: RequestId) {
        self.held_bytes -= self.held.remove(&id).unwrap_or(0);
        self.on_disk.remove(&id);
        self.detached.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Options;

    fn submission(bytes: usize) -> Submission {
        Submission {
            name: Arc::from("work"),
            code: Arc::from("code"),
            submitter: Arc::from(""),
            arguments: vec![0; bytes].into(),
            options: Arc::new(Options::default()),
        }
    }

    #[test]
    fn arguments_beyond_the_budget_go_to_the_disk_and_count_until_they_are_there() {
        let mut arguments = Arguments::new(10, vec![(RequestId(1), 6)], Vec::new());
        let mut small = submission(4);
        assert_eq!(arguments.detach(&mut small), None);
        arguments.track(RequestId(2), 4, None);
        let mut large = submission(WRITING_BYTES_MAX + 1);
        let detached = arguments.detach(&mut large);
        assert!(detached.is_some() && large.arguments.is_empty());
        arguments.track(RequestId(3), WRITING_BYTES_MAX + 1, detached);
        assert!(!arguments.are_on_disk(RequestId(3)));
        let request = Arc::new(Request {
            id: RequestId(3),
            accepted_at: 0,
            submission: large,
        });
        let whole = arguments.attach(request, 7);
        assert_eq!(whole.submission.arguments.len(), WRITING_BYTES_MAX + 1);
        assert!(arguments.are_on_disk(RequestId(3)) && arguments.are_behind());
        arguments.written(6);
        assert!(arguments.are_behind(), "its change was not answered");
        arguments.written(7);
        assert!(!arguments.are_behind());
        // The memory of an ended request is free for the next one.
        assert!(arguments.detach(&mut submission(4)).is_some());
        arguments.forget(RequestId(2));
        assert!(arguments.detach(&mut submission(4)).is_none());
    }
}

//! One batch on its way: its next operation, and what completions mean for it.
use rustix::io::Errno;

use super::{Done, Keeper};
use crate::batch::Batch;
use crate::file::BlockFile;
use crate::operation::{Checked, Kind};

/// How often an operation is issued again after `-EAGAIN` or `-EINTR`, before that is its result.
const RETRIES_MAX: u8 = 100;

/// An operation in its slot.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) batch: u32,
    pub(super) index: u32,
    pub(super) operation: Checked,
    /// Bytes of earlier tries.
    pub(super) moved: u32,
    pub(super) retries: u8,
}

/// A batch on its way.
pub(super) struct Progress {
    batch: Batch,
    buffer: Option<u16>,
    ticket: u64,
    keeper: Option<Keeper>,
    /// The next operation to issue.
    cursor: usize,
    count: usize,
    over: usize,
    flying: u32,
    write_failed: bool,
    detached: bool,
    /// Waits for its turn.
    queued: bool,
}

/// The result of operations that were not issued, because the caller stopped waiting.
pub(super) fn canceled() -> i64 {
    i64::from(-Errno::CANCELED.raw_os_error())
}

/// What a look at a batch's next operation came to.
pub(super) enum Step {
    /// Operation `index` gets a slot.
    Issue(u32, Checked),
    /// It was over without the kernel; look at the next one.
    Over,
    /// Nothing to issue now: all was, or an fsync waits for those before it.
    Stay,
}

/// What a completion means.
pub(super) enum Verdict {
    /// Issue it once more.
    Again,
    /// It is over.
    Result(i64),
}

impl Progress {
    /// Nothing of the batch is issued yet.
    pub(super) fn new(
        batch: Batch,
        buffer: Option<u16>,
        ticket: u64,
        keeper: Option<Keeper>,
    ) -> Self {
        let count = batch.count();
        Self {
            batch,
            buffer,
            ticket,
            keeper,
            cursor: 0,
            count,
            over: 0,
            flying: 0,
            write_failed: false,
            detached: false,
            queued: false,
        }
    }

    /// What the batch was called when it was admitted.
    pub(super) fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Where the batch's memory is registered.
    pub(super) fn buffer(&self) -> Option<u16> {
        self.buffer
    }

    /// The file of an operation that was checked.
    pub(super) fn file(&self, operation: &Checked) -> &BlockFile {
        let file = self.batch.files.get(operation.file);
        file.expect("checked when it was issued first")
    }

    /// Size of the batch's buffer.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.batch.memory_bytes()
    }

    /// Operations that have a slot.
    pub(super) fn flying(&self) -> u32 {
        self.flying
    }

    /// Whether the caller has stopped waiting.
    pub(super) fn is_detached(&self) -> bool {
        self.detached
    }

    /// Whether operations are left that were not issued.
    pub(super) fn has_more(&self) -> bool {
        self.cursor < self.count
    }

    /// Whether all operations are over and none has a slot.
    pub(super) fn is_done(&self) -> bool {
        self.over == self.count && self.flying == 0
    }

    /// Whether the batch waits for its turn.
    pub(super) fn is_queued(&self) -> bool {
        self.queued
    }

    /// The batch waits for its turn from now on; false if it did before.
    pub(super) fn enter_turns(&mut self) -> bool {
        !std::mem::replace(&mut self.queued, true)
    }

    /// The batch no longer waits for its turn.
    pub(super) fn leave_turns(&mut self) {
        self.queued = false;
    }

    /// Look at the next operation.
    pub(super) fn step(&mut self) -> Step {
        if self.cursor == self.count {
            return Step::Stay;
        }
        let index = self.cursor;
        let Ok(operation) = self.batch.check(index) else {
            // It was right when the batch was made: the memory has been written since.
            // What it was is not known, so a sync behind it counts it as a write.
            self.cursor += 1;
            self.write_failed = true;
            self.end_unissued(index, Errno::INVAL);
            return Step::Over;
        };
        if !operation.kind.moves_bytes() {
            if self.flying > 0 {
                return Step::Stay;
            }
            if self.write_failed {
                self.cursor += 1;
                self.end_unissued(index, Errno::CANCELED);
                return Step::Over;
            }
        }
        self.cursor += 1;
        self.flying += 1;
        let index = u32::try_from(index).expect("batches count their operations in 32 bits");
        Step::Issue(index, operation)
    }

    fn end_unissued(&mut self, index: usize, errno: Errno) {
        self.batch
            .results
            .put(index, i64::from(-errno.raw_os_error()));
        self.over += 1;
    }

    /// What a completion means for the operation in `taken`.
    pub(super) fn judge(&mut self, taken: &mut Slot, result: i32) -> Verdict {
        let operation = taken.operation;
        let Ok(moved) = u32::try_from(result) else {
            let again = [Errno::AGAIN, Errno::INTR]
                .iter()
                .any(|errno| -errno.raw_os_error() == result);
            if again && taken.retries < RETRIES_MAX && !self.detached {
                taken.retries += 1;
                return Verdict::Again;
            }
            return Verdict::Result(i64::from(result));
        };
        if !operation.kind.moves_bytes() {
            return Verdict::Result(i64::from(result));
        }
        let total = taken.moved + moved.min(operation.length - taken.moved);
        if !self.batch.exact || total == operation.length || self.detached {
            return Verdict::Result(i64::from(total));
        }
        let file = self.batch.files.get(operation.file);
        let align = file.map_or(1, |file| file.alignment().offset);
        if moved == 0 || !total.is_multiple_of(align) {
            // No more bytes there: the end of the file, or of the device for a write.
            let errno = match operation.kind {
                Kind::Read => Errno::NODATA,
                _ => Errno::NOSPC,
            };
            return Verdict::Result(i64::from(-errno.raw_os_error()));
        }
        taken.moved = total;
        taken.retries = 0;
        Verdict::Again
    }

    /// An operation gives up its slot and is over.
    pub(super) fn end(&mut self, index: usize, operation: &Checked, result: i64) {
        self.flying -= 1;
        self.batch.results.put(index, result);
        self.over += 1;
        if operation.kind == Kind::Write && result != i64::from(operation.length) {
            self.write_failed = true;
        }
    }

    /// The caller stops waiting: what was not issued is over. `keeper`, if there is one, takes the former's place.
    pub(super) fn detach(&mut self, keeper: Option<Keeper>) {
        self.detached = true;
        if keeper.is_some() {
            self.keeper = keeper;
        }
        while self.has_more() {
            self.batch.results.put(self.cursor, canceled());
            self.cursor += 1;
            self.over += 1;
        }
    }

    /// The batch is done.
    pub(super) fn into_done(self) -> Done {
        Done {
            ticket: self.ticket,
            keeper: self.keeper,
            detached: self.detached,
            bytes: self.batch.memory_bytes(),
        }
    }

    /// No completion of the operation comes any more.
    pub(super) fn fail(&self, index: usize, result: i64) {
        self.batch.results.put(index, result);
    }

    /// No completion comes any more: what was not issued ends with `result`.
    ///
    /// What the kernel has may still be carried out: then the memory, the files and the keeper are leaked.
    pub(super) fn into_failed(mut self, result: i64) -> Done {
        for index in self.cursor..self.count {
            self.batch.results.put(index, result);
        }
        let leaks = self.flying > 0;
        let done = Done {
            ticket: self.ticket,
            keeper: self.keeper.take_if(|_| !leaks),
            detached: self.detached,
            bytes: self.batch.memory_bytes(),
        };
        if leaks {
            std::mem::forget(self);
        }
        done
    }
}

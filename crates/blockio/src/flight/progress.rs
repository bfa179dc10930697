//! One batch on its way: its next operation, and what completions mean for it.
use rustix::io::Errno;

use super::Keeper;
use crate::batch::{Batch, Checked};
use crate::operation::Kind;

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
    pub(super) batch: Batch,
    pub(super) buffer: Option<u16>,
    pub(super) ticket: u64,
    pub(super) keeper: Option<Keeper>,
    /// The next operation to issue.
    pub(super) cursor: usize,
    pub(super) count: usize,
    pub(super) over: usize,
    pub(super) flying: u32,
    pub(super) write_failed: bool,
    pub(super) detached: bool,
    /// Waits in `turns`.
    pub(super) queued: bool,
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

    /// The operation is over.
    pub(super) fn end(&mut self, index: usize, operation: &Checked, result: i64) {
        self.batch.results.put(index, result);
        self.over += 1;
        if operation.kind == Kind::Write && result != i64::from(operation.length) {
            self.write_failed = true;
        }
    }
}

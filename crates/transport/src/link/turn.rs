//! One turn of receiving, and what it leaves for the next.

use crate::stream::StreamFault;

/// Where a link is in a turn of receiving.
#[derive(Debug, Default)]
pub(super) struct ReceiveTurn {
    stage: Stage,
    /// Bytes that arrived behind the lengths of a message for which memory is wanted.
    kept: Vec<u8>,
    /// The last receive filled its buffer, so there may be more.
    filled: bool,
}

/// What a failure to send does.
#[derive(Debug, Default)]
enum Stage {
    /// It takes effect at once.
    #[default]
    Idle,
    /// It waits until the turn ends.
    Receiving,
    /// This one waits; later ones do not count.
    Failed(StreamFault),
}

impl ReceiveTurn {
    #[inline]
    pub fn begin(&mut self) {
        if matches!(self.stage, Stage::Idle) {
            self.stage = Stage::Receiving;
        }
    }

    /// The failure to send that has waited for the end of the turn, if there was one.
    #[inline]
    pub fn end(&mut self) -> Option<StreamFault> {
        if matches!(self.stage, Stage::Failed(_)) {
            return self.take_failure();
        }
        self.stage = Stage::Idle;
        None
    }

    #[cold]
    fn take_failure(&mut self) -> Option<StreamFault> {
        match std::mem::take(&mut self.stage) {
            Stage::Failed(fault) => Some(fault),
            Stage::Idle | Stage::Receiving => None,
        }
    }

    /// Keep a failure to send until the turn ends; it is returned if there is no turn.
    pub fn defer(&mut self, fault: StreamFault) -> Option<StreamFault> {
        match self.stage {
            Stage::Idle => return Some(fault),
            Stage::Receiving => self.stage = Stage::Failed(fault),
            Stage::Failed(_) => {}
        }
        None
    }

    /// Note whether the last receive filled its buffer.
    #[inline]
    pub fn note_receive(&mut self, filled: bool) -> bool {
        self.filled = filled;
        filled
    }

    /// Whether the last receive filled its buffer.
    #[inline]
    pub fn filled_its_buffer(&self) -> bool {
        self.filled
    }

    /// Keep received bytes until memory is provided.
    pub fn keep(&mut self, bytes: &[u8]) {
        self.kept = bytes.to_vec();
    }

    /// Take the bytes that were kept.
    pub fn take_kept(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.kept)
    }

    /// Whether bytes are kept.
    pub fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }
}

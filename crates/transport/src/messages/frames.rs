//! The frames of a message.

use forebay_memory::Lease;

use crate::link::outbox::Payload;
use crate::sys::buffer::Buffer;

/// A received message: its frames, each in memory of its own.
pub type Message = Vec<Buffer>;

/// The frames of one message, as the sender has them.
pub trait Frames {
    /// How many there are.
    fn count(&self) -> usize;

    /// The bytes of one.
    fn get(&self, index: usize) -> &[u8];

    /// The block of an arena that holds one, if known.
    fn block(&self, _index: usize) -> Option<&Lease> {
        None
    }

    /// Lend one until the kernel has it; called once for each long frame that was not taken at once.
    fn lend(&mut self, index: usize) -> Payload;
}

impl Frames for Vec<Vec<u8>> {
    fn count(&self) -> usize {
        self.len()
    }

    fn get(&self, index: usize) -> &[u8] {
        &self[index]
    }

    fn lend(&mut self, index: usize) -> Payload {
        Box::new(std::mem::take(&mut self[index]))
    }
}

/// A received message goes out again as it came, without a copy.
impl Frames for Message {
    fn count(&self) -> usize {
        self.len()
    }

    fn get(&self, index: usize) -> &[u8] {
        self[index].as_slice()
    }

    fn lend(&mut self, index: usize) -> Payload {
        Box::new(std::mem::replace(&mut self[index], Buffer::empty()))
    }
}

//! Received messages that wait to be taken, and whether reading pauses for them.

use std::collections::VecDeque;

use crate::limit::MESSAGE_BYTES_MIN;
use crate::messages::frames::Message;
use crate::sys::buffer::Buffer;

/// The received messages of one connection.
#[derive(Default)]
pub struct MessageInbox {
    messages: VecDeque<Message>,
    /// What they weigh.
    bytes: usize,
    /// Messages that have arrived so far.
    received: u64,
    paused: bool,
}

impl MessageInbox {
    /// A message has arrived.
    pub fn push(&mut self, message: Message) {
        self.received += 1;
        self.bytes += weight(&message);
        self.messages.push_back(message);
    }

    /// Take the next message.
    pub fn pop(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        self.bytes -= weight(&message);
        Some(message)
    }

    /// The next message, without taking it.
    pub fn front(&self) -> Option<&Message> {
        self.messages.front()
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// What the waiting messages weigh.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Messages that have arrived so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Whether reading pauses: from `bytes_max` on, or while the process holds too much, until half of it is left.
    pub fn update_pause(&mut self, bytes_max: usize, held_back: bool) -> bool {
        if held_back || self.bytes >= bytes_max {
            self.paused = true;
        } else if self.bytes <= bytes_max / 2 {
            self.paused = false;
        }
        self.paused
    }

    /// Whether reading paused when that was last decided.
    pub fn is_paused(&self) -> bool {
        self.paused
    }
}

/// What a message weighs in the inbox.
fn weight(message: &Message) -> usize {
    let bytes: usize = message.iter().map(Buffer::len).sum();
    bytes + message.len() * MESSAGE_BYTES_MIN
}

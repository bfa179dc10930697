//! Handing a live connection to another process between two frames.
//!
//! Several processes may hold duplicates of one caller's socket and use it one after another; they agree among themselves
//! on whose turn it is. The process that stops using it makes sure that nothing is half written or half read
//! ([`ConnectionState::is_quiescent`]), and passes on whether the server's preface was read and which call has no answer
//! yet. The next process continues from there: it sends no preface, and reads that answer as one to its own call.
//!
//! Lent memory belongs to one process, so whoever takes over from another one has both ends forget what was lent: a new
//! process by [`ConnectionState::resume`], one that used the connection earlier by [`ConnectionState::renew`].
//!
//! Ids do not repeat between processes: each continues from the clock. A call that one process has cancelled may still
//! run, and a one-way call may still be queued, when another process calls.

use rustix::time::{ClockId, clock_gettime};

use super::ConnectionState;
use crate::calls::call::Taker;
use crate::error::Fault;
use crate::stream::socket::Wire;

impl ConnectionState<Wire> {
    /// Continue as a caller that has sent its preface; `preface_read`: it has also read the server's.
    pub fn resume(&mut self, preface_read: bool) {
        self.link.resume(preface_read);
        let now = now_ns();
        self.calls().skip_ids_to(now);
        self.forget_lent(now);
    }

    /// Continue after another process has used the connection: both ends forget what was lent. The frame that says so goes
    /// out before the next call.
    pub fn renew(&mut self) {
        self.forget_lent(now_ns());
    }

    fn forget_lent(&mut self, id: u64) {
        self.exchange.lending.renew(&mut self.link, id);
    }

    /// Whether another process could continue from here: nothing is half written or half read, and no calls are in flight
    /// but the `owed` ones whose answers the next process will read.
    pub fn is_quiescent(&self, owed: usize) -> bool {
        let between_frames = match self.link.stream() {
            Some(Wire::Socket(_)) => true,
            Some(Wire::Local(stream)) => stream.is_between_frames(),
            _ => false,
        };
        let asking = &self.exchange.asking;
        between_frames
            && !self.link.life().is_broken()
            && self.link.outbox().is_empty()
            && self.link.at_boundary()
            && asking.calls.in_flight() == owed
            && asking.items.in_flight() + asking.items.cancelled() == 0
    }

    /// Forget a call whose answer another process will read, without cancelling it at the server.
    pub fn forget_call(&mut self, id: u64) {
        self.calls().cancel(id);
    }

    /// Expect the reply to a call that another process made; it is taken like that of our own call.
    pub fn expect_reply(&mut self, id: u64, taker: Taker) {
        self.calls().begin(id, taker, 0);
    }

    /// Whether the peer may lend us memory.
    pub fn borrows(&self) -> bool {
        self.exchange.lending.borrows()
    }

    /// Close our duplicate of the socket; those of other processes stay connected.
    pub fn close_local(&mut self) {
        self.break_with(Fault::Closed);
        self.sleeping().watch(None);
        self.link.take_stream();
    }
}

/// The monotonic clock is the same in every process of the machine, and outruns ids: no process calls each nanosecond.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}

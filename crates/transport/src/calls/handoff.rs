//! Handing a live connection to another process between two frames.
//!
//! Several processes may hold duplicates of one caller's socket and use it one after another; they agree among themselves
//! on whose turn it is. The process that stops using it makes sure that nothing is half written or half read
//! ([`Connection::is_quiescent`]), and passes on whether the server's preface was read and which call has no answer yet.
//! The next process continues from there: it sends no preface, and reads that answer as one to its own call.
//!
//! Lent memory belongs to one process, so whoever takes over from another one has both ends forget what was lent: a new
//! process by [`Connection::resume`], one that used the connection earlier by [`Connection::renew`].
//!
//! Ids do not repeat between processes: each continues from the clock. A call that one process has cancelled may still
//! run, and a one-way call may still be queued, when another process calls.

use std::os::fd::OwnedFd;

use rustix::time::{ClockId, clock_gettime};

use crate::calls::call::Taker;
use crate::calls::connection::{Connection, Options};
use crate::error::{Fault, Result};
use crate::stream::socket::Wire;

impl Connection {
    /// Take over the socket of a caller that has sent its preface; `preface_read`: it has also read the server's.
    ///
    /// # Errors
    /// `Config` if the descriptor is no connected Unix socket.
    pub fn resume(socket: OwnedFd, options: Options, preface_read: bool) -> Result<Self> {
        let connection = Self::unconnected(options);
        connection.adopt(socket)?;
        connection.step(|state| {
            state.resume(preface_read);
            let now = now_ns();
            state.calls.skip_ids_to(now);
            state.renew(now);
        })?;
        Ok(connection)
    }

    /// Continue after another process has used the connection. The frame that says so goes out before the next call.
    pub fn renew(&self) -> Result<()> {
        self.step(|state| state.renew(now_ns()))
    }

    /// Whether another process could continue from here: nothing is half written or half read, and no calls are in flight
    /// but the `owed` ones whose answers the next process will read.
    pub fn is_quiescent(&self, owed: usize) -> Result<bool> {
        self.step(|state| {
            let between_frames = match &state.stream {
                Some(Wire::Socket(_)) => true,
                Some(Wire::Local(stream)) => stream.is_between_frames(),
                _ => false,
            };
            between_frames
                && state.fault.is_none()
                && state.outbox.is_empty()
                && state.decoder.at_boundary()
                && state.calls.in_flight() == owed
                && state.items.in_flight() + state.items.cancelled() == 0
        })
    }

    /// Whether the server's preface was read.
    pub fn is_open(&self) -> Result<bool> {
        self.step(|state| state.is_open())
    }

    /// Forget a call whose answer another process will read, without cancelling it at the server.
    pub fn forget_call(&self, id: u64) -> Result<()> {
        self.step(|state| {
            state.calls.cancel(id);
        })
    }

    /// Close our duplicate of the socket; those of other processes stay connected. Idempotent.
    ///
    /// For a [quiescent](Self::is_quiescent) connection on which no thread waits; `close` ends it for all processes.
    pub fn close_local(&self) -> Result<()> {
        self.step(|state| {
            state.break_with(Fault::Closed);
            state.pidfd = None;
            state.stream = None;
        })
    }

    /// Expect the reply to a call that another process made; it is taken like that of our own call.
    pub fn expect_reply(&self, id: u64) -> Result<()> {
        self.step(|state| state.calls.begin(id, Taker::Thread, 0))
    }
}

/// The monotonic clock is the same in every process of the machine, and outruns ids: no process calls each nanosecond.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::calls::call::Outcome;
    use crate::calls::connection::Outgoing;
    use crate::link::outbox::Head;
    use crate::stream::unix;
    use crate::wire::frame::Codec;
    use crate::wire::role::Role;

    fn call(connection: &Connection) -> u64 {
        let call = Outgoing {
            codec: Codec::Msgpack,
            one_way: false,
            remaining: None,
            generation: 0,
            head: Head::Borrowed(b"question"),
            segments: Vec::new(),
        };
        connection.start(call, Taker::Thread).expect("sent")
    }

    fn answer(server: &Connection) {
        let deadline = Some(Instant::now() + Duration::from_secs(5));
        let call = server.next_call(deadline).expect("alive").expect("a call");
        server
            .reply(
                call.id,
                Codec::Msgpack,
                Head::Borrowed(b"answer"),
                Vec::new(),
            )
            .expect("sent");
    }

    fn reply_of(connection: &Connection, id: u64) -> bool {
        let deadline = Some(Instant::now() + Duration::from_secs(5));
        matches!(connection.wait(id, deadline), Ok(Outcome::Reply(_)))
    }

    fn served() -> (Connection, OwnedFd, Connection) {
        let (ours, theirs) = unix::pair().expect("a pair");
        let duplicate = ours.try_clone().expect("a duplicate");
        let server = Connection::new(theirs, Options::new(Role::Server, "caller"));
        let options = Options {
            lends: false,
            ..Options::new(Role::Caller, "service")
        };
        let first = Connection::new(ours, options);
        (first.expect("first"), duplicate, server.expect("server"))
    }

    fn resume(socket: OwnedFd, preface_read: bool) -> Connection {
        let options = Options::new(Role::Caller, "service");
        Connection::resume(socket, options, preface_read).expect("second")
    }

    #[test]
    fn an_owed_answer_is_read_by_whoever_is_next() {
        let (first, socket, server) = served();
        let id = call(&first);
        answer(&server);
        assert!(reply_of(&first, id));

        let owed = call(&first);
        assert!(first.is_quiescent(1).expect("open"));
        first.forget_call(owed).expect("open");
        assert!(first.is_quiescent(0).expect("open"));
        answer(&server);
        let second = resume(socket, first.is_open().expect("open"));
        second.expect_reply(owed).expect("open");
        assert!(reply_of(&second, owed));
        let own = call(&second);
        answer(&server);
        assert!(reply_of(&second, own));

        second.close_local().expect("open");
        let again = call(&first);
        answer(&server);
        assert!(reply_of(&first, again), "the first goes on where it was");
    }

    #[test]
    fn a_call_that_was_given_up_and_still_runs_is_no_other_processes_call() {
        let (first, socket, server) = served();
        let deadline = || Some(Instant::now() + Duration::from_secs(5));
        let answered = call(&first);
        answer(&server);
        assert!(reply_of(&first, answered));
        let given_up = call(&first);
        let runs = server.next_call(deadline()).expect("alive");
        assert_eq!(runs.expect("a call").id, given_up);
        first.cancel(given_up).expect("open");
        let ids: Vec<u64> = (0..2)
            .map(|_| {
                let socket = socket.try_clone().expect("a duplicate");
                let next = resume(socket, first.is_open().expect("open"));
                let id = call(&next);
                answer(&server);
                assert!(reply_of(&next, id));
                next.close_local().expect("open");
                id
            })
            .collect();
        assert!(given_up < ids[0] && ids[0] < ids[1], "{ids:?}");
    }

    #[test]
    fn a_start_that_nobody_waited_for_is_read_with_the_preface() {
        let (first, socket, server) = served();
        let owed = call(&first);
        assert!(!first.is_quiescent(0).expect("open"), "a call is in flight");
        first.forget_call(owed).expect("open");
        let preface_read = first.is_open().expect("open");
        assert!(!preface_read);
        let second = resume(socket, preface_read);
        second.expect_reply(owed).expect("open");
        answer(&server);
        assert!(reply_of(&second, owed));
        assert!(second.is_open().expect("open"));
    }
}

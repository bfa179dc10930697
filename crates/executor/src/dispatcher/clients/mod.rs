//! Clients: their connections, what each of their calls waits for, the answers.
//!
//! A call is answered once. Until then it is open in its connection, and stands in one list: in `waiters` if it waits
//! for an event of a request, in `admin_calls` if the server's main thread answers it, in `following` if it is a stream,
//! among the purposes of `commits` if the store was asked. When a client leaves, its calls are removed from the first
//! three, and what the store answers is dropped; its requests continue.
//!
//! Answers are collected, and each connection is flushed once a turn.

mod actor;
mod admin_calls;
mod answers;
mod calls;
mod client;
mod connections;
mod following;
mod item_streams;
mod refused;
mod request_events;
pub(super) mod streams;
pub(super) mod waiters;

use std::num::NonZeroI32;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use forebay_base::slots::Key;

use crate::dispatcher::audit::{AuditLine, AuditLog};
use crate::dispatcher::clients::admin_calls::AdminCalls;
use crate::dispatcher::clients::connections::{Connections, OpenCall, plain};
use crate::dispatcher::clients::following::Following;
use crate::dispatcher::clients::waiters::Waiters;
use crate::dispatcher::commits::Commits;
use crate::dispatcher::context::Context;
use crate::dispatcher::poll::Poll;
use crate::dispatcher::reload::{Parked, Reload};
use crate::dispatcher::supervisor::protocol::Order;
use crate::error::Result;
use crate::feed::Exposition;
use crate::id::RequestId;
use crate::items::Items;
use crate::logs::Logs;
use crate::message;

/// All clients, with their calls.
pub struct Clients {
    connections: Connections,
    waiters: Waiters,
    admin_calls: AdminCalls,
    following: Following,
    audit: Option<AuditLog>,
    arguments_bytes_max: usize,
}

impl Clients {
    /// Without a state directory there are no logs, no items, nor an audit log.
    pub fn new(
        (logs, items): (Option<Logs>, Option<Items>),
        audit: Option<AuditLog>,
        arguments_bytes_max: usize,
    ) -> Self {
        Self {
            audit,
            connections: Connections::default(),
            waiters: Waiters::default(),
            admin_calls: AdminCalls::default(),
            following: Following::new(logs, items),
            arguments_bytes_max,
        }
    }

    /// Listen at `path`, for this user alone; with a socket and its lock that another process has passed on.
    ///
    /// # Errors
    /// Those of [`Connections::listen`].
    pub fn listen(&mut self, poll: &Poll, path: &Path, passed: Option<[OwnedFd; 2]>) -> Result<()> {
        self.connections.listen(poll, path, passed)
    }

    /// Take the connections of this process for the gateway's, which is that of the server before.
    pub fn inherit_gateway(&mut self, pid: Option<NonZeroI32>) {
        self.connections.inherit_gateway(pid);
    }

    /// Take the connections of this process for the gateway's.
    pub fn set_gateway(&mut self, pid: Option<NonZeroI32>) {
        self.connections.set_gateway(pid);
    }

    /// Write a line into the audit log.
    pub fn audit(&mut self, line: AuditLine) {
        if let Some(audit) = &mut self.audit {
            audit.write(line);
        }
    }

    /// Accept no more clients.
    pub fn stop_listening(&mut self, poll: &Poll) {
        self.connections.stop_listening(poll);
    }

    /// Add how many follow events.
    pub fn expose(&self, to: &mut Exposition) {
        let readers = self.following.readers() as u64;
        to.gauge("forebay_feed_readers", &[], readers);
    }

    /// Bind the socket again if its file was removed; the outcome, if there is one to report.
    pub fn rebind_if_removed(&mut self, poll: &Poll) -> Option<std::result::Result<(), String>> {
        self.connections.rebind_if_removed(poll)
    }
}

/// A turn.
impl Clients {
    /// Accept the clients that wait, and read from them.
    pub fn accept(&mut self, cx: &mut Context, commits: &mut Commits, reload: &mut Reload) {
        for key in self.connections.accept(&cx.poll) {
            self.read(cx, commits, reload, key);
        }
    }

    /// Take in a turn's worth of a client's input.
    pub fn read(&mut self, cx: &mut Context, commits: &mut Commits, reload: &mut Reload, key: Key) {
        let input = self.connections.receive(key);
        let called = !input.calls.is_empty();
        if called {
            reload.check_before_submissions(cx);
        }
        for call in input.calls {
            self.take_call(cx, commits, reload, key, call);
        }
        // After the calls, which were read already: back-pressure applies to the next ones.
        if called && commits.is_behind() {
            self.connections.pause(key);
        }
        for call in input.cancelled {
            let client = self.connections.get_mut(key);
            if let Some(open) = client.and_then(|client| client.close(call)) {
                self.abandon(cx, key, call, open);
            }
        }
        for call in input.granted {
            self.following
                .pump(&mut self.connections, &mut cx.feed, (key, call));
        }
        if input.over {
            self.left(cx, commits, key);
        }
    }

    /// Take in the submissions that waited for the code.
    pub fn take_parked(
        &mut self,
        cx: &mut Context,
        commits: &mut Commits,
        reload: &mut Reload,
        parked: Parked,
    ) {
        for (client, call) in parked {
            self.take_call(cx, commits, reload, client, call);
        }
    }

    /// A client can be written to again: continue its streams.
    pub fn is_writable(&mut self, cx: &mut Context, key: Key) {
        self.connections.flush_now(key);
        self.following
            .pump_client(&mut self.connections, &mut cx.feed, key);
    }

    /// Continue with the clients and the streams that had more than a turn's worth.
    pub fn take_more(&mut self, cx: &mut Context, commits: &mut Commits, reload: &mut Reload) {
        for key in self.connections.take_again() {
            self.read(cx, commits, reload, key);
        }
        self.following
            .pump_more(&mut self.connections, &mut cx.feed);
    }

    /// Continue the readers of the feed, if something has happened and that is due.
    pub fn pump_readers(&mut self, cx: &mut Context) {
        self.following
            .pump_readers(&mut self.connections, &mut cx.feed);
    }

    /// Whether there is more than a turn's worth.
    pub fn has_more(&self) -> bool {
        self.connections.has_more() || self.following.has_more()
    }

    /// Read from all clients again that were paused.
    pub fn resume(&mut self) {
        self.connections.resume();
    }

    /// Accept again after a pause, and disconnect the clients that were refused.
    pub fn run_timers(&mut self, cx: &mut Context, commits: &Commits, now: Instant) {
        self.connections.resume_accepting(&cx.poll, now);
        for key in self.connections.take_overdue(now) {
            self.left(cx, commits, key);
        }
        let refused = self.connections.take_warning(now);
        let unwritten = self.audit.as_mut().and_then(AuditLog::take_warning);
        for warning in [refused, unwritten].into_iter().flatten() {
            cx.shared.order(Order::Warn(warning));
        }
    }

    /// Check the reasons of all followed requests that wait, if that is due.
    pub fn notify_reasons(&mut self, cx: &mut Context, now: Instant) {
        self.following
            .notify_reasons(&mut self.connections, cx, now);
    }

    /// When the next of these is due.
    pub fn deadline(&self) -> Option<Instant> {
        let due = [self.connections.resumes(), self.following.deadline()];
        due.into_iter().flatten().min()
    }

    /// Flush each client that has answers, then ask the store for those that a client can take now.
    pub fn flush(&mut self, cx: &mut Context, commits: &mut Commits) {
        for key in self.connections.flush(&cx.poll) {
            self.left(cx, commits, key);
        }
        self.following.unblock(&self.connections);
        for key in self.connections.take_awaiting_fetch() {
            self.fetch_more(commits, key);
        }
    }

    /// Remove a client that has gone or is to be disconnected: its calls end, its requests continue.
    fn left(&mut self, cx: &mut Context, commits: &Commits, key: Key) {
        let open = self.connections.remove(&cx.poll, key, commits.unread());
        for (call, open) in open.into_iter().flatten() {
            self.abandon(cx, key, call, open);
        }
    }

    /// Drop what an abandoned call waits for.
    fn abandon(&mut self, cx: &mut Context, client: Key, call: u64, open: OpenCall) {
        match open {
            OpenCall::Request(id, _) => self.waiters.leave(id, client, call),
            OpenCall::Ticket(ticket) => self.admin_calls.forget(ticket),
            OpenCall::Stored | OpenCall::Fetching | OpenCall::Later => {} // its answer is dropped when it comes
            OpenCall::Stream => {
                let key = (client, call);
                self.following
                    .leave(&mut self.connections, &mut cx.feed, key);
            }
        }
    }
}

/// The end of all clients, for another server.
impl Clients {
    /// Accept nobody, and shut every client's receiving side: what it has sent is read, and what it sends now fails.
    pub fn shut(&mut self, poll: &Poll) {
        self.connections.shut(poll);
    }

    /// Whether everything was read that clients had sent before [`Self::shut`].
    pub fn has_read_all(&self) -> bool {
        self.connections.has_read_all()
    }

    /// Answer each `run` whose end is not known with its id: the next server is asked for the end.
    pub fn answer_with_ids(&mut self) {
        for (client, call, id) in self.connections.runs() {
            self.waiters.leave(id, client, call);
            self.connections
                .answer(client, call, plain(message::accepted(id)));
        }
    }

    /// Whether every client has what it asked for, but for streams and ends, which it asks the next server for.
    pub fn is_answered(&self) -> bool {
        self.connections.is_answered()
    }

    /// The files of the socket and its lock are this process's from now on.
    pub fn own_socket(&mut self) {
        self.connections.own_socket();
    }

    /// The socket and its lock, whose files stay.
    ///
    /// # Errors
    /// `Transport`: no descriptor is left, or there is no socket.
    pub fn give_listener(&mut self) -> Result<[OwnedFd; 2]> {
        self.connections.give_listener()
    }

    /// Disconnect all clients, and accept others.
    pub fn leave_all(&mut self, cx: &mut Context, commits: &Commits) {
        for key in self.connections.keys() {
            self.left(cx, commits, key);
        }
        self.connections.reopen(&cx.poll);
    }
}

/// News for the clients.
impl Clients {
    /// Pass the main thread's answer on.
    pub fn answer_ticket(&mut self, ticket: u64, head: Vec<u8>) {
        if let Some((client, call)) = self.admin_calls.take(ticket) {
            self.connections.answer(client, call, plain(head));
        }
    }

    /// Append a run's output to its log.
    pub fn log(&mut self, cx: &mut Context, id: RequestId, bytes: &[u8]) {
        self.following
            .log(&mut self.connections, &mut cx.feed, id, bytes);
    }

    /// Have the readers of a request's items look at what a run has added.
    pub fn items_added(&mut self, id: RequestId) {
        self.following.items_added(id);
    }

    /// End the streams of the log and the items of a request that has ended, once they have sent everything.
    pub fn end_logs(&mut self, cx: &mut Context, id: RequestId) {
        self.following.end(&mut self.connections, &mut cx.feed, id);
    }
}

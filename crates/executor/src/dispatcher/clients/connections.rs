//! The connections of clients: accepted, read in bounded turns, flushed once a turn.

use std::fs::File;
use std::num::NonZeroI32;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use forebay_base::accept::{ACCEPTS_PER_TURN, Accepting};
use forebay_base::slots::{Key, Slots};
use forebay_transport::calls::{Connection, Options};
use forebay_transport::limit::Limits;
use forebay_transport::stream::unix::{Listener, peer_pid, peer_uid};
use forebay_transport::wire::Role;
use rustix::process::geteuid;

pub use crate::dispatcher::clients::client::OpenCall;
use crate::dispatcher::clients::client::{Client, Input};
use crate::dispatcher::clients::refused::{Refusals, Shortage};
use crate::dispatcher::limit::{CALLS_A_TURN, CLIENT_UNREAD_BYTES_MAX, CLIENTS_MAX, REFUSED_MAX};
use crate::dispatcher::poll::{Poll, Source};
use crate::dispatcher::rebinding::RebindReports;
use crate::error::{Error, Refusal, Result};
use crate::hash::ByNumber;
use crate::id::RequestId;
use crate::message::{self, Message};
use crate::store::{Question, Unread};

/// All clients, with the listener.
#[derive(Default)]
pub struct Connections {
    listener: Option<Listener>,
    accepting: Accepting,
    /// Nobody is accepted, and nothing more is read than what clients had sent before.
    shut: bool,
    slots: Slots<Client>,
    touched: Vec<Key>,
    again: Vec<Key>,
    paused: Vec<Key>,
    awaiting_fetch: Vec<Key>,
    rebind_reports: RebindReports,
    /// A spare descriptor: closing it makes room to accept a client that can then be refused.
    spare: Option<File>,
    refused: Vec<Key>,
    refusals: Refusals,
    /// The gateway's process, while there is one.
    gateway: Option<NonZeroI32>,
    /// That of the server before.
    former: Option<NonZeroI32>,
}

impl Connections {
    /// Listen at `path`, for this user alone; with a socket and its lock that another process has passed on.
    ///
    /// # Errors
    /// `Transport` if another process listens there, or the path is invalid for a socket.
    pub fn listen(&mut self, poll: &Poll, path: &Path, passed: Option<[OwnedFd; 2]>) -> Result<()> {
        let listener = match passed {
            Some(passed) => Listener::adopt(path, passed),
            None => Listener::bind(path),
        };
        self.listener = Some(listener.map_err(Error::Transport)?);
        self.set_spare();
        self.accepting = Accepting::default();
        self.accepting
            .start(poll, Source::ClientListener, &self.listener)
            .map_err(Error::system("epoll_ctl"))
    }

    /// Bind the socket again if its file was removed; the outcome, if there is one to report.
    pub fn rebind_if_removed(&mut self, poll: &Poll) -> Option<std::result::Result<(), String>> {
        let listener = self
            .listener
            .as_mut()
            .filter(|listener| !self.shut && listener.is_gone())?;
        self.accepting.stop(poll, [&*listener]);
        let attempt = listener.bind_again().map_err(Error::Transport);
        self.accepting
            .resume(poll, Source::ClientListener, [&*listener]);
        self.rebind_reports.report(listener.path(), attempt)
    }

    /// Accept no more clients.
    pub fn stop_listening(&mut self, poll: &Poll) {
        self.accepting.stop(poll, &self.listener);
        self.listener = None;
    }

    /// Accept nobody until [`Self::reopen`], and shut the receiving side of every client.
    pub fn shut(&mut self, poll: &Poll) {
        self.shut = true;
        self.accepting.stop(poll, &self.listener);
        for (_, client) in self.slots.iter_mut() {
            client.shut();
        }
        // What they have sent is read in the next turns: the kernel reports the end of each as input.
        self.resume();
    }

    /// Accept again.
    pub fn reopen(&mut self, poll: &Poll) {
        self.shut = false;
        self.resume_accepting(poll, Instant::now());
    }

    /// Whether everything was read that clients had sent before [`Self::shut`].
    pub fn has_read_all(&self) -> bool {
        let mut clients = self.slots.iter();
        clients.all(|(_, client)| client.has_sent_all())
    }

    /// The calls that wait for the end of a request which they have submitted themselves.
    pub fn runs(&self) -> Vec<(Key, u64, RequestId)> {
        let clients = self.slots.iter();
        let runs = clients.flat_map(|(key, client)| {
            let runs = client.runs();
            runs.map(move |(call, id)| (key, call, id))
        });
        runs.collect()
    }

    /// Whether every client has all answers, but for streams and for ends that it asks the next server for.
    pub fn is_answered(&self) -> bool {
        let mut clients = self.slots.iter();
        clients.all(|(_, client)| client.is_answered())
    }

    /// The keys of all clients.
    pub fn keys(&self) -> Vec<Key> {
        self.slots.iter().map(|(key, _)| key).collect()
    }

    /// The files of the socket and its lock are this process's from now on.
    pub fn own_socket(&mut self) {
        if let Some(listener) = &mut self.listener {
            listener.own_files();
        }
    }

    /// Duplicates of the socket and its lock, whose files stay.
    ///
    /// # Errors
    /// `Transport`: no descriptor is left; `Config`: there is no socket.
    pub fn give_listener(&mut self) -> Result<[OwnedFd; 2]> {
        let none = || Error::Config("there is no socket for clients to give away".into());
        let listener = self.listener.as_mut().ok_or_else(none)?;
        listener.give().map_err(Error::Transport)
    }

    /// Take connections of this process for the gateway's, also those that it has when another one is set: it is the
    /// gateway of the server before, and ends what it has begun.
    pub fn inherit_gateway(&mut self, pid: Option<NonZeroI32>) {
        self.former = pid;
        self.gateway = pid;
    }

    /// Take connections of this process for the gateway's, and those of another one no longer.
    pub fn set_gateway(&mut self, pid: Option<NonZeroI32>) {
        self.gateway = pid;
    }

    /// Whether a client is the gateway: the kernel's word for its process is compared, not its own.
    pub fn is_gateway(&self, key: Key) -> bool {
        let client = self.slots.get(key);
        client.is_some_and(|client| {
            let is_current = self.gateway.is_some() && client.pid() == self.gateway;
            is_current || client.is_former_gateway()
        })
    }

    pub fn get_mut(&mut self, key: Key) -> Option<&mut Client> {
        self.slots.get_mut(key)
    }

    /// The connection of a client, for its streams.
    pub fn connection(&self, key: Key) -> Option<&Connection> {
        self.slots.get(key).map(Client::connection)
    }

    /// Accept the clients that wait; their keys.
    pub fn accept(&mut self, poll: &Poll) -> Vec<Key> {
        let mut came = Vec::new();
        for _ in 0..ACCEPTS_PER_TURN {
            if self.slots.len() >= CLIENTS_MAX + REFUSED_MAX {
                self.accepting.stop(poll, &self.listener);
                break;
            }
            let shortage = (self.slots.len() >= CLIENTS_MAX).then_some(Shortage::Clients);
            let Some(listener) = &self.listener else {
                break;
            };
            match listener.accept() {
                Ok(Some(socket)) => came.extend(self.add(poll, socket, shortage)),
                Ok(None) => break,
                // The spare descriptor makes room for one client, which is then told the reason.
                Err(_) if self.spare.take().is_some() => {
                    if let Ok(Some(socket)) = listener.accept() {
                        came.extend(self.add(poll, socket, Some(Shortage::Descriptors)));
                    }
                }
                Err(_) => {
                    // The process has no descriptor left, and no event reports when it has one again.
                    self.set_spare();
                    self.refusals.add(Shortage::Descriptors);
                    self.accepting.pause(poll, &self.listener);
                    break;
                }
            }
        }
        came
    }

    /// Accept again, unless there is no room or a pause lasts.
    pub fn resume_accepting(&mut self, poll: &Poll, now: Instant) {
        if self.shut {
            return;
        }
        if !self.accepting.ends_pause(now) && self.accepting.deadline().is_some() {
            return;
        }
        self.set_spare();
        if self.slots.len() < CLIENTS_MAX + REFUSED_MAX {
            self.accepting
                .resume(poll, Source::ClientListener, &self.listener);
        }
    }

    /// When accepting resumes, or a refused client is disconnected.
    pub fn resumes(&self) -> Option<Instant> {
        let refused = self.refused.iter();
        let leave = refused.filter_map(|key| self.slots.get(*key)?.leaves());
        leave.chain(self.accepting.deadline()).min()
    }

    /// The refused clients to disconnect now.
    pub fn take_overdue(&mut self, now: Instant) -> Vec<Key> {
        let slots = &self.slots;
        let leaves = |key: &mut Key| {
            let leaves = slots.get(*key).and_then(Client::leaves);
            leaves.is_none_or(|leaves| leaves <= now)
        };
        self.refused.extract_if(.., leaves).collect()
    }

    /// A warning about refused clients, for the server's log.
    pub fn take_warning(&mut self, now: Instant) -> Option<String> {
        self.refusals.take_warning(now)
    }

    fn set_spare(&mut self) {
        if self.spare.is_none() {
            self.spare = File::open("/dev/null").ok();
        }
    }

    /// Read a turn's worth of input from a client.
    pub fn receive(&mut self, key: Key) -> Input {
        let Some(client) = self.slots.get_mut(key) else {
            return Input::default();
        };
        let input = client.receive();
        // The epoll does not report again what the connection has already read from its socket.
        if input.calls.len() == CALLS_A_TURN && !input.over {
            self.again.push(key);
        }
        self.touch(key);
        input
    }

    /// The clients whose input exceeded a turn's worth.
    pub fn take_again(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.again)
    }

    /// Stop reading from a client until `resume`. Its sends block once the kernel's buffers are full.
    pub fn pause(&mut self, key: Key) {
        let Some(client) = self.slots.get_mut(key) else {
            return;
        };
        if client.pause() {
            self.paused.push(key);
        }
        self.again.retain(|one| *one != key);
        self.touch(key);
    }

    /// Read from all clients again.
    pub fn resume(&mut self) {
        for key in std::mem::take(&mut self.paused) {
            if let Some(client) = self.slots.get_mut(key) {
                client.resume();
                self.again.push(key);
            }
            self.touch(key);
        }
    }

    /// Whether a client's input exceeded a turn's worth.
    pub fn has_more(&self) -> bool {
        !self.again.is_empty()
    }

    /// Note that a call waits for an answer of the store.
    pub fn await_store(&mut self, key: Key, call: u64) {
        if let Some(client) = self.slots.get_mut(key) {
            client.open(call, OpenCall::Stored);
        }
    }

    /// Take in which protocol a client speaks. One of a later version is answered with this refusal from now on.
    ///
    /// # Errors
    /// `protocol`, if this server does not know it; `invalid`, if none has that number.
    pub fn greet(&mut self, key: Key, protocol: u64) -> std::result::Result<(), Refusal> {
        let client = self.slots.get_mut(key);
        client.map_or(Ok(()), |client| client.greet(protocol))
    }

    /// Whether a client has read enough to be sent another large answer.
    pub fn takes_results(&self, key: Key) -> bool {
        self.slots.get(key).is_some_and(Client::takes_results)
    }

    /// Queue a question to the store until the client has read enough.
    pub fn fetch_later(&mut self, key: Key, call: u64, id: RequestId, question: Question) {
        if let Some(client) = self.slots.get_mut(key) {
            client.fetch_later(call, id, question);
            self.awaiting_fetch.push(key);
        }
    }

    /// Clients with queued questions that may take an answer now.
    pub fn take_awaiting_fetch(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.awaiting_fetch)
    }

    /// The next queued question of a client that takes results; the caller asks the store.
    pub fn next_fetch(&mut self, key: Key) -> Option<(u64, RequestId, Question)> {
        self.slots.get_mut(key)?.next_fetch()
    }

    /// The store has answered a question of a client.
    pub fn fetched(&mut self, key: Key) {
        if let Some(client) = self.slots.get_mut(key) {
            client.fetched();
        }
        self.touch(key); // for its next one
    }

    /// Keep a result from the retention, since this client may still fetch it.
    pub fn protect_result(&mut self, key: Key, id: RequestId, all: &Unread) {
        if let Some(client) = self.slots.get_mut(key) {
            client.protect_result(id, all);
        }
    }

    /// A client has a result, or there is none.
    pub fn result_read(&mut self, key: Key, id: RequestId, all: &Unread) {
        if let Some(client) = self.slots.get_mut(key) {
            client.result_read(id, all);
        }
    }

    /// Refuse a call if its client is connected.
    pub fn refuse(&mut self, key: Key, call: u64, refusal: &Refusal) {
        self.answer(key, call, plain(message::refused(refusal)));
    }

    /// Answer a call if its client is connected. The answer is flushed at the end of the turn.
    pub fn answer(&mut self, key: Key, call: u64, message: Message) {
        let Some(client) = self.slots.get_mut(key) else {
            return;
        };
        client.answer(call, message);
        self.touch(key);
    }

    /// Flush a client now.
    pub fn flush_now(&mut self, key: Key) {
        if let Some(client) = self.slots.get_mut(key) {
            client.flush();
        }
        self.touch(key);
    }

    /// Have a client flushed at the end of the turn.
    pub fn touch(&mut self, key: Key) {
        if let Some(client) = self.slots.get_mut(key)
            && client.touch()
        {
            self.touched.push(key);
        }
    }

    /// Flush each touched client once; the keys of those to disconnect, since they read too little or have gone.
    pub fn flush(&mut self, poll: &Poll) -> Vec<Key> {
        let mut behind = Vec::new();
        for key in std::mem::take(&mut self.touched) {
            let Some(client) = self.slots.get_mut(key) else {
                continue;
            };
            if !client.end_turn(poll) {
                behind.push(key);
            } else if client.has_later() {
                self.awaiting_fetch.push(key);
            }
        }
        behind
    }

    /// Disconnect a client; its requests continue, and no result is kept for it. Its unanswered calls.
    pub fn remove(
        &mut self,
        poll: &Poll,
        key: Key,
        all: Option<&Unread>,
    ) -> Option<ByNumber<u64, OpenCall>> {
        let mut client = self.slots.remove(key)?;
        client.disconnect(poll);
        if !self.shut {
            self.accepting
                .resume(poll, Source::ClientListener, &self.listener);
        }
        if let Some(all) = all {
            client.results_unread(all);
        }
        Some(client.into_open())
    }

    /// Serve the client of a socket, or refuse it for a shortage. `None`: another user's, or it has gone.
    pub fn add(&mut self, poll: &Poll, socket: OwnedFd, shortage: Option<Shortage>) -> Option<Key> {
        // The file's mode excludes other users, but another user may have created its directory.
        let (uid, pid) = (peer_uid(&socket).ok()?, peer_pid(&socket).ok()?);
        if uid != geteuid().as_raw() {
            return None;
        }
        let connection = connection(socket)?;
        let is_former = pid.is_some() && pid == self.former && pid == self.gateway;
        let insert = |key| Client::new(connection, key, (pid, is_former));
        let key = self.slots.insert_with(insert);
        let client = self.slots.get_mut(key)?;
        client.begin(poll);
        if let Some(shortage) = shortage {
            client.refuse(shortage);
            self.refused.push(key);
            self.refusals.add(shortage);
        }
        Some(key)
    }
}

/// The connection of a client.
fn connection(socket: OwnedFd) -> Option<Connection> {
    // A program may submit for a long time before it reads its first result: it is made to wait before it is
    // disconnected.
    let limits = Limits {
        answers_bytes_max: CLIENT_UNREAD_BYTES_MAX,
        ..Limits::default()
    };
    let options = Options {
        limits,
        lends: false, // a result may outlive the request whose memory it would be
        ..Options::new(Role::Server, "a client")
    };
    let connection = Connection::new(socket, options).ok()?;
    connection.attach().ok()?;
    // Answers are collected until `flush`: one write for each turn.
    connection.cork().ok()?;
    Some(connection)
}

/// A head without a blob beside it.
pub fn plain(head: Vec<u8>) -> Message {
    Message {
        head,
        segment: None,
    }
}

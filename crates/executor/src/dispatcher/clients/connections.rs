//! The connections of clients: accepted, read in bounded turns, flushed once a turn.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs::File;
use std::num::NonZeroI32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use forebay_base::accept::{ACCEPTS_PER_TURN, Accepting};
use forebay_base::slots::{Key, Slots};
use forebay_transport::calls::{Call, Connection, Options};
use forebay_transport::limit::Limits;
use forebay_transport::link::{Head, Payload};
use forebay_transport::stream::unix::{Listener, peer_pid, peer_uid};
use forebay_transport::wire::{Codec, Role};
use rustix::process::geteuid;

use crate::dispatcher::clients::refused::{Refusals, Shortage};
use crate::dispatcher::limit::{
    CALLS_A_TURN, CLIENT_FETCHES_MAX, CLIENT_OUTBOX_BYTES_MAX, CLIENT_RESULTS_BYTES_MAX,
    CLIENT_UNREAD_BYTES_MAX, CLIENTS_MAX, REFUSED_ANSWERED_MS, REFUSED_MAX, REFUSED_MS,
    UNREAD_RESULTS_PER_CLIENT_MAX,
};
use crate::dispatcher::poll::{Poll, Ready, Source, Token};
use crate::dispatcher::rebinding::RebindReports;
use crate::error::{Error, Refusal, Result};
use crate::hash::ByNumber;
use crate::id::RequestId;
use crate::message::{self, Message, PROTOCOL};
use crate::store::{Question, Unread};

/// What an unanswered call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenCall {
    /// An event of this request, which came with this submission token.
    Request(RequestId, Option<u64>),
    /// The server's main thread.
    Ticket(u64),
    /// The store, which was asked for the answer.
    Stored,
    /// The store, which was asked for an end with its result.
    Fetching,
    /// Its client: the store is asked once the client has read earlier answers.
    Later,
    /// Nothing: a stream answers it.
    Stream,
}

/// One client.
pub struct Client {
    connection: Connection,
    key: Key,
    /// Its process when it connected, as far as it can be seen from here.
    pid: Option<NonZeroI32>,
    watched: Ready,
    touched: bool,
    /// Nothing more is read from it for now.
    paused: bool,
    /// An answer came while it had too many bytes unread: it is disconnected at the end of the turn.
    behind: bool,
    /// The longest answer since it had read everything.
    longest: usize,
    /// It is refused for this shortage, and is disconnected at this time.
    refused: Option<(Shortage, Instant)>,
    /// It speaks this protocol, which this server does not know.
    unknown_protocol: Option<u64>,
    /// Questions that the store has not answered, also those whose call was abandoned: they occupy the store all the
    /// same.
    fetching: usize,
    /// Questions that the store was not asked yet.
    later: VecDeque<(u64, RequestId, Question)>,
    /// Of these, the abandoned ones: at most half, so that their removal costs a constant per call.
    dead: usize,
    /// Unanswered calls.
    open: ByNumber<u64, OpenCall>,
    /// Requests whose end it received without the result, which it has not fetched.
    unread: BTreeSet<RequestId>,
    /// Unanswered submissions by their submission tokens: a keyed hash, since the client could choose colliding ones.
    tokens: HashMap<u64, RequestId>,
}

/// What a client sent in one turn.
#[derive(Default)]
pub struct Input {
    pub calls: Vec<Call>,
    /// Calls that it cancelled.
    pub cancelled: Vec<u64>,
    /// Streams that have credit again.
    pub granted: Vec<u64>,
    /// It has disconnected.
    pub over: bool,
}

/// All clients, with the listener.
#[derive(Default)]
pub struct Connections {
    listener: Option<Listener>,
    accepting: Accepting,
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
}

impl Connections {
    /// Listen at `path`, for this user alone.
    ///
    /// # Errors
    /// `Transport` if another process listens there, or the path is invalid for a socket.
    pub fn listen(&mut self, poll: &Poll, path: &Path) -> Result<()> {
        self.listener = Some(Listener::bind(path).map_err(Error::Transport)?);
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
            .filter(|listener| listener.is_gone())?;
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

    /// Take connections of this process for the gateway's, and those of another one no longer.
    pub fn set_gateway(&mut self, pid: Option<NonZeroI32>) {
        self.gateway = pid;
    }

    /// Whether a client is the gateway: the kernel's word for its process is compared, not its own.
    pub fn is_gateway(&self, key: Key) -> bool {
        let client = self.slots.get(key);
        self.gateway.is_some() && client.is_some_and(|client| client.pid == self.gateway)
    }

    pub fn get_mut(&mut self, key: Key) -> Option<&mut Client> {
        self.slots.get_mut(key)
    }

    /// The connection of a client, for its streams.
    pub fn connection(&self, key: Key) -> Option<&Connection> {
        self.slots.get(key).map(|client| &client.connection)
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
        let refused = refused.filter_map(|key| self.slots.get(*key)?.refused);
        let leave = refused.map(|(_, leaves)| leaves);
        leave.chain(self.accepting.deadline()).min()
    }

    /// The refused clients to disconnect now.
    pub fn take_overdue(&mut self, now: Instant) -> Vec<Key> {
        let slots = &self.slots;
        let leaves = |key: &mut Key| {
            let client = slots.get(*key).and_then(|client| client.refused);
            client.is_none_or(|(_, leaves)| leaves <= now)
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
        let mut input = Input::default();
        let Some(client) = self.slots.get_mut(key) else {
            return input;
        };
        let connection = &client.connection;
        let read = connection.receive().and_then(|_| {
            input.cancelled = connection.take_cancelled()?;
            input.granted = connection.take_granted()?;
            input.calls = connection.poll_calls(CALLS_A_TURN)?;
            Ok(())
        });
        input.over = read.is_err() || connection.is_over();
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
        if !std::mem::replace(&mut client.paused, true) {
            self.paused.push(key);
        }
        self.again.retain(|one| *one != key);
        self.touch(key);
    }

    /// Read from all clients again.
    pub fn resume(&mut self) {
        for key in std::mem::take(&mut self.paused) {
            if let Some(client) = self.slots.get_mut(key) {
                client.paused = false;
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
            client.open.insert(call, OpenCall::Stored);
        }
    }

    /// Take in which protocol a client speaks. One of a later version is answered with this refusal from now on.
    ///
    /// # Errors
    /// `protocol`, if this server does not know it; `invalid`, if none has that number.
    pub fn greet(&mut self, key: Key, protocol: u64) -> std::result::Result<(), Refusal> {
        if protocol == 0 {
            let next = "use a client of this version";
            return Err(Refusal::invalid(
                "a client's protocol",
                "1 or more",
                "0",
                next,
            ));
        }
        let client = self.slots.get_mut(key);
        let Some(client) = client.filter(|_| protocol > PROTOCOL) else {
            return Ok(());
        };
        client.unknown_protocol = Some(protocol);
        Err(unknown_protocol(protocol))
    }

    /// Whether a client has read enough to be sent another large answer.
    pub fn takes_results(&mut self, key: Key) -> bool {
        self.slots
            .get_mut(key)
            .is_some_and(|client| client.connection.outbox_bytes() <= CLIENT_RESULTS_BYTES_MAX)
    }

    /// Queue a question to the store until the client has read enough.
    pub fn fetch_later(&mut self, key: Key, call: u64, id: RequestId, question: Question) {
        if let Some(client) = self.slots.get_mut(key) {
            client.open.insert(call, OpenCall::Later);
            client.later.push_back((call, id, question));
            self.awaiting_fetch.push(key);
        }
    }

    /// Clients with queued questions that may take an answer now.
    pub fn take_awaiting_fetch(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.awaiting_fetch)
    }

    /// The next queued question of a client that takes results; the caller asks the store.
    pub fn next_fetch(&mut self, key: Key) -> Option<(u64, RequestId, Question)> {
        let client = self.slots.get_mut(key)?;
        while client.fetching < CLIENT_FETCHES_MAX
            && client.connection.outbox_bytes() <= CLIENT_RESULTS_BYTES_MAX
        {
            let (call, id, question) = client.later.pop_front()?;
            // Otherwise the call was abandoned.
            if client.open.get(&call) == Some(&OpenCall::Later) {
                client.open.insert(call, OpenCall::Fetching);
                client.fetching += 1;
                return Some((call, id, question));
            }
            client.dead = client.dead.saturating_sub(1);
        }
        None
    }

    /// The store has answered a question of a client.
    pub fn fetched(&mut self, key: Key) {
        if let Some(client) = self.slots.get_mut(key) {
            client.fetching -= 1;
        }
        self.touch(key); // for its next one
    }

    /// Keep a result from the retention, since this client may still fetch it.
    pub fn protect_result(&mut self, key: Key, id: RequestId, all: &Unread) {
        let Some(client) = self.slots.get_mut(key) else {
            return;
        };
        let unread = &mut client.unread;
        if unread.contains(&id) {
            return;
        }
        let added = unread.len() < UNREAD_RESULTS_PER_CLIENT_MAX && all.add(id);
        // At the limit its oldest makes room: the retention removes the oldest first in any case.
        let oldest = if added { None } else { unread.pop_first() };
        if let Some(oldest) = oldest {
            all.remove(oldest);
        }
        if added || (oldest.is_some() && all.add(id)) {
            unread.insert(id);
        }
    }

    /// A client has a result, or there is none.
    pub fn result_read(&mut self, key: Key, id: RequestId, all: &Unread) {
        let client = self.slots.get_mut(key);
        if client.is_some_and(|client| client.unread.remove(&id)) {
            all.remove(id);
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
        client.close(call);
        let unsent_bytes = client.connection.outbox_bytes();
        // One large answer alone is no reason to disconnect.
        let longest = if unsent_bytes == 0 { 0 } else { client.longest };
        client.behind |= unsent_bytes > CLIENT_OUTBOX_BYTES_MAX + longest;
        client.longest = longest.max(message.segment.as_ref().map_or(0, |blob| blob.len()));
        let segments = message.segment.into_iter();
        let segments = segments.map(|blob| Box::new(blob) as Payload).collect();
        let head = Head::Borrowed(&message.head);
        let sent = client
            .connection
            .reply(call, Codec::Msgpack, head, segments);
        if let Err(error) = sent {
            let refusal = message::refused(&Refusal::invalid(
                "the answer",
                "one that both ends take",
                &error.to_string(),
                "ask for less at once",
            ));
            let head = Head::Borrowed(&refusal);
            drop(
                client
                    .connection
                    .reply(call, Codec::Msgpack, head, Vec::new()),
            );
        }
        self.touch(key);
    }

    /// Flush a client now.
    pub fn flush_now(&mut self, key: Key) {
        if let Some(client) = self.slots.get_mut(key) {
            // A broken connection is found at the end of the turn.
            drop(client.connection.flush());
        }
        self.touch(key);
    }

    /// Have a client flushed at the end of the turn.
    pub fn touch(&mut self, key: Key) {
        if let Some(client) = self.slots.get_mut(key)
            && !std::mem::replace(&mut client.touched, true)
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
            client.touched = false;
            drop(client.connection.flush());
            // A connection that a write found broken is not watched again.
            if client.behind || client.connection.is_over() {
                behind.push(key);
                continue;
            }
            if !client.later.is_empty() {
                self.awaiting_fetch.push(key);
            }
            let (read, write) = client.connection.wants().unwrap_or_default();
            let read = read && !client.paused;
            client.watch(poll, Ready { read, write });
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
        client.watch(poll, Ready::default());
        client.connection.close();
        self.accepting
            .resume(poll, Source::ClientListener, &self.listener);
        if let Some(all) = all {
            client.unread.iter().for_each(|id| all.remove(*id));
        }
        Some(client.open)
    }

    /// Serve the client of a socket, or refuse it for a shortage. `None`: another user's, or it has gone.
    pub fn add(&mut self, poll: &Poll, socket: OwnedFd, shortage: Option<Shortage>) -> Option<Key> {
        // The file's mode excludes other users, but another user may have created its directory.
        let (uid, pid) = (peer_uid(&socket).ok()?, peer_pid(&socket).ok()?);
        if uid != geteuid().as_raw() {
            return None;
        }
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
        let key = self.slots.insert_with(|key| Client {
            connection,
            key,
            pid,
            watched: Ready::default(),
            touched: false,
            paused: false,
            behind: false,
            longest: 0,
            refused: None,
            unknown_protocol: None,
            fetching: 0,
            later: VecDeque::new(),
            dead: 0,
            open: ByNumber::default(),
            unread: BTreeSet::new(),
            tokens: HashMap::new(),
        });
        let client = self.slots.get_mut(key)?;
        client.watch(poll, Ready::READ);
        if let Some(shortage) = shortage {
            let leaves = Instant::now() + Duration::from_millis(REFUSED_MS);
            client.refused = Some((shortage, leaves));
            self.refused.push(key);
            self.refusals.add(shortage);
        }
        Some(key)
    }
}

impl Client {
    /// The refusal of a client that is not served. One for whom there is no room is disconnected soon after its first
    /// answer.
    pub fn refusal(&mut self) -> Option<Refusal> {
        if let Some(protocol) = self.unknown_protocol {
            return Some(unknown_protocol(protocol));
        }
        let (shortage, leaves) = self.refused.as_mut()?;
        let soon = Instant::now() + Duration::from_millis(REFUSED_ANSWERED_MS);
        *leaves = soon.min(*leaves);
        Some(shortage.refusal())
    }

    /// How many calls are unanswered.
    pub fn open_calls(&self) -> usize {
        self.open.len()
    }

    /// A call is answered by a ticket's answer, or as a stream.
    pub fn open(&mut self, call: u64, waits_for: OpenCall) {
        self.open.insert(call, waits_for);
    }

    /// A call waits for an event of a request, which other calls may name by its submission token until then.
    pub fn await_request(&mut self, call: u64, id: RequestId, token: Option<u64>) {
        self.open.insert(call, OpenCall::Request(id, token));
        self.tokens.extend(token.map(|token| (token, id)));
    }

    /// The unanswered submission with this token.
    pub fn submitted(&self, token: u64) -> Option<RequestId> {
        self.tokens.get(&token).copied()
    }

    /// Forget a call that was answered or abandoned.
    pub fn close(&mut self, call: u64) -> Option<OpenCall> {
        let open = self.open.remove(&call)?;
        if open == OpenCall::Later {
            self.dead += 1;
            if 2 * self.dead > self.later.len() {
                let open = &self.open;
                self.later
                    .retain(|(call, ..)| open.get(call) == Some(&OpenCall::Later));
                self.dead = 0;
            }
        }
        if let OpenCall::Request(id, Some(token)) = open
            && self.tokens.get(&token) == Some(&id)
        {
            self.tokens.remove(&token); // unless a later submission has it
        }
        Some(open)
    }

    fn watch(&mut self, poll: &Poll, wanted: Ready) {
        let Some(socket) = self.connection.socket() else {
            return;
        };
        let token = Token::new(Source::Client, self.key);
        let socket: BorrowedFd<'_> = socket.as_fd();
        if poll.change(socket, token, self.watched, wanted).is_ok() {
            self.watched = wanted;
        }
    }
}

fn unknown_protocol(protocol: u64) -> Refusal {
    Refusal {
        code: "protocol",
        message: format!(
            "the client speaks protocol {protocol} of the executor, and this server knows protocols up to {PROTOCOL}"
        ),
        object: "protocol".into(),
        limit: PROTOCOL.to_string(),
        value: protocol.to_string(),
        next: "stop the server and start it again with the client's version of forebay, or use a client of the \
               server's version"
            .into(),
    }
}

/// A head without a blob beside it.
pub fn plain(head: Vec<u8>) -> Message {
    Message {
        head,
        segment: None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A client, with the peer's socket, which must stay open.
    fn connected(clients: &mut Connections) -> (Key, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let poll = Poll::new().expect("a poll");
        let key = clients.add(&poll, ours.into(), None).expect("a key");
        (key, theirs)
    }

    fn ask(clients: &mut Connections, key: Key, call: u64) {
        clients.fetch_later(key, call, RequestId(7), Question::Whole);
    }

    fn abandon(clients: &mut Connections, key: Key, call: u64) {
        clients.get_mut(key).expect("a client").close(call);
    }

    #[test]
    fn questions_that_were_given_up_take_no_memory() {
        let mut clients = Connections::default();
        let (key, _theirs) = connected(&mut clients);
        let most = CLIENT_FETCHES_MAX as u64;
        for call in 0..most + 2 {
            ask(&mut clients, key, call);
        }
        while clients.next_fetch(key).is_some() {}
        for call in 100..100_000 {
            ask(&mut clients, key, call);
            abandon(&mut clients, key, call);
            let waiting = clients.get_mut(key).expect("a client").later.len();
            assert!(waiting <= 4, "{waiting} questions wait, and two are wanted");
        }
        // The two that are wanted are still asked, in their order.
        for call in most..most + 2 {
            clients.fetched(key);
            let next = clients.next_fetch(key).expect("a question");
            assert_eq!(next.0, call);
        }
        clients.fetched(key);
        assert!(clients.next_fetch(key).is_none());
    }

    #[test]
    fn a_client_that_abandons_its_questions_has_no_more_of_them_at_the_store() {
        let mut clients = Connections::default();
        let (key, _theirs) = connected(&mut clients);
        for call in 0..100 {
            ask(&mut clients, key, call);
        }
        let mut asked = 0;
        while let Some((call, ..)) = clients.next_fetch(key) {
            abandon(&mut clients, key, call);
            asked += 1;
        }
        assert_eq!(asked, CLIENT_FETCHES_MAX);
        clients.fetched(key);
        assert!(clients.next_fetch(key).is_some());
        assert!(clients.next_fetch(key).is_none());
    }
}

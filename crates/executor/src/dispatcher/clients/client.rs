//! One client: its connection, its unanswered calls, what it still may fetch.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::num::NonZeroI32;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use forebay_base::slots::Key;
use forebay_transport::calls::{Call, Connection};
use forebay_transport::link::{Head, Payload};
use forebay_transport::wire::Codec;
use rustix::net::{Shutdown, shutdown};

use crate::dispatcher::clients::refused::Shortage;
use crate::dispatcher::limit::{
    CALLS_A_TURN, CLIENT_FETCHES_MAX, CLIENT_OUTBOX_BYTES_MAX, CLIENT_RESULTS_BYTES_MAX,
    REFUSED_ANSWERED_MS, REFUSED_MS, UNREAD_RESULTS_PER_CLIENT_MAX,
};
use crate::dispatcher::poll::{Poll, Ready, Source, Token};
use crate::error::Refusal;
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

/// Whether a client is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    On,
    /// Not for now.
    Paused,
    /// Its receiving side is shut: what it had sent before is read and answered, and it is disconnected later.
    Shut,
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

/// One client.
pub struct Client {
    connection: Connection,
    key: Key,
    /// Its process when it connected, as far as it can be seen from here.
    pid: Option<NonZeroI32>,
    /// It is the gateway of the server before, which has ended.
    is_former_gateway: bool,
    watched: Ready,
    touched: bool,
    reading: Reading,
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

/// Its connection.
impl Client {
    pub fn new(
        connection: Connection,
        key: Key,
        (pid, is_former_gateway): (Option<NonZeroI32>, bool),
    ) -> Self {
        Self {
            connection,
            key,
            pid,
            is_former_gateway,
            watched: Ready::default(),
            touched: false,
            reading: Reading::On,
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
        }
    }

    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Its process when it connected, as far as it can be seen from here.
    pub fn pid(&self) -> Option<NonZeroI32> {
        self.pid
    }

    /// Whether it is the gateway of the server before.
    pub fn is_former_gateway(&self) -> bool {
        self.is_former_gateway
    }

    /// Wait for its first call.
    pub fn begin(&mut self, poll: &Poll) {
        self.watch(poll, Ready::READ);
    }

    /// Read a turn's worth of input.
    pub fn receive(&mut self) -> Input {
        let mut input = Input::default();
        let connection = &self.connection;
        let read = connection.receive().and_then(|_| {
            input.cancelled = connection.take_cancelled()?;
            input.granted = connection.take_granted()?;
            input.calls = connection.poll_calls(CALLS_A_TURN)?;
            Ok(())
        });
        input.over = read.is_err() || self.has_left();
        input
    }

    /// Whether it has gone, or nothing more comes from it and it waits for no answer.
    fn has_left(&self) -> bool {
        if self.reading == Reading::Shut {
            self.connection.fault().is_some()
        } else {
            self.connection.is_over()
        }
    }

    /// Shut its receiving side: what it sends from now on fails there, and it knows that it was not read. shutdown(2).
    pub fn shut(&mut self) {
        self.reading = Reading::Shut;
        if let Some(socket) = self.connection.socket() {
            // Where that fails it has gone, which is found when it is read.
            let _ = shutdown(socket.as_fd(), Shutdown::Read);
        }
    }

    /// Whether everything was read that it had sent before it was shut.
    pub fn has_sent_all(&self) -> bool {
        self.connection.is_over()
    }

    /// Read nothing more until `resume`; whether it was read until now.
    pub fn pause(&mut self) -> bool {
        let was_on = self.reading == Reading::On;
        if was_on {
            self.reading = Reading::Paused;
        }
        was_on
    }

    pub fn resume(&mut self) {
        if self.reading == Reading::Paused {
            self.reading = Reading::On;
        }
    }

    /// Answer a call. The answer is flushed at the end of the turn.
    pub fn answer(&mut self, call: u64, message: Message) {
        self.close(call);
        let unsent_bytes = self.connection.outbox_bytes();
        // One large answer alone is no reason to disconnect.
        let longest = if unsent_bytes == 0 { 0 } else { self.longest };
        self.behind |= unsent_bytes > CLIENT_OUTBOX_BYTES_MAX + longest;
        self.longest = longest.max(message.segment.as_ref().map_or(0, |blob| blob.len()));
        let segments = message.segment.into_iter();
        let segments = segments.map(|blob| Box::new(blob) as Payload).collect();
        let head = Head::Borrowed(&message.head);
        let sent = self.connection.reply(call, Codec::Msgpack, head, segments);
        if let Err(error) = sent {
            let refusal = message::refused(&Refusal::invalid(
                "the answer",
                "one that both ends take",
                &error.to_string(),
                "ask for less at once",
            ));
            let head = Head::Borrowed(&refusal);
            drop(
                self.connection
                    .reply(call, Codec::Msgpack, head, Vec::new()),
            );
        }
    }

    /// A broken connection is found at the end of the turn.
    pub fn flush(&self) {
        drop(self.connection.flush());
    }

    /// Have it flushed at the end of the turn; whether it was not to be until now.
    pub fn touch(&mut self) -> bool {
        !std::mem::replace(&mut self.touched, true)
    }

    /// Flush what it was sent in this turn. `false`: it is to be disconnected, since it reads too little or has gone.
    pub fn end_turn(&mut self, poll: &Poll) -> bool {
        self.touched = false;
        self.flush();
        // A connection that a write found broken is not watched again.
        if self.behind || self.has_left() {
            return false;
        }
        let (read, write) = self.connection.wants().unwrap_or_default();
        let read = read && self.reading != Reading::Paused;
        self.watch(poll, Ready { read, write });
        true
    }

    pub fn disconnect(&mut self, poll: &Poll) {
        self.watch(poll, Ready::default());
        self.connection.close();
    }

    /// Its unanswered calls, once it is gone.
    pub fn into_open(self) -> ByNumber<u64, OpenCall> {
        self.open
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

/// Whether it is served.
impl Client {
    /// Take in which protocol it speaks; see `Connections::greet`.
    ///
    /// # Errors
    /// `protocol`, if this server does not know it; `invalid`, if none has that number.
    pub fn greet(&mut self, protocol: u64) -> Result<(), Refusal> {
        if protocol == 0 {
            let next = "use a client of this version";
            return Err(Refusal::invalid(
                "a client's protocol",
                "1 or more",
                "0",
                next,
            ));
        }
        if protocol <= PROTOCOL {
            return Ok(());
        }
        self.unknown_protocol = Some(protocol);
        Err(unknown_protocol(protocol))
    }

    /// Refuse all of its calls for a shortage, and have it disconnected soon.
    pub fn refuse(&mut self, shortage: Shortage) {
        let leaves = Instant::now() + Duration::from_millis(REFUSED_MS);
        self.refused = Some((shortage, leaves));
    }

    /// When it is disconnected, if it is refused.
    pub fn leaves(&self) -> Option<Instant> {
        self.refused.map(|(_, leaves)| leaves)
    }

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
}

/// Its unanswered calls.
impl Client {
    /// How many calls are unanswered.
    pub fn open_calls(&self) -> usize {
        self.open.len()
    }

    /// The calls that have submitted a request and wait for its end.
    pub fn runs(&self) -> impl Iterator<Item = (u64, RequestId)> {
        let open = self.open.iter();
        open.filter_map(|(call, open)| match open {
            OpenCall::Request(id, Some(_)) => Some((*call, *id)),
            _ => None,
        })
    }

    /// Whether it has every answer, but for streams and for ends that it asks another server for.
    pub fn is_answered(&self) -> bool {
        let is_left = |open: &OpenCall| matches!(open, OpenCall::Request(..) | OpenCall::Stream);
        self.open.values().all(is_left) && self.connection.outbox_bytes() == 0
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
}

/// Its questions to the store.
impl Client {
    /// Whether it has read enough to be sent another large answer.
    pub fn takes_results(&self) -> bool {
        self.connection.outbox_bytes() <= CLIENT_RESULTS_BYTES_MAX
    }

    /// Queue a question until it has read enough.
    pub fn fetch_later(&mut self, call: u64, id: RequestId, question: Question) {
        self.open.insert(call, OpenCall::Later);
        self.later.push_back((call, id, question));
    }

    pub fn has_later(&self) -> bool {
        !self.later.is_empty()
    }

    /// The next queued question, if it takes results; the caller asks the store.
    pub fn next_fetch(&mut self) -> Option<(u64, RequestId, Question)> {
        while self.fetching < CLIENT_FETCHES_MAX && self.takes_results() {
            let (call, id, question) = self.later.pop_front()?;
            // Otherwise the call was abandoned.
            if self.open.get(&call) == Some(&OpenCall::Later) {
                self.open.insert(call, OpenCall::Fetching);
                self.fetching += 1;
                return Some((call, id, question));
            }
            self.dead = self.dead.saturating_sub(1);
        }
        None
    }

    /// The store has answered a question.
    pub fn fetched(&mut self) {
        self.fetching -= 1;
    }

    /// Keep a result from the retention, since it may still be fetched.
    pub fn protect_result(&mut self, id: RequestId, all: &Unread) {
        let unread = &mut self.unread;
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

    /// It has a result, or there is none.
    pub fn result_read(&mut self, id: RequestId, all: &Unread) {
        if self.unread.remove(&id) {
            all.remove(id);
        }
    }

    /// No result is kept for it any more.
    pub fn results_unread(&self, all: &Unread) {
        self.unread.iter().for_each(|id| all.remove(*id));
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

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use forebay_transport::calls::Options;
    use forebay_transport::wire::Role;

    use super::*;

    /// A client, with the peer's socket, which must stay open.
    fn connected() -> (Client, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let options = Options::new(Role::Server, "a client");
        let connection = Connection::new(OwnedFd::from(ours), options).expect("a connection");
        let key = Key {
            index: 0,
            generation: 0,
        };
        (Client::new(connection, key, (None, false)), theirs)
    }

    fn ask(client: &mut Client, call: u64) {
        client.fetch_later(call, RequestId(7), Question::Whole);
    }

    #[test]
    fn questions_that_were_given_up_take_no_memory() {
        let (mut client, _theirs) = connected();
        let most = CLIENT_FETCHES_MAX as u64;
        for call in 0..most + 2 {
            ask(&mut client, call);
        }
        while client.next_fetch().is_some() {}
        for call in 100..100_000 {
            ask(&mut client, call);
            client.close(call);
            let waiting = client.later.len();
            assert!(waiting <= 4, "{waiting} questions wait, and two are wanted");
        }
        // The two that are wanted are still asked, in their order.
        for call in most..most + 2 {
            client.fetched();
            let next = client.next_fetch().expect("a question");
            assert_eq!(next.0, call);
        }
        client.fetched();
        assert!(client.next_fetch().is_none());
    }

    #[test]
    fn a_client_that_abandons_its_questions_has_no_more_of_them_at_the_store() {
        let (mut client, _theirs) = connected();
        for call in 0..100 {
            ask(&mut client, call);
        }
        let mut asked = 0;
        while let Some((call, ..)) = client.next_fetch() {
            client.close(call);
            asked += 1;
        }
        assert_eq!(asked, CLIENT_FETCHES_MAX);
        client.fetched();
        assert!(client.next_fetch().is_some());
        assert!(client.next_fetch().is_none());
    }
}

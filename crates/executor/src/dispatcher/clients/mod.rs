//! The connections of clients: accepted, read in turns, written once a turn.

pub(super) mod answers;
mod calls;
pub(super) mod desk;
pub(super) mod following;
mod refused;
pub(super) mod streams;
pub(super) mod waiting;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use forebay_transport::calls::{Call, Connection, Options};
use forebay_transport::limit::Limits;
use forebay_transport::link::{Head, Payload};
use forebay_transport::stream::unix::{Listener, peer_uid};
use forebay_transport::wire::{Codec, Role};
use rustix::process::geteuid;

use crate::dispatcher::clients::refused::{Count, Lack};
use crate::dispatcher::hash::ByNumber;
use crate::dispatcher::limit::{
    ACCEPT_PAUSE_MS, ACCEPTS_A_TURN, CALLS_A_TURN, CLIENT_FETCHES_MAX, CLIENT_OUTBOX_BYTES_MAX,
    CLIENT_RESULTS_BYTES_MAX, CLIENT_UNREAD_BYTES_MAX, CLIENTS_MAX, REFUSED_ANSWERED_MS,
    REFUSED_MAX, REFUSED_MS,
};
use crate::dispatcher::place::Made;
use crate::dispatcher::poll::{Place, Poll, Ready, Source};
use crate::dispatcher::seats::Seats;
use crate::error::{Error, Refusal, Result};
use crate::id::RequestId;
use crate::message::Message;
use crate::store::Question;

/// What a call that is not answered waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// Something of this request, which was submitted with this token.
    Request(RequestId, Option<u64>),
    /// The store, or the server's main thread.
    Ticket(u64),
    /// The store is asked for the answer.
    Stored,
    /// The store is asked for an end, with its result.
    Fetching,
    /// The store will be asked once the client has taken what it was sent.
    Later,
    /// It is answered by a stream.
    Stream,
}

/// One client.
pub struct Client {
    pub connection: Connection,
    pub place: Place,
    watched: Ready,
    touched: bool,
    /// Nothing more is taken from it for now.
    paused: bool,
    /// An answer came while it had not taken more than so much of those before.
    behind: bool,
    /// The longest answer since it had taken all.
    longest: usize,
    /// It is refused for want of this, and has to leave by then.
    refused: Option<(Lack, Instant)>,
    /// Questions to the store that it has not answered, whether or not somebody waits still.
    fetching: usize,
    /// And those that are not asked yet.
    later: VecDeque<(u64, RequestId, Question)>,
    /// Of these, those that were given up: half of them at most.
    dead: usize,
    /// Calls that are not answered.
    pub open: ByNumber<u64, Open>,
    /// Requests that it was told of without their results, and has not come for.
    pub unread: BTreeSet<RequestId>,
    /// Submissions that are not answered, by the token that the client chose.
    pub tokens: HashMap<u64, RequestId>,
}

/// What a client has sent in one turn.
#[derive(Default)]
pub struct Input {
    pub calls: Vec<Call>,
    /// Calls that it gave up.
    pub cancelled: Vec<u64>,
    /// Streams that may go on.
    pub granted: Vec<u64>,
    /// It has left.
    pub over: bool,
}

/// All clients, and the door.
#[derive(Default)]
pub struct Clients {
    listener: Option<Listener>,
    accepting: Ready,
    resumes: Option<Instant>,
    seats: Seats<Client>,
    touched: Vec<Place>,
    again: Vec<Place>,
    paused: Vec<Place>,
    hungry: Vec<Place>,
    made: Option<Made>,
    /// A descriptor that is given up to tell a client that there is none.
    spare: Option<File>,
    refused: Vec<Place>,
    count: Count,
}

impl Clients {
    /// Listen at `path`, for this user alone.
    ///
    /// # Errors
    /// `Transport` where somebody listens there, or the path is none for a socket.
    pub fn listen(&mut self, poll: &Poll, path: &Path) -> Result<()> {
        self.listener = Some(Listener::bind(path).map_err(Error::Transport)?);
        self.made = Some(Made::at(path));
        self.accepting = Ready::default();
        self.set_spare();
        self.set_accepting(poll, true)
    }

    /// Make the socket again where it was removed; what became of that.
    pub fn look_after(&mut self, poll: &Poll) -> Option<std::result::Result<(), String>> {
        let gone = self.made.take_if(|made| made.is_gone())?;
        drop(self.set_accepting(poll, false));
        self.listener = None; // its lock is that of the new one
        let attempt = self.listen(poll, gone.path());
        gone.remade(attempt, &mut self.made)
    }

    /// Accept nobody any more.
    pub fn shut(&mut self, poll: &Poll) {
        drop(self.set_accepting(poll, false));
        self.listener = None;
        self.made = None;
    }

    pub fn get_mut(&mut self, place: Place) -> Option<&mut Client> {
        self.seats.get_mut(place)
    }

    /// Let in who waits; the places of those who came.
    pub fn accept(&mut self, poll: &Poll) -> Vec<Place> {
        let mut came = Vec::new();
        for _ in 0..ACCEPTS_A_TURN {
            if self.seats.len() >= CLIENTS_MAX + REFUSED_MAX {
                drop(self.set_accepting(poll, false));
                break;
            }
            let lack = (self.seats.len() >= CLIENTS_MAX).then_some(Lack::Clients);
            let Some(listener) = &self.listener else {
                break;
            };
            match listener.accept() {
                Ok(Some(socket)) => came.extend(self.seat(poll, socket, lack)),
                Ok(None) => break,
                Err(_) if self.spare.take().is_some() => {
                    if let Ok(Some(socket)) = listener.accept() {
                        came.extend(self.seat(poll, socket, Some(Lack::Descriptors)));
                    }
                }
                Err(_) => {
                    // No descriptor is left, and nobody says when there is one again.
                    self.set_spare();
                    self.count.add(Lack::Descriptors);
                    drop(self.set_accepting(poll, false));
                    let pause = Duration::from_millis(ACCEPT_PAUSE_MS);
                    self.resumes = Instant::now().checked_add(pause);
                    break;
                }
            }
        }
        came
    }

    /// Accept again, if a pause was made that is over.
    pub fn welcome(&mut self, poll: &Poll, now: Instant) {
        if self.resumes.is_some_and(|resumes| resumes > now) {
            return;
        }
        self.resumes = None;
        self.set_spare();
        if self.seats.len() < CLIENTS_MAX + REFUSED_MAX {
            drop(self.set_accepting(poll, true));
        }
    }

    /// When accepting goes on, or one who is refused has to leave.
    pub fn resumes(&self) -> Option<Instant> {
        let refused = self.refused.iter();
        let refused = refused.filter_map(|place| self.seats.get(*place)?.refused);
        refused.map(|(_, leaves)| leaves).chain(self.resumes).min()
    }

    /// Those who are refused and have to leave now.
    pub fn take_overdue(&mut self, now: Instant) -> Vec<Place> {
        let seats = &self.seats;
        let leaves = |place: &mut Place| {
            let client = seats.get(*place).and_then(|client| client.refused);
            client.is_none_or(|(_, leaves)| leaves <= now)
        };
        self.refused.extract_if(.., leaves).collect()
    }

    /// That clients are refused, for the server's log.
    pub fn take_warning(&mut self, now: Instant) -> Option<String> {
        self.count.take_warning(now)
    }

    fn set_spare(&mut self) {
        if self.spare.is_none() {
            self.spare = File::open("/dev/null").ok();
        }
    }

    /// Read a turn's worth of what a client has sent.
    pub fn receive(&mut self, place: Place) -> Input {
        let mut input = Input::default();
        let Some(client) = self.seats.get_mut(place) else {
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
        if input.calls.len() == CALLS_A_TURN && !input.over {
            self.again.push(place);
        }
        self.touch(place);
        input
    }

    /// Clients that have more than a turn's worth.
    pub fn take_again(&mut self) -> Vec<Place> {
        std::mem::take(&mut self.again)
    }

    /// Take nothing more from a client until all go on: it waits where its kernel's buffers are full.
    pub fn pause(&mut self, place: Place) {
        let Some(client) = self.seats.get_mut(place) else {
            return;
        };
        if !std::mem::replace(&mut client.paused, true) {
            self.paused.push(place);
        }
        self.again.retain(|one| *one != place);
        self.touch(place);
    }

    /// All go on.
    pub fn resume(&mut self) {
        for place in std::mem::take(&mut self.paused) {
            if let Some(client) = self.seats.get_mut(place) {
                client.paused = false;
                self.again.push(place);
            }
            self.touch(place);
        }
    }

    /// Whether somebody has more than a turn's worth.
    pub fn has_more(&self) -> bool {
        !self.again.is_empty()
    }

    /// A call is answered when the store has been asked.
    pub fn owes(&mut self, place: Place, call: u64) {
        if let Some(client) = self.seats.get_mut(place) {
            client.open.insert(call, Open::Stored);
        }
    }

    /// Whether a client has taken enough to be sent more that is large.
    pub fn takes_results(&mut self, place: Place) -> bool {
        self.seats
            .get_mut(place)
            .is_some_and(|client| client.connection.outbox_bytes() <= CLIENT_RESULTS_BYTES_MAX)
    }

    /// Ask the store for the answer to a call when its client takes results.
    pub fn fetch_later(&mut self, place: Place, call: u64, id: RequestId, question: Question) {
        if let Some(client) = self.seats.get_mut(place) {
            client.open.insert(call, Open::Later);
            client.later.push_back((call, id, question));
            self.hungry.push(place);
        }
    }

    /// Clients with questions that the store was not asked yet, where they may take an answer now.
    pub fn take_hungry(&mut self) -> Vec<Place> {
        std::mem::take(&mut self.hungry)
    }

    /// The next question to the store of a client that takes results; it is owed the answer then.
    pub fn next_fetch(&mut self, place: Place) -> Option<(u64, RequestId, Question)> {
        let client = self.seats.get_mut(place)?;
        while client.fetching < CLIENT_FETCHES_MAX
            && client.connection.outbox_bytes() <= CLIENT_RESULTS_BYTES_MAX
        {
            let (call, id, question) = client.later.pop_front()?;
            // Unless it was given up.
            if client.open.get(&call) == Some(&Open::Later) {
                client.open.insert(call, Open::Fetching);
                client.fetching += 1;
                return Some((call, id, question));
            }
            client.dead = client.dead.saturating_sub(1);
        }
        None
    }

    /// The store has answered a question of a client.
    pub fn fetched(&mut self, place: Place) {
        if let Some(client) = self.seats.get_mut(place) {
            client.fetching -= 1;
        }
        self.touch(place); // for its next one
    }

    /// Answer a call, if its client is there. What is said leaves at the end of the turn.
    pub fn answer(&mut self, place: Place, call: u64, message: Message) {
        let Some(client) = self.seats.get_mut(place) else {
            return;
        };
        client.close(call);
        let unsent = client.connection.outbox_bytes();
        // A large answer alone is no reason to part.
        let longest = if unsent == 0 { 0 } else { client.longest };
        client.behind |= unsent > CLIENT_OUTBOX_BYTES_MAX + longest;
        client.longest = longest.max(message.segment.as_ref().map_or(0, |blob| blob.len()));
        let segments = message.segment.into_iter();
        let segments = segments.map(|blob| Box::new(blob) as Payload).collect();
        let head = Head::Borrowed(&message.head);
        let said = client
            .connection
            .reply(call, Codec::Msgpack, head, segments);
        if let Err(error) = said {
            let told = crate::message::refused(&crate::error::Refusal::invalid(
                "the answer",
                "one that both ends take",
                &error.to_string(),
                "ask for less at once",
            ));
            let head = Head::Borrowed(&told);
            drop(
                client
                    .connection
                    .reply(call, Codec::Msgpack, head, Vec::new()),
            );
        }
        self.touch(place);
    }

    /// Hand what waits to the kernel now.
    pub fn flush_now(&mut self, place: Place) {
        if let Some(client) = self.seats.get_mut(place) {
            // A connection that broke is found over at the end of the turn.
            drop(client.connection.flush());
        }
        self.touch(place);
    }

    /// Have what waits for a client leave at the end of the turn.
    pub fn touch(&mut self, place: Place) {
        if let Some(client) = self.seats.get_mut(place)
            && !std::mem::replace(&mut client.touched, true)
        {
            self.touched.push(place);
        }
    }

    /// Hand what waits to the kernel, once for each client; those that take too little, or have gone.
    pub fn flush(&mut self, poll: &Poll) -> Vec<Place> {
        let mut behind = Vec::new();
        for place in std::mem::take(&mut self.touched) {
            let Some(client) = self.seats.get_mut(place) else {
                continue;
            };
            client.touched = false;
            drop(client.connection.flush());
            // Where writing has found it broken, nothing of it is watched any more.
            if client.behind || client.connection.is_over() {
                behind.push(place);
                continue;
            }
            if !client.later.is_empty() {
                self.hungry.push(place);
            }
            let (read, write) = client.connection.wants().unwrap_or_default();
            let read = read && !client.paused;
            client.watch(poll, Ready { read, write });
        }
        behind
    }

    /// Take a client out, whose requests go on.
    pub fn dismiss(&mut self, poll: &Poll, place: Place) -> Option<Client> {
        let mut client = self.seats.remove(place)?;
        client.watch(poll, Ready::default());
        client.connection.close();
        if self.resumes.is_none() {
            drop(self.set_accepting(poll, true));
        }
        Some(client)
    }

    fn seat(&mut self, poll: &Poll, socket: OwnedFd, lack: Option<Lack>) -> Option<Place> {
        // The file's mode keeps others out; its directory may have been made by somebody else.
        let uid = peer_uid(&socket).ok()?;
        if uid != geteuid().as_raw() {
            return None;
        }
        // A program may submit for long before it reads its first result; it waits before it is parted with.
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
        connection.cork().ok()?;
        let place = self.seats.add(|place| Client {
            connection,
            place,
            watched: Ready::default(),
            touched: false,
            paused: false,
            behind: false,
            longest: 0,
            refused: None,
            fetching: 0,
            later: VecDeque::new(),
            dead: 0,
            open: ByNumber::default(),
            unread: BTreeSet::new(),
            tokens: HashMap::new(),
        });
        let client = self.seats.get_mut(place)?;
        client.watch(poll, Ready::READ);
        if let Some(lack) = lack {
            let leaves = Instant::now() + Duration::from_millis(REFUSED_MS);
            client.refused = Some((lack, leaves));
            self.refused.push(place);
            self.count.add(lack);
        }
        Some(place)
    }

    fn set_accepting(&mut self, poll: &Poll, accepting: bool) -> Result<()> {
        let Some(listener) = &self.listener else {
            return Ok(());
        };
        let wanted = Ready {
            read: accepting,
            write: false,
        };
        poll.watch(listener, Source::Listener, self.accepting, wanted)
            .map_err(Error::system("epoll_ctl"))?;
        self.accepting = wanted;
        Ok(())
    }
}

impl Client {
    /// Why it is not served, if it is not; it has to leave soon after it was told.
    pub fn refusal(&mut self) -> Option<Refusal> {
        let (lack, leaves) = self.refused.as_mut()?;
        let soon = Instant::now() + Duration::from_millis(REFUSED_ANSWERED_MS);
        *leaves = soon.min(*leaves);
        Some(lack.refusal())
    }

    /// A call is answered, or was given up.
    pub fn close(&mut self, call: u64) -> Option<Open> {
        let open = self.open.remove(&call)?;
        if open == Open::Later {
            self.dead += 1;
            if 2 * self.dead > self.later.len() {
                let open = &self.open;
                self.later
                    .retain(|(call, ..)| open.get(call) == Some(&Open::Later));
                self.dead = 0;
            }
        }
        if let Open::Request(id, Some(token)) = open
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
        let source = Source::Client(self.place);
        let socket: BorrowedFd<'_> = socket.as_fd();
        if poll.watch(socket, source, self.watched, wanted).is_ok() {
            self.watched = wanted;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A client, and its end, which has to stay.
    fn seated(clients: &mut Clients) -> (Place, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let poll = Poll::new().expect("a poll");
        let place = clients.seat(&poll, ours.into(), None).expect("a place");
        (place, theirs)
    }

    fn ask(clients: &mut Clients, place: Place, call: u64) {
        clients.fetch_later(place, call, RequestId(7), Question::Whole);
    }

    fn give_up(clients: &mut Clients, place: Place, call: u64) {
        clients.get_mut(place).expect("a client").close(call);
    }

    #[test]
    fn questions_that_were_given_up_take_no_memory() {
        let mut clients = Clients::default();
        let (place, _theirs) = seated(&mut clients);
        let most = CLIENT_FETCHES_MAX as u64;
        for call in 0..most + 2 {
            ask(&mut clients, place, call);
        }
        while clients.next_fetch(place).is_some() {}
        for call in 100..100_000 {
            ask(&mut clients, place, call);
            give_up(&mut clients, place, call);
            let waiting = clients.get_mut(place).expect("a client").later.len();
            assert!(waiting <= 4, "{waiting} questions wait, and two are wanted");
        }
        // The two that are wanted are still asked, in their order.
        for call in most..most + 2 {
            clients.fetched(place);
            let next = clients.next_fetch(place).expect("a question");
            assert_eq!(next.0, call);
        }
        clients.fetched(place);
        assert!(clients.next_fetch(place).is_none());
    }

    #[test]
    fn who_gives_up_its_questions_has_no_more_of_them_at_the_store() {
        let mut clients = Clients::default();
        let (place, _theirs) = seated(&mut clients);
        for call in 0..100 {
            ask(&mut clients, place, call);
        }
        let mut asked = 0;
        while let Some((call, ..)) = clients.next_fetch(place) {
            give_up(&mut clients, place, call);
            asked += 1;
        }
        assert_eq!(asked, CLIENT_FETCHES_MAX);
        clients.fetched(place);
        assert!(clients.next_fetch(place).is_some());
        assert!(clients.next_fetch(place).is_none());
    }
}

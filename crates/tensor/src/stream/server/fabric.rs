//! Connections over the fabric beside the stream: the thread answers their requests beside those of its sockets.
//!
//! One connection has two places: its endpoint's descriptor, and its lifeline, which is watched for its end alone.
//! The endpoints are shared with the shard, which has them settle before rows change; both are of the one thread.
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_base::readiness;
use forebay_transport::stream::Wire;
use rustix::event::PollFlags;
use rustix::event::epoll::{self, EventData, EventFlags};

use super::reactor::Reactor;
use super::seats::{Occupant, Place};
use crate::error::{Class, Error};
use crate::fabric::{Provider, ResponderEndpoint};
use crate::greeting::{Hello, Welcome};
use crate::responder::Shard;
use crate::slab::{Id, Slab};
use crate::sys::span::Span;

/// For how long a write waits for rows that are being sent to one peer. Then that peer's connection over the fabric ends,
/// and it goes on by its stream: a device sends 1 GiB in less, unless the peer's machine is gone.
const SETTLING: Duration = Duration::from_millis(500);
/// In a welcome: the fabric can be had.
const OFFERED: u8 = 1;

#[derive(Default)]
struct Crew {
    answerers: Slab<Member>,
    /// Somebody asked while rows were settled, and has not been answered.
    is_due: bool,
}

struct Member {
    answerer: Box<dyn ResponderEndpoint>,
    /// Where it sits, once its lifeline is there.
    place: Option<Place>,
}

impl Crew {
    /// Have the fabric not read these bytes for a peer that could still get them.
    fn settle(&mut self, span: Span) {
        let (start, bytes) = (span.address().as_ptr() as usize, span.bytes());
        let mut deadline = None; // one for all: several that are gone hold the thread up no longer than one
        for (_, Member { answerer, .. }) in self.answerers.iter_mut() {
            if !answerer.is_sending(start, bytes) {
                continue;
            }
            let deadline = deadline.get_or_insert_with(|| Instant::now() + SETTLING);
            if let Err(error) = answerer.settle(start, bytes, *deadline) {
                answerer.fence(error);
            }
            self.is_due |= answerer.is_due();
        }
    }
}

/// The peers that a thread serves over the fabric.
pub(super) struct FabricPeers {
    provider: Arc<dyn Provider>,
    crew: Arc<Mutex<Crew>>,
}

impl FabricPeers {
    pub(super) fn new<K>(provider: Arc<dyn Provider>, shard: &mut Shard<K>) -> Self {
        let crew = Arc::<Mutex<Crew>>::default();
        let its_crew = Arc::clone(&crew);
        shard.before_writes(move |span| lock(&its_crew).settle(span));
        Self { provider, crew }
    }

    fn crew(&self) -> MutexGuard<'_, Crew> {
        lock(&self.crew)
    }
}

/// Whether the peer has closed its end of a lifeline; what it says there is nobody's business.
pub(super) fn has_ended(lifeline: &Wire) -> bool {
    !readiness(lifeline.socket(), PollFlags::RDHUP).is_empty()
}

fn lock(crew: &Mutex<Crew>) -> MutexGuard<'_, Crew> {
    crew.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: Send> Reactor<K> {
    /// What a welcome says of the fabric.
    pub(super) fn offered(&self, hello: Hello) -> Vec<u8> {
        let asked = hello.fabrics & Hello::VERBS != 0 && self.fabric.is_some();
        if asked { vec![OFFERED] } else { Vec::new() }
    }

    /// Make the owner's end for whoever introduces itself over this connection.
    pub(super) fn meet(&mut self, place: Place, introduction: &[u8]) -> Result<Welcome, Error> {
        let limits = self.options.limits;
        let Some(fabric) = &self.fabric else {
            return Err(Error::Refused {
                class: Class::Config,
                text:
                    "this server serves no RDMA verbs: it has no device, or its fabric is another"
                        .to_owned(),
            });
        };
        self.check_room(fabric.crew().answerers.len())?;
        let (answerer, answer) = fabric.provider.meet(introduction, limits.slots)?;
        let member = Member {
            answerer,
            place: None,
        };
        let number = fabric.crew().answerers.insert(member);
        if let Some(Occupant::Guest(guest)) = self.seats.get(place) {
            guest.answerer = Some(number);
        }
        Ok(Welcome {
            slots: limits.slots,
            grant_bytes: limits.grant_bytes,
            incarnation: self.incarnation,
            announced: None,
            verbs: answer,
            note: Vec::new(),
        })
    }

    /// The welcome of a lifeline has gone out: from here on its end is what is watched for.
    pub(super) fn admit_lifeline(&mut self, place: Place, wire: Wire, answerer: Id) {
        let own = self.seats.sit(Occupant::Answerer(answerer, place));
        let data = EventData::new_u64(place.to_data());
        let watched = epoll::modify(&self.epoll, wire.socket(), data, EventFlags::RDHUP);
        let lifeline = Occupant::Lifeline(Box::new(wire), own);
        drop(self.seats.replace(place, lifeline));
        self.guests -= 1;
        self.welcome();
        let Some(fabric) = &self.fabric else { return };
        self.common
            .tally
            .fabric_peers
            .fetch_add(1, Ordering::Relaxed);
        let mut crew = fabric.crew();
        let Some(member) = crew.answerers.get_mut(answerer.index) else {
            return;
        };
        member.place = Some(own);
        let data = EventData::new_u64(own.to_data());
        let added = epoll::add(&self.epoll, &member.answerer, data, EventFlags::IN);
        drop(crew);
        if watched.and(added).is_err() {
            return self.dismiss(place);
        }
        self.answer_fabric(own); // what came before it was watched
    }

    /// Answer what has come over one connection.
    pub(super) fn answer_fabric(&mut self, place: Place) {
        let Some(Occupant::Answerer(number, _)) = self.seats.get(place) else {
            return;
        };
        let (number, Some(fabric)) = (*number, &self.fabric) else {
            return;
        };
        let mut crew = fabric.crew();
        let Some(member) = crew.answerers.get_mut(number.index) else {
            return;
        };
        let turned = member.answerer.turn(&self.shard);
        drop(crew);
        match turned {
            Ok(answered) => {
                let tally = &self.common.tally;
                tally
                    .fabric_pulls
                    .fetch_add(answered as u64, Ordering::Relaxed);
            }
            Err(error) => {
                self.tally().fail(&self.tally().broken, error.to_string());
                self.dismiss(place);
            }
        }
    }

    /// Whether requests came while rows were settled.
    pub(super) fn answers_are_due(&self) -> bool {
        self.fabric
            .as_ref()
            .is_some_and(|fabric| fabric.crew().is_due)
    }

    /// Answer those, and let those go that were cut off.
    pub(super) fn answer_due(&mut self) {
        if !self.answers_are_due() {
            return;
        }
        let Some(fabric) = &self.fabric else { return };
        let mut crew = fabric.crew();
        crew.is_due = false;
        let is_due = |(_, member): &(u32, &Member)| member.answerer.is_due();
        let due = crew.answerers.iter().filter(is_due);
        let due: Vec<_> = due.filter_map(|(_, member)| member.place).collect();
        drop(crew);
        for place in due {
            self.answer_fabric(place);
        }
    }

    /// Whether rows are on their way.
    pub(super) fn is_fabric_sending(&self) -> bool {
        let sends = |fabric: &FabricPeers| {
            let crew = fabric.crew();
            crew.answerers
                .iter()
                .any(|(_, member)| member.answerer.is_sending(0, usize::MAX))
        };
        self.fabric.as_ref().is_some_and(sends)
    }

    /// An answerer goes, and its peer is fenced.
    pub(super) fn part(&mut self, answerer: Id) {
        let Some(fabric) = &self.fabric else { return };
        let gone = fabric.crew().answerers.remove(answerer.index);
        if let Some(member) = gone
            && member.place.is_some()
        {
            _ = epoll::delete(&self.epoll, &member.answerer);
            self.common
                .tally
                .fabric_peers
                .fetch_sub(1, Ordering::Relaxed);
        }
    }
}

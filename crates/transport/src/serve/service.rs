//! Services: what answers a message, decided from the message alone.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::link::outbox::Payload;
use crate::messages::{Frames, Message};
use crate::serve::dial::Target;
use crate::serve::metrics::Metrics;
use crate::serve::store::{Shared, Store};

/// What answers the messages of a connection.
#[derive(Clone)]
pub enum Service {
    /// Each message is sent back.
    Echo,
    /// Each frame is a key; the answer is the frames of its value, or one empty frame.
    Store(Arc<Store>),
    /// The answer is two frames: the status, and counters as JSON.
    Health(Arc<Health>),
    /// Each message is forwarded to a target, and the target's messages come back.
    Forward(Arc<Target>),
    /// The first frame names a service, which gets the other frames.
    Table(Arc<Table>),
}

/// Services by name.
pub struct Table {
    services: HashMap<Vec<u8>, Service>,
    /// Whether a connection that names none of them is handed over.
    hands_over: bool,
}

/// The status that a health check gets.
pub struct Health {
    status: Mutex<(String, Instant)>,
    made: Instant,
}

/// What to do with one message.
pub enum Answer {
    Reply(Reply),
    /// Forward it and all that follow to the target; it is empty if only the target's name came.
    Tunnel(Arc<Target>, Message),
}

/// An answer to send.
pub enum Reply {
    Same(Message),
    Parts(Vec<Part>),
}

/// One frame of an answer.
pub enum Part {
    Shared(Shared),
    Text(String),
}

impl Service {
    /// Whether it answers this message; otherwise the connection is handed over.
    pub fn takes(&self, message: &Message) -> bool {
        match self {
            Self::Table(table) => !table.hands_over || table.find(message).is_some(),
            _ => true,
        }
    }

    /// Answer a message.
    pub(crate) fn answer(&self, mut message: Message, metrics: &Metrics) -> Answer {
        match self {
            Self::Echo => Answer::Reply(Reply::Same(message)),
            Self::Store(store) => Answer::Reply(look_up(store, &message)),
            Self::Health(health) => Answer::Reply(health.answer(metrics)),
            Self::Forward(target) => Answer::Tunnel(Arc::clone(target), message),
            Self::Table(table) => match table.find(&message) {
                Some(service) => {
                    message.remove(0);
                    service.answer(message, metrics)
                }
                None => Answer::Reply(Reply::nothing()),
            },
        }
    }
}

impl Table {
    /// `hands_over`: a message that names no service hands the connection over; else it is answered by an empty frame.
    pub fn new(services: HashMap<Vec<u8>, Service>, hands_over: bool) -> Self {
        Self {
            services,
            hands_over,
        }
    }

    fn find(&self, message: &Message) -> Option<&Service> {
        self.services.get(message.first()?.as_slice())
    }
}

impl Health {
    /// A health with a status.
    pub fn new(status: String) -> Self {
        let made = Instant::now();
        Self {
            status: Mutex::new((status, made)),
            made,
        }
    }

    /// Set the status, as of now.
    pub fn set(&self, status: String) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = (status, Instant::now());
    }

    /// The current status.
    pub fn status(&self) -> String {
        let held = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        held.0.clone()
    }

    fn answer(&self, metrics: &Metrics) -> Reply {
        let (status, set) = {
            let held = self.status.lock().unwrap_or_else(PoisonError::into_inner);
            (held.0.clone(), held.1)
        };
        let counted = format!(
            "{{\"connections\": {}, \"messages\": {}, \"uptime_s\": {:.3}, \"status_age_s\": {:.3}}}",
            metrics.open.load(Ordering::Relaxed),
            metrics.messages.load(Ordering::Relaxed),
            self.made.elapsed().as_secs_f64(),
            set.elapsed().as_secs_f64(),
        );
        Reply::Parts(vec![Part::Text(status), Part::Text(counted)])
    }
}

fn look_up(store: &Store, keys: &Message) -> Reply {
    let mut parts = Vec::with_capacity(keys.len());
    for key in keys {
        match store.get(key.as_slice()) {
            Some(value) => parts.extend(value.iter().cloned().map(Part::Shared)),
            None => parts.push(Part::Text(String::new())),
        }
    }
    if parts.is_empty() {
        return Reply::nothing();
    }
    Reply::Parts(parts)
}

impl Reply {
    /// One empty frame, for "nothing".
    fn nothing() -> Self {
        Self::Parts(vec![Part::Text(String::new())])
    }
}

impl Part {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Shared(shared) => (**shared).as_ref(),
            Self::Text(text) => text.as_bytes(),
        }
    }
}

/// A reference to a value, until the kernel has it.
struct Borrowed(Shared);

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl Frames for Reply {
    fn count(&self) -> usize {
        match self {
            Self::Same(message) => message.len(),
            Self::Parts(parts) => parts.len(),
        }
    }

    fn get(&self, index: usize) -> &[u8] {
        match self {
            Self::Same(message) => message[index].as_slice(),
            Self::Parts(parts) => parts[index].as_slice(),
        }
    }

    fn lend(&mut self, index: usize) -> Payload {
        match self {
            Self::Same(message) => message.lend(index),
            Self::Parts(parts) => match &mut parts[index] {
                Part::Shared(shared) => Box::new(Borrowed(Arc::clone(shared))),
                Part::Text(text) => Box::new(std::mem::take(text).into_bytes()),
            },
        }
    }
}

//! One client of a native listener: what is read, answered and forwarded, and when it ends.
//!
//! Nothing is taken from an inbox while the outbox that it feeds is above its high mark, and nothing is
//! read meanwhile: a session holds at most its marks and one message in each direction.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_base::poll::Ready;

use crate::error::{Delivered, Error, Fault, Result};
use crate::limit::NATIVE_TURN_MESSAGES;
use crate::link::stall::FlowPosition;
use crate::messages::state::State;
use crate::messages::{Frames, Message};
use crate::serve::dial::Target;
use crate::serve::metrics::Metrics;
use crate::serve::service::{Answer, Service};
use crate::stream::Stream;

/// What the reactor does after a step.
#[derive(Debug)]
pub enum Action {
    /// Wait for the sockets.
    Wait,
    /// Step again: there is more work than fits one turn.
    Again,
    /// Hand the connection over, from its next message on.
    HandOver,
    /// Connect to the target, for [`ClientSession::join`].
    Dial(Arc<Target>),
    /// Shut the target's direction down: the client has ended.
    ShutdownTarget,
    /// Close it; with an error unless the peer closed it between two messages.
    Close(Option<Error>),
}

/// A client, and the target that its messages go to.
pub struct ClientSession<S> {
    pub client: State<S>,
    pub target: Option<State<S>>,
    service: Service,
    dialing: bool,
    /// The message that arrived before the target was connected.
    queued_for_target: Option<Message>,
    end_sent: bool,
    /// Only messages that were received are still answered.
    closing: bool,
}

impl<S: Stream> ClientSession<S> {
    pub fn new(client: State<S>, service: Service) -> Self {
        Self {
            client,
            target: None,
            service,
            dialing: false,
            queued_for_target: None,
            end_sent: false,
            closing: false,
        }
    }

    /// Move bytes and messages, within one turn's budget.
    pub fn step(&mut self, client: Ready, target: Ready, metrics: &Metrics) -> Action {
        if client.write {
            self.client.flush();
        }
        if client.read && self.reads_client() {
            self.client.receive();
        }
        let reads_target = self.client.has_room() && !self.closing;
        if let Some(other) = &mut self.target {
            if target.write {
                other.flush();
            }
            if target.read && reads_target {
                other.receive();
            }
        }
        let action = self
            .act(metrics)
            .unwrap_or_else(|error| Some(Action::Close(Some(error))))
            .unwrap_or_else(|| self.next_action());
        drop(self.client.take_sent());
        if let Some(target) = &mut self.target {
            drop(target.take_sent());
        }
        action
    }

    /// The target is connected.
    pub fn join(&mut self, mut target: State<S>) {
        self.dialing = false;
        if let Some(mut message) = self.queued_for_target.take() {
            target.push(&mut message);
        }
        self.target = Some(target);
    }

    /// Read no more, and end as soon as the answers are written.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// What to watch the sockets of the client and of the target for.
    pub fn interest(&mut self) -> (Ready, Ready) {
        let client = Ready {
            read: self.reads_client() && self.client.wants_read(),
            write: self.client.wants_write(),
        };
        let reads_target = self.client.has_room() && !self.closing;
        let target = self.target.as_mut().map_or(Ready::NOTHING, |target| Ready {
            read: reads_target && target.wants_read(),
            write: target.wants_write(),
        });
        (client, target)
    }

    /// The progress of what is in transit, both ways and to the target too; `None` if nothing is. Each message received
    /// or sent is progress.
    pub fn position(&mut self) -> Option<FlowPosition> {
        let (client, target) = self.interest();
        let of_target = self.target.as_ref();
        let under_way = client.write
            || target.write
            || (client.read && self.client.is_within())
            || (target.read && of_target.is_some_and(State::is_within));
        let ends = [Some(&self.client), of_target];
        let sum = |of: fn(&State<S>) -> u64| ends.iter().flatten().map(|&state| of(state)).sum();
        under_way.then(|| FlowPosition {
            moved: sum(|state| state.offset() + state.outbox().sent()),
            target: sum(|state| state.received() + state.sent()),
        })
    }

    /// Whether the client may be read: the outbox for its messages has room.
    fn reads_client(&self) -> bool {
        !self.dialing && !self.closing && self.target.as_ref().unwrap_or(&self.client).has_room()
    }

    /// Answer or forward what has arrived.
    fn act(&mut self, metrics: &Metrics) -> Result<Option<Action>> {
        if !self.client.has_opened() || self.dialing {
            return Ok(None);
        }
        let Some(target) = &mut self.target else {
            return self.answer(metrics);
        };
        let passed = pass(&mut self.client, target)?;
        pass(target, &mut self.client)?;
        metrics.messages.fetch_add(passed, Ordering::Relaxed);
        Ok(None)
    }

    fn answer(&mut self, metrics: &Metrics) -> Result<Option<Action>> {
        if let Service::Forward(target) = &self.service {
            let target = Arc::clone(target);
            return Ok(Some(self.dial(target)));
        }
        // Several answers are written together; a single one straight from its memory.
        let together = self.client.waiting().0 > 1;
        let mut action = None;
        for _ in 0..NATIVE_TURN_MESSAGES {
            if !self.client.has_room() {
                self.client.flush();
                if !self.client.has_room() {
                    break;
                }
            }
            let Some(message) = self.client.front() else {
                break;
            };
            if !self.service.takes(message) {
                action = Some(Action::HandOver);
                break;
            }
            let Some(message) = self.client.take() else {
                break;
            };
            metrics.messages.fetch_add(1, Ordering::Relaxed);
            match self.service.answer(message, metrics) {
                Answer::Reply(mut reply) => send(&mut self.client, &mut reply, together)?,
                Answer::Tunnel(target, message) => {
                    self.service = Service::Forward(Arc::clone(&target));
                    self.queued_for_target = (!message.is_empty()).then_some(message);
                    action = Some(self.dial(target));
                    break;
                }
            }
        }
        if together {
            self.client.flush();
        }
        Ok(action)
    }

    fn dial(&mut self, target: Arc<Target>) -> Action {
        self.dialing = true;
        Action::Dial(target)
    }

    /// What to do next, after everything possible was done.
    fn next_action(&mut self) -> Action {
        if let Some(fault) = self.client.fault() {
            return Action::Close(Some(error_of(fault, "the client")));
        }
        let taken = self.client.waiting().0 == 0;
        let answered = self.client.outbox().is_empty();
        let Some(target) = &mut self.target else {
            let ended = self.client.has_ended() && taken && !self.dialing;
            let closed = self.closing && (taken || self.dialing);
            if answered && (ended || closed) {
                return Action::Close(None);
            }
            return self.again(taken);
        };
        if self.closing && answered && target.outbox().is_empty() {
            return Action::Close(None);
        }
        if let Some(fault) = target.end()
            && target.waiting().0 == 0
            && answered
        {
            return Action::Close(
                target
                    .fault()
                    .is_some()
                    .then(|| error_of(&fault, "the target")),
            );
        }
        if self.client.has_ended() && taken && target.outbox().is_empty() && !self.end_sent {
            self.end_sent = true;
            return Action::ShutdownTarget;
        }
        let target_taken = target.waiting().0 == 0;
        self.again(taken && target_taken)
    }

    /// Whether the turn ended by its budget, not by a lack of input or room.
    fn again(&mut self, taken: bool) -> Action {
        let to_target = self.target.as_ref();
        let waits = |from: &State<S>, to: &State<S>| {
            (from.waiting().0 > 0 || from.holds_received()) && to.has_room() && to.fault().is_none()
        };
        let back = to_target.is_some_and(|target| waits(target, &self.client));
        let forth = !self.dialing && waits(&self.client, to_target.unwrap_or(&self.client));
        if !taken && self.client.has_opened() && (back || forth) || self.holds_received() {
            Action::Again
        } else {
            Action::Wait
        }
    }

    fn holds_received(&mut self) -> bool {
        let (client, target) = self.interest();
        client.read && self.client.holds_received()
            || target.read && self.target.as_ref().is_some_and(State::holds_received)
    }
}

/// Forward messages while there is room; returns how many.
fn pass<S: Stream>(from: &mut State<S>, to: &mut State<S>) -> Result<u64> {
    let together = from.waiting().0 > 1;
    let mut passed = 0;
    while passed < NATIVE_TURN_MESSAGES as u64 && to.fault().is_none() {
        if !to.has_room() {
            to.flush();
            if !to.has_room() {
                break;
            }
        }
        let Some(mut message) = from.take() else {
            break;
        };
        send(to, &mut message, together)?;
        passed += 1;
    }
    if together {
        to.flush();
    }
    Ok(passed)
}

fn send<S: Stream>(to: &mut State<S>, frames: &mut dyn Frames, together: bool) -> Result<()> {
    to.check(frames)?;
    if together {
        to.push(frames);
    } else {
        to.send(frames);
    }
    Ok(())
}

fn error_of(fault: &Fault, peer: &str) -> Error {
    fault.to_error(peer, Delivered::Maybe)
}

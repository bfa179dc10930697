//! What the frames of messages mean to the end that receives them.

use crate::error::{Cause, Fault, Violation};
use crate::link::framed::{Handler, Link};
use crate::messages::budget::{Budget, BudgetUse};
use crate::messages::frames::Message;
use crate::messages::inbox::MessageInbox;
use crate::messages::named;
use crate::stream::{Stream, StreamFault};
use crate::sys::buffer::Buffer;
use crate::wire::frame::{Header, Incoming, Kind};
use crate::wire::preface::Preface;
use crate::wire::role::Role;

/// The received messages, and what the connection holds of the budget of the process.
pub(super) struct Arrivals {
    pub(super) inbox: MessageInbox,
    usage: BudgetUse,
    /// Where the message that is being received begins.
    boundary: u64,
}

impl Arrivals {
    pub fn new() -> Self {
        Self {
            inbox: MessageInbox::default(),
            usage: BudgetUse::new(Budget::of_process()),
            boundary: 0,
        }
    }

    /// Report what is held here to the budget: queued, finished, and the received part of the current message.
    pub fn account<S>(&mut self, link: &Link<S>) {
        let under_way = usize::try_from(link.offset() - self.boundary).unwrap_or(usize::MAX);
        self.usage
            .hold(self.inbox.bytes() + link.outbox().bytes() + under_way);
    }

    /// Where the message that is being received begins.
    pub fn boundary(&self) -> u64 {
        self.boundary
    }

    /// Whether the process holds more than it may.
    pub fn is_over_limit(&self) -> bool {
        self.usage.is_over_limit()
    }

    /// The connection is closed; what it holds counts until this is dropped.
    pub fn close(&mut self) {
        self.usage.close();
    }

    /// Charge another budget.
    #[cfg(test)]
    pub fn charge(&mut self, budget: &'static Budget) {
        self.usage = BudgetUse::new(budget);
    }
}

impl<S: Stream> Handler<S> for Arrivals {
    const KEEPS_LONG_FRAMES_APART: bool = true;

    fn accept_preface(&mut self, preface: &Preface) -> Result<(), Violation> {
        match preface.role {
            Role::Messenger => Ok(()),
            other => Err(Violation::Purpose(other)),
        }
    }

    fn begin_frame(&mut self, offset: u64) {
        self.boundary = offset;
    }

    fn accept(&mut self, link: &mut Link<S>, frame: Incoming) -> Result<(), Violation> {
        match frame.header.kind {
            Kind::Message if frame.segments.is_empty() => return Err(Violation::Empty),
            Kind::Message => self.inbox.push(frame.segments),
            Kind::Shared => self.inbox.push(open(link, frame.segments)?),
            other => {
                link.retire(frame.segments); // dropped after unlocking
                match other {
                    Kind::Ping => self.answer(link, frame.header.id),
                    Kind::Pong => {}
                    other => return Err(Violation::Kind(other as u8)),
                }
            }
        }
        Ok(())
    }

    fn holds_back(&mut self, link: &Link<S>) -> bool {
        let held_back = self.usage.holds_back(self.inbox.bytes());
        let inbox_bytes_max = link.limits().inbox_bytes_max;
        let paused = self.inbox.update_pause(inbox_bytes_max, held_back);
        paused || link.awaits_memory() || link.stream().is_none()
    }

    fn end_of_file(&mut self, link: &mut Link<S>) {
        if link.at_boundary() && link.life().is_open() {
            link.end();
        } else {
            link.break_with(self, Fault::Broken(Cause::Truncated));
        }
    }

    fn fail_receiving(&mut self, link: &mut Link<S>, fault: StreamFault) {
        link.fail(self, fault);
    }

    fn fail_sending(&mut self, link: &mut Link<S>, fault: StreamFault) {
        link.fail(self, fault);
    }

    fn broken(&mut self, link: &Link<S>, _fault: &Fault) {
        self.account(link);
    }
}

impl Arrivals {
    /// Answer a ping, unless the peer takes nothing.
    fn answer<S: Stream>(&mut self, link: &mut Link<S>, id: u64) {
        if link.outbox().bytes() <= link.limits().outbox_bytes_high {
            let pong = Header::control(Kind::Pong, id).encode();
            link.outbox_mut().push_copy(&pong);
            link.flush(self);
            self.account(link);
        }
    }
}

/// The frames of a message of which some are named.
fn open<S: Stream>(link: &mut Link<S>, mut segments: Vec<Buffer>) -> Result<Message, Violation> {
    let limits = *link.limits();
    let Some(stream) = link.stream_mut() else {
        link.retire(segments);
        return Err(Violation::Kind(Kind::Shared as u8));
    };
    let opened = named::open(&mut segments, &limits, |name| {
        stream.open(name).map_err(|fault| match fault {
            StreamFault::Violation(violation) => violation,
            other => Violation::Window(other.to_string()),
        })
    });
    link.retire(segments);
    opened
}

//! Lending and borrowing as steps of a connection's state.

use crate::calls::state::ConnectionState;
use crate::error::Violation;
use crate::limit::LEND_BYTES_MIN;
use crate::link::outbox::Payload;
use crate::messages::named::{self, FOLLOWS, NAMED};
use crate::share::borrower::Borrower;
use crate::share::lender::Lender;
use crate::share::{Lending, Renewal};
use crate::stream::Stream;
use crate::stream::shm::Name;
use crate::sys::buffer::Buffer;
use crate::sys::shared::Staged;
use crate::wire::frame::{Header, Incoming, Kind};
use crate::wire::preface::LENDS;
use crate::wire::role::Role;

impl<S: Stream> ConnectionState<S> {
    /// Send what is due before the next frame, and be ready for a peer that borrows its long segments.
    pub fn prepare_to_lend(&mut self, segments: &[Payload]) {
        let (Some(lending), Some(stream)) = (&mut self.lending, &mut self.stream) else {
            return;
        };
        if let Renewal::Due(id) = lending.renewal {
            lending.renewal = if self.role == Role::Server {
                Renewal::None
            } else {
                Renewal::Asked(id)
            };
            let word = Header::control(Kind::Renew, id).encode();
            self.outbox.push_copy(&word);
        }
        if let Some(descriptors) = lending.due.take()
            && stream.attach(descriptors)
        {
            let word = Header::control(Kind::Borrow, 0).encode();
            self.outbox.push_copy(&word);
        }
        let is_long = |segment: &Payload| (**segment).as_ref().len() >= LEND_BYTES_MIN;
        if lending.lender.is_none() && segments.iter().any(is_long) {
            stream.ask_for_descriptors(); // the peer may answer with `Borrow`
        }
    }

    /// Replace staged segments by names; the originals are given back.
    pub fn name_staged(
        &mut self,
        header: &mut Header,
        segments: Vec<Payload>,
        staged: Vec<Option<Staged>>,
    ) -> Vec<Payload> {
        if staged.is_empty() {
            return segments;
        }
        let lender = self
            .lending
            .as_mut()
            .and_then(|lending| lending.lender.as_mut());
        let (Some(lender), Some(stream)) = (lender, &mut self.stream) else {
            return segments;
        };
        let outbox = &mut self.outbox;
        for chunk in lender.gone() {
            outbox.push_copy(&Header::control(Kind::Gone, chunk.into()).encode());
        }
        let mut announce = |chunk: u32, memory| {
            let attached = stream.attach(vec![memory]);
            if attached {
                outbox.push_copy(&Header::control(Kind::Chunk, chunk.into()).encode());
            }
            attached
        };
        let names: Vec<Option<Name>> = staged
            .into_iter()
            .map(|staged| lender.lend(staged?, &mut announce))
            .collect();
        if names.iter().all(Option::is_none) {
            return segments;
        }
        let mut table = Vec::new();
        let mut following: Vec<Payload> = vec![Box::new([])];
        let mut copied = Vec::new();
        for (segment, name) in segments.into_iter().zip(names) {
            if let Some(name) = name {
                table.push(NAMED);
                table.extend_from_slice(&name.encode());
                copied.push(segment);
            } else {
                table.push(FOLLOWS);
                following.push(segment);
            }
        }
        self.outbox.retire(copied);
        following[0] = Box::new(table);
        header.named = true;
        header.segments = u16::try_from(following.len()).unwrap_or(u16::MAX); // no more than before
        following
    }

    /// The frame with its lent segments opened. If long ones came as bytes, this end begins to borrow.
    pub fn resolve(&mut self, frame: Incoming) -> Result<Incoming, Violation> {
        if !frame.header.named {
            self.consider_borrowing(&frame);
            return Ok(frame);
        }
        if !matches!(frame.header.kind, Kind::Call | Kind::Reply | Kind::Item) {
            return Err(Violation::Lending(
                "a frame that has no segments names some",
            ));
        }
        let limits = self.limits;
        let borrower = self.borrower()?;
        let open = |name: &_| borrower.open(&Name::decode(name));
        let mut segments = frame.segments;
        let segments = named::open(&mut segments, &limits, open)?;
        Ok(Incoming {
            header: Header {
                named: false,
                ..frame.header
            },
            head: frame.head,
            segments,
        })
    }

    fn borrower(&mut self) -> Result<&mut Borrower, Violation> {
        let lending = self.lending.as_mut();
        lending
            .and_then(|lending| lending.borrower.as_mut())
            .ok_or(Violation::Lending(
                "the peer lends segments that this side did not ask for",
            ))
    }

    fn consider_borrowing(&mut self, frame: &Incoming) {
        let is_short = |segment: &Buffer| segment.len() < LEND_BYTES_MIN;
        if frame.segments.iter().all(is_short) {
            return;
        }
        let (Some(lending), Some(stream)) = (&mut self.lending, &mut self.stream) else {
            return;
        };
        // What a caller knows of the server that it took over is that it answers a renewal.
        let lends = match lending.renewal {
            Renewal::Done => true,
            _ => self.peer.is_some_and(|peer| peer.features & LENDS != 0),
        };
        if !lends || lending.borrower.is_some() || lending.refused {
            return;
        }
        match Borrower::new() {
            Some((borrower, descriptors)) => {
                stream.ask_for_descriptors();
                lending.borrower = Some(borrower);
                lending.due = Some(descriptors);
            }
            None => lending.refused = true,
        }
    }

    /// The peer borrows.
    pub fn begin_lending(&mut self) -> Result<(), Violation> {
        let descriptors = [self.next_descriptor(), self.next_descriptor()];
        let [Some(table), Some(process)] = descriptors else {
            return Err(Violation::Descriptors);
        };
        let lends_any_length = self.role == Role::Caller;
        match &mut self.lending {
            Some(lending) if lending.lender.is_none() => {
                lending.lender = Lender::new([table, process], lends_any_length)?;
                Ok(())
            }
            _ => Err(Violation::Lending(
                "the peer borrows twice, or without being asked",
            )),
        }
    }

    /// The peer announces a chunk.
    pub fn map_chunk(&mut self, id: u64) -> Result<(), Violation> {
        let memory = self.next_descriptor().ok_or(Violation::Descriptors)?;
        let chunk = chunk_of(id)?;
        self.borrower()?.add(chunk, &memory)
    }

    /// The peer has dropped a chunk.
    pub fn forget_chunk(&mut self, id: u64) -> Result<(), Violation> {
        let chunk = chunk_of(id)?;
        self.borrower()?.remove(chunk);
        Ok(())
    }

    /// Have both ends forget what was lent, because another process called here before. Nothing, if this end does not lend.
    pub fn renew(&mut self, id: u64) {
        let (Some(lending), Some(stream)) = (&mut self.lending, &mut self.stream) else {
            return;
        };
        **lending = Lending::renewed(id);
        stream.ask_for_descriptors(); // what the server has sent already may come with some
    }

    /// The caller is another process from here on, or the server answers one. An answer to the process that called before
    /// is ignored.
    pub fn accept_renewal(&mut self, id: u64) {
        let Some(lending) = &mut self.lending else {
            return; // nothing was lent
        };
        if self.role == Role::Server {
            **lending = Lending::renewed(id);
        } else if lending.renewal == Renewal::Asked(id) {
            lending.renewal = Renewal::Done;
        }
    }

    /// Whether what the server announces is still for the process that called before.
    pub fn is_renewing(&self) -> bool {
        self.role != Role::Server
            && self.lending.as_ref().is_some_and(|lending| {
                matches!(lending.renewal, Renewal::Due(_) | Renewal::Asked(_))
            })
    }

    /// Drop what came with a frame for the process that called before.
    pub fn skip_descriptors(&mut self, kind: Kind) {
        let count = match kind {
            Kind::Borrow => 2,
            Kind::Chunk => 1,
            _ => 0,
        };
        for _ in 0..count {
            drop(self.next_descriptor());
        }
    }

    fn next_descriptor(&mut self) -> Option<std::os::fd::OwnedFd> {
        self.stream.as_mut()?.next_descriptor()
    }
}

fn chunk_of(id: u64) -> Result<u32, Violation> {
    u32::try_from(id).map_err(|_| Violation::Lending("invalid chunk number"))
}

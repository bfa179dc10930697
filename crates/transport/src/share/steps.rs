//! Lending and borrowing as steps of a connection: what goes before a frame, and what the frames about it do.

use crate::error::Violation;
use crate::limit::LEND_BYTES_MIN;
use crate::link::framed::Link;
use crate::link::outbox::Payload;
use crate::messages::named::{self, FOLLOWS, NAMED};
use crate::share::borrower::Borrower;
use crate::share::lender::Lender;
use crate::share::{ConnectionLoans, Lending, Renewal};
use crate::stream::Stream;
use crate::stream::shm::Name;
use crate::sys::buffer::Buffer;
use crate::sys::shared::Staged;
use crate::wire::frame::{Header, Incoming, Kind};
use crate::wire::preface::LENDS;
use crate::wire::role::Role;

impl Lending {
    /// Queue what is due before the next frame, and be ready for a peer that borrows its long segments.
    #[inline]
    pub fn prepare<S: Stream>(&mut self, link: &mut Link<S>, role: Role, segments: &[Payload]) {
        if let Some(loans) = &mut self.0 {
            loans.prepare(link, role, segments);
        }
    }

    /// Replace staged segments by names; the originals are given back.
    pub fn name_staged<S: Stream>(
        &mut self,
        link: &mut Link<S>,
        header: &mut Header,
        segments: Vec<Payload>,
        staged: Vec<Option<Staged>>,
    ) -> Vec<Payload> {
        if staged.is_empty() {
            return segments;
        }
        let lender = self.0.as_mut().and_then(|loans| loans.lender.as_mut());
        let Some(lender) = lender.filter(|_| link.stream().is_some()) else {
            return segments;
        };
        for chunk in lender.gone() {
            let gone = Header::control(Kind::Gone, chunk.into());
            link.outbox_mut().push_copy(&gone.encode());
        }
        let mut announce = |chunk: u32, memory| {
            let header = Header::control(Kind::Chunk, chunk.into());
            link.push_with_descriptors(header, vec![memory])
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
        link.outbox_mut().retire(copied);
        following[0] = Box::new(table);
        header.named = true;
        header.segments = u16::try_from(following.len()).unwrap_or(u16::MAX); // no more than before
        following
    }

    /// The frame with its lent segments opened. If long ones came as bytes, this end begins to borrow.
    #[inline]
    pub fn resolve<S: Stream>(
        &mut self,
        link: &mut Link<S>,
        frame: Incoming,
    ) -> Result<Incoming, Violation> {
        if frame.header.named {
            return self.open_named(link, frame);
        }
        if let Some(loans) = &mut self.0 {
            loans.consider_borrowing(link, &frame);
        }
        Ok(frame)
    }

    fn open_named<S>(&mut self, link: &Link<S>, frame: Incoming) -> Result<Incoming, Violation> {
        if !matches!(frame.header.kind, Kind::Call | Kind::Reply | Kind::Item) {
            return Err(Violation::Lending(
                "a frame that has no segments names some",
            ));
        }
        let borrower = self.borrower()?;
        let open = |name: &_| borrower.open(&Name::decode(name));
        let mut segments = frame.segments;
        let segments = named::open(&mut segments, link.limits(), open)?;
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
        let loans = self.0.as_mut();
        loans
            .and_then(|loans| loans.borrower.as_mut())
            .ok_or(Violation::Lending(
                "the peer lends segments that this side did not ask for",
            ))
    }

    /// A frame about lending has come.
    pub fn accept<S: Stream>(
        &mut self,
        link: &mut Link<S>,
        role: Role,
        kind: Kind,
        id: u64,
    ) -> Result<(), Violation> {
        if kind == Kind::Renew {
            self.accept_renewal(role, id);
            return Ok(());
        }
        if self.is_renewing(role) {
            skip_descriptors(link, kind);
            return Ok(());
        }
        match kind {
            Kind::Borrow => self.begin_lending(link, role),
            Kind::Chunk => {
                let memory = link.next_descriptor().ok_or(Violation::Descriptors)?;
                let chunk = chunk_of(id)?;
                self.borrower()?.add(chunk, &memory)
            }
            _ => {
                let chunk = chunk_of(id)?;
                self.borrower()?.remove(chunk);
                Ok(())
            }
        }
    }

    /// The peer borrows.
    fn begin_lending<S: Stream>(
        &mut self,
        link: &mut Link<S>,
        role: Role,
    ) -> Result<(), Violation> {
        let descriptors = [link.next_descriptor(), link.next_descriptor()];
        let [Some(table), Some(process)] = descriptors else {
            return Err(Violation::Descriptors);
        };
        match &mut self.0 {
            Some(loans) if loans.lender.is_none() => {
                loans.lender = Lender::new([table, process], role == Role::Caller)?;
                Ok(())
            }
            _ => Err(Violation::Lending(
                "the peer borrows twice, or without being asked",
            )),
        }
    }

    /// Have both ends forget what was lent, because another process called here before. Nothing, if this end does not lend.
    pub fn renew<S: Stream>(&mut self, link: &mut Link<S>, id: u64) {
        if let Some(loans) = &mut self.0 {
            **loans = ConnectionLoans::renewed(id);
            link.ask_for_descriptors(); // what the server has sent already may come with some
        }
    }

    /// The caller is another process from here on, or the server answers one. An answer to the process that called before
    /// is ignored.
    fn accept_renewal(&mut self, role: Role, id: u64) {
        let Some(loans) = &mut self.0 else {
            return; // nothing was lent
        };
        if role == Role::Server {
            **loans = ConnectionLoans::renewed(id);
        } else if loans.renewal == Renewal::Asked(id) {
            loans.renewal = Renewal::Done;
        }
    }

    /// Whether what the server announces is still for the process that called before.
    fn is_renewing(&self, role: Role) -> bool {
        let renewing =
            |loans: &ConnectionLoans| matches!(loans.renewal, Renewal::Due(_) | Renewal::Asked(_));
        role != Role::Server && self.0.as_deref().is_some_and(renewing)
    }
}

impl ConnectionLoans {
    fn prepare<S: Stream>(&mut self, link: &mut Link<S>, role: Role, segments: &[Payload]) {
        if link.stream().is_none() {
            return;
        }
        if let Renewal::Due(id) = self.renewal {
            self.renewal = if role == Role::Server {
                Renewal::None
            } else {
                Renewal::Asked(id)
            };
            let word = Header::control(Kind::Renew, id).encode();
            link.outbox_mut().push_copy(&word);
        }
        if let Some(descriptors) = self.due.take() {
            link.push_with_descriptors(Header::control(Kind::Borrow, 0), descriptors);
        }
        let is_long = |segment: &Payload| (**segment).as_ref().len() >= LEND_BYTES_MIN;
        if self.lender.is_none() && segments.iter().any(is_long) {
            link.ask_for_descriptors(); // the peer may answer with `Borrow`
        }
    }

    fn consider_borrowing<S: Stream>(&mut self, link: &mut Link<S>, frame: &Incoming) {
        let is_short = |segment: &Buffer| segment.len() < LEND_BYTES_MIN;
        if frame.segments.iter().all(is_short) || link.stream().is_none() {
            return;
        }
        // What a caller knows of the server that it took over is that it answers a renewal.
        let lends = match self.renewal {
            Renewal::Done => true,
            _ => link.peer().is_some_and(|peer| peer.features & LENDS != 0),
        };
        if !lends || self.borrower.is_some() || self.refused {
            return;
        }
        match Borrower::new() {
            Some((borrower, descriptors)) => {
                link.ask_for_descriptors();
                self.borrower = Some(borrower);
                self.due = Some(descriptors);
            }
            None => self.refused = true,
        }
    }
}

/// Drop what came with a frame for the process that called before.
fn skip_descriptors<S: Stream>(link: &mut Link<S>, kind: Kind) {
    let count = match kind {
        Kind::Borrow => 2,
        Kind::Chunk => 1,
        _ => 0,
    };
    for _ in 0..count {
        drop(link.next_descriptor());
    }
}

fn chunk_of(id: u64) -> Result<u32, Violation> {
    u32::try_from(id).map_err(|_| Violation::Lending("invalid chunk number"))
}

//! Receives responses: each is checked against its piece before any byte of it is accepted.
use forebay_base::slots;

use super::job::Task;
use super::transfer::Transfer;
use super::{Flying, PROBE_TAG, Requester, tag_of};
use crate::error::Error;
use crate::names::frame::RECORD_BYTES_MAX;
use crate::sys::span::Span;
use crate::wire::{REFUSAL_TEXT_BYTES_MAX, RESPONSE_BYTES, ResponseHeader, Status};

/// Responses with a row or piece of at least this size are received directly into their destination: below it copying
/// from the buffer costs less than a system call for each response.
const DIRECT_BYTES: u64 = 16 << 10;

/// What is received next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    Header,
    /// Rows of a piece, of which `done` bytes are received or diverted.
    Rows {
        piece: slots::Key,
        done: u64,
        version: u64,
    },
    /// The text of a refusal.
    Text {
        piece: slots::Key,
        header: ResponseHeader,
    },
    /// The result of a look-up.
    Names {
        piece: slots::Key,
    },
}

impl Transfer {
    /// Whether a piece of `bytes` is received directly into its destination.
    pub(super) fn is_received_directly(&self, bytes: u64) -> bool {
        match self.places {
            None => bytes >= DIRECT_BYTES,
            Some(_) => self.row_bytes >= DIRECT_BYTES,
        }
    }
}

impl<K> Requester<K> {
    /// How many bytes may be received into the buffer, behind a diverted span. While a large piece is outstanding it
    /// is one header at most: rows that follow the header in the buffer would have to be copied.
    pub(super) fn ahead(&self) -> usize {
        let (in_large, awaited) = match self.phase {
            // Small rows with places go through the buffer, whatever else is outstanding.
            Phase::Rows { piece, .. } => {
                let found = self.flying.get(piece);
                (found.is_some_and(|flying| flying.is_large), 0)
            }
            Phase::Text { header, .. } => (true, usize::try_from(header.bytes).unwrap_or(0)),
            Phase::Header | Phase::Names { .. } => (true, 0),
        };
        if self.large > 0 && in_large {
            (awaited + RESPONSE_BYTES)
                .saturating_sub(self.inbox.bytes().len())
                .max(1)
        } else {
            usize::MAX
        }
    }

    /// Process what was received by one step; returns whether another may follow.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`].
    pub(super) fn step(&mut self) -> Result<bool, Error> {
        if self.inbox.is_diverted() {
            return Ok(false);
        }
        match self.phase {
            Phase::Header => self.header(),
            Phase::Rows {
                piece,
                done,
                version,
            } => Ok(self.rows(piece, done, version)),
            Phase::Text { piece, header } => self.text(piece, header),
            Phase::Names { piece } => self.names(piece),
        }
    }

    fn violation(&self, what: impl Into<String>) -> Error {
        Error::Protocol {
            what: what.into(),
            offset: self.inbox.offset(),
        }
    }

    fn header(&mut self) -> Result<bool, Error> {
        let bytes = self.inbox.bytes();
        if bytes.len() < RESPONSE_BYTES {
            return Ok(false);
        }
        let header = ResponseHeader::decode(bytes).map_err(|what| self.violation(what))?;
        if header.tag == PROBE_TAG {
            if !self.is_probing || header.bytes != 0 {
                return Err(self.violation("a response to a liveness probe that was not sent"));
            }
            self.is_probing = false;
            self.inbox.consume(RESPONSE_BYTES);
            return Ok(true);
        }
        let (piece, flying) = self.check(header)?;
        self.inbox.consume(RESPONSE_BYTES);
        self.phase = match header.status {
            Status::Ok if self.is_look_up(flying.job) => self.names_begin(piece, header.bytes),
            Status::Ok => Phase::Rows {
                piece,
                done: 0,
                version: header.version,
            },
            _ => Phase::Text { piece, header },
        };
        Ok(true)
    }

    fn is_look_up(&self, job: slots::Key) -> bool {
        matches!(self.job(job).work(), Task::LookUp { .. })
    }

    /// The piece that a response belongs to, if the response is valid.
    fn check(&self, header: ResponseHeader) -> Result<(slots::Key, Flying), Error> {
        let tag = header.tag;
        let found = self.flying.at(tag & super::TAG_INDEX);
        let (piece, flying) = match found {
            Some((piece, flying)) if tag_of(piece) == tag => (piece, *flying),
            _ => {
                return Err(self.violation(format!(
                    "a response with tag {tag}, which is not outstanding"
                )));
            }
        };
        if flying.lent > 0 {
            return Err(self.violation(format!(
                "a response with tag {tag}, to a request that is not sent completely"
            )));
        }
        let is_last = self.slots[flying.slot as usize] == 1;
        if header.last != is_last {
            return Err(self.violation(format!(
                "a response with tag {tag} claims that {} the last of slot {}, which has {} left",
                if header.last { "it is" } else { "it is not" },
                flying.slot,
                self.slots[flying.slot as usize]
            )));
        }
        let (least, most) = match (header.status, self.job(flying.job).work()) {
            (Status::Ok, Task::Move(_)) => (flying.bytes, flying.bytes),
            (Status::Ok, Task::LookUp { count, .. }) => {
                (0, u64::from(*count) * RECORD_BYTES_MAX as u64)
            }
            (_, _) => (0, REFUSAL_TEXT_BYTES_MAX as u64),
        };
        if header.bytes < least || header.bytes > most {
            return Err(self.violation(format!(
                "a response with tag {tag} and status {:?} has {} bytes instead of {least} to {most}",
                header.status, header.bytes
            )));
        }
        Ok((piece, flying))
    }

    fn rows(&mut self, piece: slots::Key, mut done: u64, version: u64) -> bool {
        let flying = *self.flying.get(piece).expect("kept until it is complete");
        let Task::Move(transfer) = self.job(flying.job).work() else {
            unreachable!("only a look-up has names");
        };
        let transfer = *transfer;
        while done < flying.bytes {
            let span = transfer.place(flying.from, done, flying.bytes);
            self.inbox.divert(span);
            done += span.bytes() as u64;
            if self.inbox.is_diverted() {
                self.phase = Phase::Rows {
                    piece,
                    done,
                    version,
                };
                return false;
            }
        }
        self.phase = Phase::Header;
        self.complete(piece, Ok(version));
        true
    }

    fn text(&mut self, piece: slots::Key, header: ResponseHeader) -> Result<bool, Error> {
        let count = usize::try_from(header.bytes).expect("checked to be short");
        if self.inbox.bytes().len() < count {
            return Ok(false);
        }
        let text = String::from_utf8_lossy(&self.inbox.bytes()[..count]).into_owned();
        let flying = *self.flying.get(piece).expect("kept until it is complete");
        let error = match (header.status, self.job(flying.job).work()) {
            (Status::Stale, Task::Move(transfer)) => Error::Stale {
                tensor: transfer.tensor.id,
                held: transfer.tensor.generation,
                current: u32::try_from(header.version)
                    .map_err(|_| self.violation(format!("a generation of {}", header.version)))?,
            },
            (Status::OutOfRange, Task::Move(transfer)) => Error::OutOfRange {
                tensor: Some(transfer.tensor.id),
                row: header.version,
                rows: transfer.rows_total,
            },
            (status, _) => Error::Refused {
                class: status.class(),
                text,
            },
        };
        self.inbox.consume(count);
        self.phase = Phase::Header;
        self.complete(piece, Err(error));
        Ok(true)
    }

    fn names_begin(&mut self, piece: slots::Key, bytes: u64) -> Phase {
        let flying = *self.flying.get(piece).expect("looked up for the header");
        let bytes = usize::try_from(bytes).expect("checked to be short");
        let job = self.jobs.get_mut(flying.job).expect("kept while it flies");
        let buffer = job.names_buffer(bytes);
        self.inbox.divert(Span::of(buffer));
        Phase::Names { piece }
    }

    fn names(&mut self, piece: slots::Key) -> Result<bool, Error> {
        let flying = *self.flying.get(piece).expect("kept until it is complete");
        let job = self.jobs.get_mut(flying.job).expect("kept while it flies");
        let decoded = job.decode_names();
        decoded.map_err(|what| self.violation(what))?;
        self.phase = Phase::Header;
        self.complete(piece, Ok(0));
        Ok(true)
    }

    /// A piece is complete: release its slot and its part of the grant.
    fn complete(&mut self, piece: slots::Key, result: Result<u64, Error>) {
        let flying = self.unlink(piece);
        let left = &mut self.slots[flying.slot as usize];
        *left -= 1;
        if *left == 0 {
            self.free_slots.push(flying.slot);
        }
        self.grant_left += flying.cost;
        self.large -= u32::from(flying.is_large);
        let job = self.jobs.get_mut(flying.job).expect("kept while it flies");
        match result {
            Ok(version) => job.note_version(version),
            Err(error) => job.fail(error),
        }
        self.settle(flying.job);
    }
}

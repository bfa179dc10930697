//! The encoding of a message of which some frames are in shared memory.
//!
//! Its first segment is a table with one entry for each frame; the other segments are the frames that are not named, in
//! order. An entry is a byte, 0 for a frame that follows, 1 for a name, which comes after the byte.

use forebay_memory::Lease;

use crate::error::Violation;
use crate::limit::{Limits, SHARE_BYTES_MIN};
use crate::link::outbox::Payload;
use crate::messages::frames::{Frames, Message};
use crate::stream::shm::NAME_BYTES;
use crate::sys::buffer::Buffer;

pub const FOLLOWS: u8 = 0;
pub const NAMED: u8 = 1;

/// The frames of a message to send, with names for some.
pub struct Named<'a> {
    table: Vec<u8>,
    /// Which frames follow.
    following: Vec<usize>,
    frames: &'a mut dyn Frames,
}

impl<'a> Named<'a> {
    /// Name every long frame that `share` can name; `None` if there is none.
    pub fn new(
        frames: &'a mut dyn Frames,
        mut share: impl FnMut(&[u8], Option<&Lease>) -> Option<[u8; NAME_BYTES]>,
    ) -> Option<Self> {
        let count = frames.count();
        let first = (0..count).find(|&index| frames.get(index).len() >= SHARE_BYTES_MIN)?;
        let mut table = vec![FOLLOWS; first];
        let mut following: Vec<usize> = (0..first).collect();
        for index in first..count {
            let bytes = frames.get(index);
            let name = (bytes.len() >= SHARE_BYTES_MIN)
                .then(|| share(bytes, frames.block(index)))
                .flatten();
            if let Some(name) = name {
                table.push(NAMED);
                table.extend_from_slice(&name);
            } else {
                table.push(FOLLOWS);
                following.push(index);
            }
        }
        (following.len() < count).then_some(Self {
            table,
            following,
            frames,
        })
    }
}

impl Frames for Named<'_> {
    fn count(&self) -> usize {
        1 + self.following.len()
    }

    fn get(&self, index: usize) -> &[u8] {
        match index {
            0 => &self.table,
            _ => self.frames.get(self.following[index - 1]),
        }
    }

    fn lend(&mut self, index: usize) -> Payload {
        match index {
            0 => Box::new(std::mem::take(&mut self.table)),
            _ => self.frames.lend(self.following[index - 1]),
        }
    }
}

/// The frames that `segments` encode; opens none after the first that exceeds a limit.
///
/// What is not used stays in `segments`: the table, and on an error everything.
pub fn open(
    segments: &mut Message,
    limits: &Limits,
    open: impl FnMut(&[u8; NAME_BYTES]) -> Result<Buffer, Violation>,
) -> Result<Message, Violation> {
    let mut message = Message::new();
    match open_into(&mut message, segments, limits, open) {
        Ok(()) => Ok(message),
        Err(violation) => {
            segments.append(&mut message);
            Err(violation)
        }
    }
}

fn open_into(
    message: &mut Message,
    segments: &mut [Buffer],
    limits: &Limits,
    mut open: impl FnMut(&[u8; NAME_BYTES]) -> Result<Buffer, Violation>,
) -> Result<(), Violation> {
    let (table, following) = segments.split_first_mut().ok_or(Violation::Empty)?;
    let wrong = || Violation::Table(table.len());
    let mut following = following.iter_mut();
    let mut bytes = 0_u64;
    let mut rest = table.as_slice();
    while let Some((&kind, behind)) = rest.split_first() {
        rest = behind;
        if message.len() == usize::from(limits.segments_max) {
            return Err(too_many(limits));
        }
        let frame = match kind {
            FOLLOWS => {
                let frame = following.next().ok_or_else(wrong)?;
                std::mem::replace(frame, Buffer::empty())
            }
            NAMED => {
                let (name, behind) = rest.split_first_chunk().ok_or_else(wrong)?;
                rest = behind;
                open(name)?
            }
            _ => return Err(wrong()),
        };
        bytes = bytes.saturating_add(frame.len() as u64);
        message.push(frame);
        check_bytes(bytes, limits)?;
    }
    if following.next().is_some() || message.is_empty() {
        return Err(wrong());
    }
    Ok(())
}

fn too_many(limits: &Limits) -> Violation {
    Violation::Segments {
        limit: limits.segments_max,
        value: limits.segments_max.saturating_add(1),
    }
}

fn check_bytes(bytes: u64, limits: &Limits) -> Result<(), Violation> {
    if bytes > limits.frame_bytes_max {
        return Err(Violation::FrameBytes {
            limit: limits.frame_bytes_max,
            value: bytes,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::buffer::HEAD_ALIGN;

    fn buffer(bytes: &[u8]) -> Buffer {
        let mut made = Buffer::with_capacity(bytes.len(), HEAD_ALIGN).expect("memory");
        made.append(bytes);
        made
    }

    fn opened(segments: &[&[u8]]) -> Result<Vec<usize>, Violation> {
        let mut segments = segments.iter().map(|bytes| buffer(bytes)).collect();
        let limits = Limits::of_messages();
        let message = open(&mut segments, &limits, |name| Ok(buffer(&name[..4])))?;
        Ok(message.iter().map(Buffer::len).collect())
    }

    #[test]
    fn named_and_following_frames_keep_their_order() {
        let mut frames = vec![vec![1; 3], vec![2; SHARE_BYTES_MIN], vec![3; 5]];
        let named = Named::new(&mut frames, |_, _| Some([7; NAME_BYTES])).expect("one is long");
        let segments: Vec<&[u8]> = (0..named.count()).map(|index| named.get(index)).collect();
        assert_eq!(opened(&segments), Ok(vec![3, 4, 5]));
    }

    #[test]
    fn what_cannot_be_named_follows() {
        let mut frames = vec![vec![2; SHARE_BYTES_MIN]];
        assert!(Named::new(&mut frames, |_, _| None).is_none());
        let mut short = vec![vec![2; SHARE_BYTES_MIN - 1]];
        assert!(Named::new(&mut short, |_, _| Some([7; NAME_BYTES])).is_none());
    }

    #[test]
    fn nothing_is_opened_beyond_a_limit() {
        let table = [NAMED].iter().chain(&[4; NAME_BYTES]).copied().cycle();
        let table: Vec<u8> = table.take(10 * (1 + NAME_BYTES)).collect();
        let opened = |limits: &Limits| {
            let mut count = 0;
            let outcome = open(&mut vec![buffer(&table)], limits, |name| {
                count += 1;
                Ok(buffer(&name[..4]))
            });
            (outcome.map(|message| message.len()), count)
        };
        let roomy = Limits::of_messages();
        assert_eq!(opened(&roomy), (Ok(10), 10));
        let few = Limits {
            segments_max: 3,
            ..roomy
        };
        assert_eq!(
            opened(&few),
            (Err(Violation::Segments { limit: 3, value: 4 }), 3)
        );
        let short = Limits {
            frame_bytes_max: 9,
            ..roomy
        };
        let too_long = Violation::FrameBytes {
            limit: 9,
            value: 12,
        };
        assert_eq!(opened(&short), (Err(too_long), 3));
    }

    #[test]
    fn what_is_of_no_use_stays_where_it_was() {
        let left = |table: &[u8]| {
            let mut segments = vec![buffer(table), buffer(b"a"), buffer(b"b")];
            let nothing = |_: &[u8; NAME_BYTES]| Err(Violation::Empty);
            let opened = open(&mut segments, &Limits::of_messages(), nothing);
            let bytes: usize = segments.iter().map(Buffer::len).sum();
            (opened.is_ok(), bytes)
        };
        assert_eq!(left(&[FOLLOWS; 2]), (true, 2), "the table");
        assert_eq!(left(&[FOLLOWS; 3]), (false, 5), "everything");
        assert_eq!(left(&[FOLLOWS, 9]), (false, 4), "everything");
    }

    #[test]
    fn tables_that_do_not_fit_are_refused() {
        assert_eq!(opened(&[]), Err(Violation::Empty));
        assert_eq!(opened(&[&[]]), Err(Violation::Table(0)));
        assert_eq!(opened(&[&[FOLLOWS]]), Err(Violation::Table(1)));
        assert_eq!(opened(&[&[FOLLOWS], b"a", b"b"]), Err(Violation::Table(1)));
        assert_eq!(opened(&[&[NAMED, 1, 2]]), Err(Violation::Table(3)));
        assert_eq!(opened(&[&[9]]), Err(Violation::Table(1)));
    }
}

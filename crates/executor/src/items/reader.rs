//! Reading the items of one request in their order, behind a number.

use std::fs::File;
use std::ops::Range;

use super::{HEAD_BYTES, Head, Items, malformed, number, read_at};
use crate::error::{Error, Result};
use crate::id::RequestId;
use crate::limit::{
    ITEM_BYTES_MOST, ITEM_LOOKS_MAX, ITEM_PIECE_BYTES, ITEM_PIECE_COUNT, ITEM_SKIP_BYTES,
    ITEM_SKIP_READS,
};

/// The length before an item.
const LENGTH_BYTES: usize = 4;

/// Items that follow each other in one epoch; none where that epoch is new to the reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemsPiece {
    pub epoch: u64,
    /// The number of the first one, or of the one that will be.
    pub first: u64,
    pub bytes: Vec<u8>,
    /// Where each item is in `bytes`.
    pub items: Vec<Range<usize>>,
}

/// What a reader finds.
#[derive(Debug, PartialEq, Eq)]
pub enum NextItems {
    Piece(ItemsPiece),
    /// Nothing in this turn, but there is more to look at.
    Later,
    /// Nothing now.
    Nothing,
}

/// How far one reader is. It holds no file between two reads.
#[derive(Debug)]
pub struct ItemsReader {
    epoch: Option<u64>,
    /// It wants those behind this number.
    after: u64,
    /// The last one that it was given, or that was passed over.
    number: u64,
    /// Where the next one begins.
    offset: u64,
    failed: bool,
}

impl ItemsReader {
    /// Behind item `after` of an epoch; without one, of that which the file has or will have.
    pub fn new(epoch: Option<u64>, after: u64) -> Self {
        Self {
            epoch,
            after,
            number: 0,
            offset: HEAD_BYTES,
            failed: false,
        }
    }

    /// The next items of a request. After an error there are none.
    ///
    /// # Errors
    /// `Malformed`, `Config`, `System`: the file is no file of items, or cannot be read.
    pub fn next(&mut self, items: &Items, id: RequestId) -> Result<NextItems> {
        if self.failed {
            return Ok(NextItems::Nothing);
        }
        let next = self.look(items, id);
        self.failed = next.is_err();
        next
    }

    fn look(&mut self, items: &Items, id: RequestId) -> Result<NextItems> {
        let Some((file, head)) = items.open(id)? else {
            return Ok(NextItems::Nothing);
        };
        if self.epoch != Some(head.epoch) {
            return Ok(NextItems::Piece(self.begin(head.epoch)));
        }
        if self.number < self.after && !self.pass_over(&file, head)? {
            return Ok(NextItems::Later);
        }
        if self.number < self.after || self.offset == head.end {
            return Ok(NextItems::Nothing);
        }
        let (bytes, items) = piece(&file, self.offset, head.end)?;
        let first = self.number + 1;
        self.number += items.len() as u64;
        self.after = self.number;
        let heads = LENGTH_BYTES * items.len();
        self.offset += (heads + items.iter().map(Range::len).sum::<usize>()) as u64;
        Ok(NextItems::Piece(ItemsPiece {
            epoch: head.epoch,
            first,
            bytes,
            items,
        }))
    }

    /// Begin with an epoch that the reader does not know: the number that it named was of another one, if it named that.
    fn begin(&mut self, epoch: u64) -> ItemsPiece {
        let after = if self.epoch.is_some() { 0 } else { self.after };
        *self = Self::new(Some(epoch), after);
        ItemsPiece {
            epoch,
            first: after + 1,
            bytes: Vec::new(),
            items: Vec::new(),
        }
    }

    /// Pass over a turn's worth of the items up to `after`; false: there are more.
    fn pass_over(&mut self, file: &File, head: Head) -> Result<bool> {
        let mut looks = ITEM_LOOKS_MAX;
        let mut chunk = [0; ITEM_SKIP_BYTES];
        for _ in 0..ITEM_SKIP_READS {
            let there = room(self.offset, head.end, ITEM_SKIP_BYTES);
            if there == 0 {
                return Ok(true);
            }
            let chunk = &mut chunk[..there];
            fill(file, chunk, self.offset)?;
            let mut at = 0;
            while let Some(length) = length_at(chunk, at, self.offset)? {
                if self.number == self.after {
                    return Ok(true);
                }
                if looks == 0 {
                    return Ok(false);
                }
                let whole = LENGTH_BYTES + length;
                at += whole;
                self.offset += whole as u64;
                self.number += 1;
                looks -= 1;
                if self.offset > head.end {
                    return Err(malformed(
                        "an item behind the end of the items",
                        self.offset,
                    ));
                }
            }
            if at == 0 {
                return Err(malformed("half of an item", self.offset));
            }
        }
        Ok(self.number == self.after || self.offset == head.end)
    }
}

/// As many items from an offset on as a message takes, and where they are; at least one.
fn piece(file: &File, offset: u64, end: u64) -> Result<(Vec<u8>, Vec<Range<usize>>)> {
    let mut bytes = vec![0; room(offset, end, ITEM_PIECE_BYTES)];
    fill(file, &mut bytes, offset)?;
    let (mut at, mut items) = (0, Vec::new());
    while let Some(length) = length_at(&bytes, at, offset)? {
        let item = at + LENGTH_BYTES..at + LENGTH_BYTES + length;
        if item.end > bytes.len() || items.len() == ITEM_PIECE_COUNT {
            break;
        }
        at = item.end;
        items.push(item);
    }
    if !items.is_empty() {
        return Ok((bytes, items));
    }
    // It is larger than a piece, and comes alone.
    let length =
        length_at(&bytes, 0, offset)?.ok_or_else(|| malformed("half of an item", offset))?;
    let begin = offset + LENGTH_BYTES as u64;
    if begin + length as u64 > end {
        return Err(malformed("an item behind the end of the items", offset));
    }
    let mut bytes = vec![0; length];
    fill(file, &mut bytes, begin)?;
    let only = 0..length;
    Ok((bytes, Vec::from([only])))
}

/// How many bytes lie between an offset and the end, at most so many.
fn room(offset: u64, end: u64, most: usize) -> usize {
    usize::try_from(end.saturating_sub(offset)).map_or(most, |there| there.min(most))
}

/// The length of the item that begins there; `None` if that lies behind these bytes.
fn length_at(bytes: &[u8], at: usize, offset: u64) -> Result<Option<usize>> {
    let Some(head) = bytes.get(at..at + LENGTH_BYTES) else {
        return Ok(None);
    };
    match usize::try_from(number(head)) {
        Ok(length) if (1..=ITEM_BYTES_MOST).contains(&length) => Ok(Some(length)),
        _ => Err(malformed(
            "an item of an impossible length",
            offset + at as u64,
        )),
    }
}

fn fill(file: &File, buffer: &mut [u8], offset: u64) -> Result<()> {
    let read = read_at(file, buffer, offset).map_err(Error::system("read items"))?;
    if read < buffer.len() {
        return Err(malformed(
            "fewer items than the head says",
            offset + read as u64,
        ));
    }
    Ok(())
}

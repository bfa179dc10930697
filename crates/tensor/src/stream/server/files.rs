//! Reads of files for a shard: batches go to a ring of the server's thread, or to the I/O thread if they are long;
//! a descriptor that the thread sleeps on reports the finished ones.
//!
//! Rows are read into a separate region of one block, allocated and registered with the ring when the first file is
//! published. The arena of the tensors was the alternative, but registering a region pins all of its chunks, and so
//! every page of every tensor.
//!
//! If completions can no longer be collected, reads in flight may still write: the block is never reused, and all
//! pulls of file rows fail from then on.
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use forebay_base::slots::{self, Slots};
use forebay_blockio::{
    BlockFile, BlockQueue, Config, Finished, Keeper, Kind, Operation, Port, record_checksum,
};
use forebay_memory::{Config as RegionConfig, Lease, PAGE_BYTES, Region};
use rustix::io::Errno;

use super::parts::Parts;
use crate::error::Error;
use crate::responder::{PeerId, ReadId, Room, Shard};
use crate::sys::staging::Part;
use crate::table::{CHECKSUM_BYTES, Description, FileRows, Filed, Key, Released, Run};

/// How long a closing server waits for reads that the kernel has.
const DRAIN: Duration = Duration::from_secs(5);
/// Bytes of reads begun per turn: rows in the page cache are copied at once, while other peers wait for their turns.
const TURN_BYTES: usize = 2 << 20;

/// A read, until the memory of its rows is free again.
struct Flight {
    read: ReadId,
    part: Part,
    room: Room,
    runs: Vec<Run>,
}

/// The ring and its memory, from the first published file on.
struct Ring {
    port: Port,
    block: Lease,
    parts: Parts,
    /// Keeps the memory of the block registered.
    _region: Region,
}

/// The files of one shard, and reads of them.
#[derive(Default)]
pub(super) struct Files {
    open: Slots<BlockFile>,
    flights: Slots<Flight>,
    ring: Option<Ring>,
    /// The next read, if there is no memory for it yet.
    held: Option<(ReadId, Room)>,
    finished: Vec<Finished>,
    /// Lists of finished reads, and leases of the block, for reuse.
    spare: Vec<Vec<Run>>,
    keepers: Vec<Keeper>,
    /// Memory was freed, or reads have ended.
    moved: bool,
    failure: Option<String>,
}

impl Files {
    /// Publish the rows of a file.
    ///
    /// # Errors
    ///
    /// As [`Shard::publish_file`]; [`Error::Config`] for a file that is too short, or whose rows are not aligned as
    /// direct I/O needs; [`Error::Broken`] without a ring or memory.
    pub(super) fn publish<K>(
        &mut self,
        shard: &mut Shard<K>,
        (name, description): (&str, Description),
        (file, rows): (BlockFile, FileRows),
    ) -> Result<Key, Error> {
        check(&file, &description, rows)?;
        if self.ring.is_none() {
            let ring = Ring::new(shard.staging_bytes());
            self.ring = Some(ring.map_err(|error| Error::Broken {
                why: format!("rows of files cannot be read: {error}"),
            })?);
        }
        let file = self.open.insert(file);
        let published = shard.publish_file(name, description, rows, file.index);
        if published.is_err() {
            self.open.remove(file);
        }
        published
    }

    /// A descriptor that is readable when [`Files::turn`] is due.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.ring.as_ref().map(|ring| ring.port.as_fd())
    }

    /// Take finished reads: pass them to the shard, and append their peers to `ready`.
    pub(super) fn turn<K>(&mut self, shard: &mut Shard<K>, ready: &mut Vec<PeerId>) {
        let Some(ring) = &mut self.ring else { return };
        let mut finished = std::mem::take(&mut self.finished);
        if let Err(error) = ring.port.turn(&mut finished) {
            self.fail(shard, ready, &error);
        }
        for ended in finished.drain(..) {
            let flight = slots::Key::from_bits(ended.ticket);
            if let Some(keeper) = ended.keeper {
                self.keepers.push(keeper);
                self.ended(shard, flight, ready);
            } else {
                self.lose(shard, flight, ready);
            }
        }
        self.finished = finished;
    }

    /// Begin reads while there is memory for them.
    pub(super) fn issue<K>(&mut self, shard: &mut Shard<K>, ready: &mut Vec<PeerId>) {
        self.moved = false;
        let mut begun = 0;
        while let Some((read, room)) = self.held.take().or_else(|| shard.next_read()) {
            if begun >= TURN_BYTES {
                self.held = Some((read, room));
                self.moved = true;
                return;
            }
            if !shard.is_wanted(read) {
                shard.give_up(read);
                continue;
            }
            if let Some(why) = self.failure.clone() {
                self.refuse(shard, read, Error::Broken { why }, ready);
                continue;
            }
            let Some(ring) = &mut self.ring else { return };
            let Some(from) = ring.parts.take(room.bytes) else {
                self.held = Some((read, room));
                return;
            };
            begun += room.bytes;
            self.begin(shard, (read, room), from, ready);
        }
    }

    /// Whether [`Files::issue`] could begin reads that it could not before.
    pub(super) fn is_due<K>(&self, shard: &Shard<K>) -> bool {
        self.moved && (self.held.is_some() || shard.has_reads())
    }

    /// Release memory and files that the shard no longer uses.
    pub(super) fn retire<K>(&mut self, shard: &mut Shard<K>) {
        while let Some(keeper) = shard.take_retired() {
            drop(keeper);
        }
        while let Some(gone) = shard.take_released() {
            self.release(gone);
        }
    }

    fn release(&mut self, gone: Released) {
        match gone {
            Released::File(number) => {
                if let Some((file, _)) = self.open.at(number) {
                    self.open.remove(file);
                }
            }
            Released::Staged(number) => {
                if let Some((flight, _)) = self.flights.at(number) {
                    self.free(flight);
                }
            }
        }
    }

    /// Wait for reads that the kernel has, for at most [`DRAIN`].
    pub(super) fn end(mut self) {
        if let Some(ring) = &mut self.ring {
            ring.port.drain(DRAIN, &mut self.finished);
        }
    }

    fn begin<K>(
        &mut self,
        shard: &mut Shard<K>,
        (read, room): (ReadId, Room),
        from: usize,
        ready: &mut Vec<PeerId>,
    ) {
        let part = Part {
            from,
            rows_bytes: room.rows_bytes,
            runs: room.runs,
        };
        let (Some(ring), Some((_, file))) = (&mut self.ring, self.open.at(room.file)) else {
            unreachable!("the shard holds the file, and publishing it made the ring");
        };
        let mut runs = self.spare.pop().unwrap_or_default();
        runs.clear();
        let mut buffer_offset = 0;
        shard.each_run(read, |filed, run| {
            let length = filed.bytes(run);
            let operation = Operation {
                offset: filed.offset(run),
                buffer_offset,
                length: u32::try_from(length).unwrap_or(u32::MAX), // which the batch refuses
                kind: Kind::Read as u8,
                ..Operation::default()
            };
            part.set(&ring.block, runs.len(), operation);
            buffer_offset += length;
            runs.push(run);
        });
        let flight = Flight {
            read,
            part,
            room,
            runs,
        };
        let flight = self.flights.insert(flight);
        let kept = self.keepers.pop();
        let keeper = kept.unwrap_or_else(|| Box::new(ring.block.clone()));
        let batch = part.batch(&ring.block, file.clone());
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) => {
                let why = format!("{}: {error}", file.path().display());
                self.free(flight);
                return self.refuse(shard, read, Error::Broken { why }, ready);
            }
        };
        match ring.port.submit(batch, keeper, flight.to_bits()) {
            Ok(None) => {}
            Ok(Some(keeper)) => {
                self.keepers.push(keeper);
                self.ended(shard, flight, ready);
            }
            // The kernel may have taken this read, and has earlier ones.
            Err(error) => self.fail(shard, ready, &error),
        }
    }

    /// A read has ended without its keeper: the kernel may still write its memory, which is therefore not freed.
    fn lose<K>(&mut self, shard: &mut Shard<K>, flight: slots::Key, ready: &mut Vec<PeerId>) {
        if let Some(flight) = self.flights.remove(flight) {
            let why = "the ring that reads files has failed".to_owned();
            self.refuse(shard, flight.read, Error::Broken { why }, ready);
        }
    }

    fn ended<K>(&mut self, shard: &mut Shard<K>, flight: slots::Key, ready: &mut Vec<PeerId>) {
        let (Some(ring), Some(found)) = (&self.ring, self.flights.get(flight)) else {
            return;
        };
        let read = found.read;
        let file = self.open.at(found.room.file).map(|(_, file)| file);
        let outcome = found
            .check(&ring.block, file)
            .map(|()| (found.part.rows(&ring.block), flight.index));
        let is_well = outcome.is_ok();
        ready.push(read.peer());
        let taken = shard.read(read, outcome, Instant::now());
        if !(taken && is_well) {
            self.free(flight);
        }
        self.moved = true;
    }

    fn refuse<K>(
        &mut self,
        shard: &mut Shard<K>,
        read: ReadId,
        error: Error,
        ready: &mut Vec<PeerId>,
    ) {
        shard.read(read, Err(error), Instant::now());
        ready.push(read.peer());
        self.moved = true;
    }

    fn free(&mut self, flight: slots::Key) {
        if let (Some(ring), Some(flight)) = (&mut self.ring, self.flights.remove(flight)) {
            ring.parts.give(flight.part.from, flight.room.bytes);
            self.spare.push(flight.runs);
            self.moved = true;
        }
    }

    /// Completions are lost: refuse all reads in flight, and all later ones.
    fn fail<K>(
        &mut self,
        shard: &mut Shard<K>,
        ready: &mut Vec<PeerId>,
        error: &forebay_blockio::Error,
    ) {
        let why = format!("rows of files cannot be read any more: {error}");
        let lost: Vec<_> = self.flights.iter().map(|(_, flight)| flight.read).collect();
        for read in lost {
            let why = why.clone();
            self.refuse(shard, read, Error::Broken { why }, ready);
        }
        self.failure = Some(why);
    }
}

impl Ring {
    fn new(staging_bytes: u64) -> Result<Self, forebay_blockio::Error> {
        // Whole pages: regions map and reads use whole pages.
        let paged = staging_bytes.checked_next_multiple_of(PAGE_BYTES);
        let staging_bytes = paged.unwrap_or(staging_bytes);
        let region = Region::new(RegionConfig::new("tensor-staging", staging_bytes))?;
        let bytes = usize::try_from(staging_bytes).unwrap_or(usize::MAX);
        let block = region.allocate(bytes)?;
        let queue = BlockQueue::new(Config::default())?;
        queue.attach(&region)?;
        Ok(Self {
            port: queue.port(false)?,
            block,
            parts: Parts::new(bytes),
            _region: region,
        })
    }
}

impl Flight {
    /// Check the results, and checksums if the rows have them.
    fn check(&self, block: &Lease, file: Option<&BlockFile>) -> Result<(), Error> {
        let Filed { rows, .. } = self.room.filed;
        let unread = |run: &Run, errno: i32, what: String| Error::Unread {
            path: file.map_or_else(String::new, |file| file.path().display().to_string()),
            first: rows.first + run.first,
            last: rows.first + run.first + run.rows - 1,
            errno,
            what,
        };
        for (index, run) in self.runs.iter().enumerate() {
            let result = self.part.result(block, index);
            if result < 0 {
                let errno = i32::try_from(-result).unwrap_or(libc::EIO);
                let what = match errno {
                    libc::ENODATA => "the file ends before the row".to_owned(),
                    _ => Errno::from_raw_os_error(errno).to_string(),
                };
                return Err(unread(run, errno, what));
            }
        }
        if rows.checksums {
            let wrong = self.wrong_row(block);
            if let Some(row) = wrong {
                let run = Run {
                    first: row,
                    rows: 1,
                };
                return Err(unread(
                    &run,
                    libc::EILSEQ,
                    "its checksum is wrong".to_owned(),
                ));
            }
        }
        Ok(())
    }

    /// The first row with a wrong checksum.
    fn wrong_row(&self, block: &Lease) -> Option<u64> {
        let (row_bytes, stride) = self.room.filed.sizes();
        let is_right = |at: usize, row: u64| {
            let number = (self.room.filed.rows.first + row).to_le_bytes();
            let whole = (at * stride, row_bytes + CHECKSUM_BYTES);
            self.part.with_bytes(block, whole, |bytes| {
                let (row, sum) = bytes.split_at(row_bytes);
                record_checksum(row, &number).to_le_bytes() == sum
            })
        };
        let rows = self
            .runs
            .iter()
            .flat_map(|run| run.first..run.first + run.rows);
        rows.enumerate()
            .find_map(|(at, row)| (!is_right(at, row)).then_some(row))
    }
}

/// Refuse a file without these rows, or that cannot be read with their stride.
fn check(file: &BlockFile, description: &Description, rows: FileRows) -> Result<(), Error> {
    let align = u64::from(file.alignment().offset);
    for (setting, value) in [("offset", rows.offset), ("stride_bytes", rows.stride_bytes)] {
        if !value.is_multiple_of(align) {
            return Err(Error::Config {
                setting,
                value,
                advice: "direct I/O on this file needs multiples of its block size; open it without",
            });
        }
    }
    let bytes = file.size_bytes().map_err(|error| Error::Broken {
        why: format!("{}: {error}", file.path().display()),
    })?;
    let needed = description.rows().saturating_mul(rows.stride_bytes);
    if bytes < needed.saturating_add(rows.offset) {
        return Err(Error::Config {
            setting: "the size of the file",
            value: bytes,
            advice: "the file ends before the last row",
        });
    }
    Ok(())
}

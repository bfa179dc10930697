//! A shard with a tensor in memory and one in a file, which hears one peer.
use std::time::Instant;

use forebay_tensor::{
    Description, Dtype, Error, FileRows, Number, PeerId, Released, Shard, ShardLimits, Span,
};

use crate::sys::loan::{Loan, carry};

pub const LIMITS: ShardLimits = ShardLimits {
    slots: 4,
    grant_bytes: 64 << 10,
    tensors_max: 4,
    peers_max: 2,
    liveness: std::time::Duration::from_secs(5),
    staging_bytes: 16 << 10,
};
pub const ROWS: u64 = 8;
/// Of a row: in memory; of the large tensor, whose rows go straight to their destination; in a file.
pub const ROW_BYTES: [u64; 3] = [16, 16 << 10, 512];
pub const NAMES: [&str; 3] = ["small", "large", "file"];
const FILE: u32 = 1;

pub struct Server {
    shard: Shard<()>,
    peer: PeerId,
    tensors: [Loan; 2],
    /// What every read of the file gives.
    file: Loan,
    reads: u32,
    released: u32,
    now: Instant,
}

fn description(row_bytes: u64, number: Number) -> Description {
    Description {
        dtype: Dtype {
            number,
            item_bytes: 4,
            text: "<f4".into(),
        },
        shape: vec![ROWS, row_bytes / 4],
    }
}

fn bytes(count: u64) -> usize {
    usize::try_from(count).expect("a few")
}

impl Server {
    pub fn new() -> Self {
        let now = Instant::now();
        let mut shard = Shard::new(LIMITS).expect("the limits can be");
        let [small, large, filed] = ROW_BYTES;
        let mut tensors = [small, large].map(|each| Loan::from(vec![1; bytes(ROWS * each)]));
        for (at, number) in [Number::Float, Number::Opaque].into_iter().enumerate() {
            let (described, span) = (description(ROW_BYTES[at], number), tensors[at].span());
            let published = shard.publish(NAMES[at], described, span, ());
            published.expect("it can be published");
        }
        let rows = FileRows {
            offset: 0,
            stride_bytes: filed,
            first: 0,
            checksums: false,
        };
        let described = description(filed, Number::Opaque);
        let published = shard.publish_file(NAMES[2], described, rows, FILE);
        published.expect("it can be published");
        Self {
            peer: shard.connect(LIMITS.slots, now).expect("it is the first"),
            shard,
            tensors,
            file: Loan::from(vec![2; bytes(LIMITS.staging_bytes)]),
            reads: 0,
            released: 0,
            now,
        }
    }

    /// Bytes of the peer.
    pub fn hear(&mut self, burst: &[u8], step: usize) -> Result<(), Error> {
        for part in burst.chunks(step) {
            self.shard.feed(self.peer, part, self.now)?;
        }
        Ok(())
    }

    /// All that the peer is told, rows of the file included.
    pub fn say(&mut self) -> Vec<u8> {
        let mut said = Vec::new();
        loop {
            let before = said.len();
            self.read();
            self.send(&mut said);
            if said.len() == before {
                return said;
            }
        }
    }

    fn read(&mut self) {
        while let Some((read, room)) = self.shard.next_read() {
            let rows = self.file.span().part(0, room.rows_bytes);
            self.reads += 1;
            // Memory has numbers apart from those of files.
            let taken = self.shard.read(read, Ok((rows, self.reads)), self.now);
            self.released += u32::from(!taken);
        }
    }

    fn send(&mut self, said: &mut Vec<u8>) {
        let mut sink = Loan::from(vec![0; 4096]);
        let mut spans = [Span::EMPTY; 8];
        loop {
            let count = self.shard.outgoing(self.peer, &mut spans);
            let sent = carry(&spans[..count], &[sink.span()]);
            if sent == 0 {
                break;
            }
            said.extend(&sink.bytes()[..sent]);
            self.shard.sent(self.peer, sent, self.now);
            self.take_back();
        }
    }

    fn take_back(&mut self) {
        while let Some(released) = self.shard.take_released() {
            self.released += u32::from(matches!(released, Released::Staged(_)));
        }
    }

    /// The peer goes, and all tensors do: whatever it said, everything comes back. Returns what they held.
    pub fn end(mut self) -> Vec<u8> {
        self.shard.disconnect(self.peer);
        for name in NAMES {
            self.shard.drop_tensor(name).expect("nobody else drops it");
        }
        self.take_back();
        assert_eq!(self.released, self.reads, "the memory of every read");
        let retired = std::iter::from_fn(|| self.shard.take_retired()).count();
        assert_eq!(retired, self.tensors.len(), "no answer reads them");
        let held: Vec<_> = self.tensors.iter().map(Loan::bytes).collect();
        held.concat()
    }
}

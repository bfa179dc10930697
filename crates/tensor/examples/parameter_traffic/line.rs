//! A link with latency: bytes come out of it in their order, each so long after it went in, as many as there are.
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    ToServer,
    ToWorker,
}

#[derive(Debug)]
struct Parcel {
    due: Instant,
    connection: usize,
    way: Way,
    bytes: Vec<u8>,
}

/// The links of all connections, which have the same latency.
#[derive(Debug)]
pub struct Line {
    delay: Duration,
    parcels: VecDeque<Parcel>,
}

impl Line {
    pub fn new(delay: Duration) -> Self {
        Self {
            delay,
            parcels: VecDeque::new(),
        }
    }

    /// Bytes go in.
    pub fn put(&mut self, connection: usize, way: Way, bytes: Vec<u8>, now: Instant) {
        self.parcels.push_back(Parcel {
            due: now + self.delay,
            connection,
            way,
            bytes,
        });
    }

    /// The next bytes that are out by now.
    pub fn take(&mut self, now: Instant) -> Option<(usize, Way, Vec<u8>)> {
        if self.next()? > now {
            return None;
        }
        let parcel = self.parcels.pop_front()?;
        Some((parcel.connection, parcel.way, parcel.bytes))
    }

    /// When the next bytes come out.
    pub fn next(&self) -> Option<Instant> {
        self.parcels.front().map(|parcel| parcel.due)
    }
}

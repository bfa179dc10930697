//! Two ends of a connection, in one process or each in its own.
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use forebay_memory::{Config, Lease, Region, Registrar};
use forebay_tensor::Error;
use forebay_verbs::{Adapter, Catalog, Puller, Registering, Registry, Responder, Settled};

use crate::sys::{fill, part};

/// What nothing takes as long as: a test that waits for it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn patience() -> Instant {
    Instant::now() + PATIENCE
}

/// A process's device and memory.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) adapter: Adapter,
    pub(crate) region: Region,
    pub(crate) registry: Arc<Registry>,
}

impl Place {
    pub(crate) fn new(name: &str) -> Self {
        let adapter = Adapter::open(None).expect("a device, as in the guest of make test-verbs");
        let config = Config::new(name, 64 << 20).chunk_bytes(8 << 20);
        let region = Region::new(config).expect("a region");
        let registry = Registry::new(&adapter);
        region
            .attach(Arc::clone(&registry) as Arc<dyn Registrar>)
            .expect("attached");
        Self {
            adapter,
            region,
            registry,
        }
    }

    pub(crate) fn puller(
        &self,
        stream: UnixStream,
        slots: u32,
        registering: Registering,
    ) -> Result<Puller, Error> {
        let Self {
            adapter,
            region,
            registry,
        } = self;
        Puller::connect(
            adapter,
            registry,
            region,
            Box::new(stream),
            slots,
            registering,
        )
    }

    pub(crate) fn responder(
        &self,
        stream: UnixStream,
        slots: u32,
        registering: Registering,
    ) -> Result<Responder, Error> {
        let Self {
            adapter,
            region,
            registry,
        } = self;
        Responder::connect(
            adapter,
            registry,
            region,
            Box::new(stream),
            slots,
            registering,
        )
    }

    /// A block with bytes that tell where they are.
    pub(crate) fn block(&self, bytes: usize, seed: usize) -> Lease {
        let block = self.region.allocate(bytes).expect("room");
        fill(&block, &pattern(0..bytes, seed));
        block
    }
}

/// The bytes at places of a block that was filled.
pub(crate) fn pattern(places: Range<usize>, seed: usize) -> Vec<u8> {
    let period: Vec<u8> = (0..=250).collect();
    let begun = (places.start + seed) % 251;
    let mut bytes = Vec::with_capacity(places.len() + 251);
    bytes.extend_from_slice(&period[begun..]);
    while bytes.len() < places.len() {
        bytes.extend_from_slice(&period);
    }
    bytes.truncate(places.len());
    bytes
}

/// Whether a part of a block holds what its owner has from a place on.
pub(crate) fn holds(block: &Lease, range: Range<usize>, from: usize, seed: usize) -> bool {
    let expected = pattern(from..from + range.len(), seed);
    part(block, range) == expected
}

/// Both ends in this thread: what each does is in the test's hands.
pub(crate) fn both(
    requester: &Place,
    owner: &Place,
    slots: u32,
    registering: Registering,
) -> (Puller, Responder) {
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    thread::scope(|scope| {
        let responder = scope.spawn(|| owner.responder(theirs, slots, registering));
        let puller = requester
            .puller(ours, slots, registering)
            .expect("connected");
        (
            puller,
            responder.join().expect("no panic").expect("connected"),
        )
    })
}

/// Serve until the peer goes; why it ended.
pub(crate) fn serve(mut responder: Responder, catalog: &Catalog) -> Error {
    loop {
        if let Err(error) = responder.wait(catalog, None) {
            return error;
        }
    }
}

/// The same in a thread of its own.
pub(crate) fn serving(responder: Responder, catalog: Catalog) -> JoinHandle<Error> {
    let thread = thread::Builder::new().name("owner".to_owned());
    thread
        .spawn(move || serve(responder, &catalog))
        .expect("a thread")
}

/// Answer one request or more.
///
/// # Errors
///
/// Why the connection is over, or that nothing came for too long.
pub(crate) fn answer(responder: &mut Responder, catalog: &Catalog) -> Result<(), Error> {
    let deadline = Instant::now() + PATIENCE;
    while responder.wait(catalog, Some(deadline))? == 0 {
        let late = Instant::now().saturating_duration_since(deadline);
        if !late.is_zero() {
            return Err(Error::Timeout { late });
        }
    }
    Ok(())
}

/// Wait for the next end.
///
/// # Errors
///
/// Why the connection is over, or that nothing came for too long.
pub(crate) fn next(puller: &mut Puller) -> Result<Settled, Error> {
    let deadline = Instant::now() + PATIENCE;
    let mut arrivals = Vec::new();
    while arrivals.is_empty() {
        let late = Instant::now().saturating_duration_since(deadline);
        if !late.is_zero() {
            return Err(Error::Timeout { late });
        }
        puller.wait(&mut arrivals, Some(deadline))?;
    }
    assert_eq!(
        arrivals.len(),
        1,
        "the tests that wait for one have one under way"
    );
    Ok(puller.settle(arrivals.remove(0)).expect("not broken off"))
}

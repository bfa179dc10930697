//! Both ends as a server and a link use them: implements the traits of `forebay_tensor::fabric`.
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use forebay_memory::Lease;
use forebay_tensor::Error;
use forebay_tensor::fabric::{
    Completion, FabricPull, Provider, RequesterEndpoint, ResponderEndpoint, Source,
};

use crate::PULL_BYTES_MAX;
use crate::device::Device;
use crate::puller::{Arrival, Puller};
use crate::responder::Responder;

/// Longer than a device takes to revoke keys, unless much is being sent.
const RELEASING: Duration = Duration::from_millis(500);

impl Provider for Device {
    fn check(&self, block: &Lease) -> Result<(), Error> {
        Self::check(self, block)
    }

    fn accept(
        &self,
        introduction: &[u8],
        slots_max: u32,
    ) -> Result<(Box<dyn ResponderEndpoint>, Vec<u8>), Error> {
        let (responder, answer) = Responder::accept(self, introduction, slots_max)?;
        Ok((Box::new(responder), answer))
    }
}

impl ResponderEndpoint for Responder {
    fn turn(&mut self, source: &dyn Source) -> Result<usize, Error> {
        Self::turn(self, source)
    }

    fn is_sending(&self, start: usize, bytes: usize) -> bool {
        Self::is_sending(self, start, bytes)
    }

    fn settle(&mut self, start: usize, bytes: usize, deadline: Instant) -> Result<(), Error> {
        Self::settle(self, start, bytes, deadline)
    }

    fn fence(&mut self, error: Error) {
        drop(Self::fence(self, error));
    }

    fn is_due(&self) -> bool {
        self.has_requests() || self.broken().is_some()
    }
}

impl Puller {
    /// The endpoint that a link pulls through.
    pub fn into_endpoint(self) -> Box<dyn RequesterEndpoint> {
        Box::new(Endpoint {
            puller: self,
            arrivals: Vec::new(),
        })
    }
}

/// A puller whose turns settle its arrivals.
#[derive(Debug)]
struct Endpoint {
    puller: Puller,
    /// Arrivals since the last turn; kept for its capacity.
    arrivals: Vec<Arrival>,
}

impl RequesterEndpoint for Endpoint {
    fn reaches(&self, block: &Lease, bytes: usize) -> bool {
        bytes <= PULL_BYTES_MAX && self.puller.reaches(block)
    }

    fn has_free_slot(&self) -> bool {
        self.puller.has_free_slot()
    }

    fn pull(&mut self, pull: FabricPull) -> Result<(), Error> {
        self.puller.pull(pull)
    }

    fn turn(&mut self, completions: &mut Vec<Completion>) -> Result<(), Error> {
        let turned = self.puller.turn(&mut self.arrivals);
        for arrival in self.arrivals.drain(..) {
            let settled = self.puller.settle(arrival);
            completions.extend(settled.map(|settled| Completion {
                token: settled.token,
                result: settled.result,
            }));
        }
        turned
    }

    fn cancel(&mut self, token: u64) {
        self.puller.cancel(token);
    }

    fn release_blocks(&mut self) -> Result<(), Error> {
        self.puller.release_all_keys()?;
        let deadline = Instant::now() + RELEASING;
        while self.puller.is_releasing_keys() && Instant::now() < deadline {
            self.puller.wait(&mut self.arrivals, Some(deadline))?;
        }
        Ok(())
    }

    fn break_off(&mut self, error: Error) {
        drop(self.puller.break_off(error));
    }
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.puller.as_fd()
    }
}

//! What the gauge has measured goes to the machine.

use std::sync::Arc;

use forebay_wake::Queue;

use crate::dispatcher::driver::Driver;
use crate::dispatcher::mailbox::queue_error;
use crate::dispatcher::poll::{Poll, Ready, Source};
use crate::error::{Error, Result};
use crate::gauge::{Gauge, Host, Memory, Reading};
use crate::limit::READINGS_MAX;

/// The gauge, and where its readings come.
pub struct Measures {
    pub gauge: Gauge,
    readings: Arc<Queue<Reading>>,
    batch: Vec<Reading>,
}

impl Measures {
    /// Start the gauge's thread.
    ///
    /// # Errors
    /// `System`.
    pub fn start(poll: &Poll, memory_limit: Option<u64>) -> Result<Self> {
        let readings = Arc::new(Queue::new(READINGS_MAX).map_err(queue_error)?);
        poll.watch(&*readings, Source::Gauge, Ready::default(), Ready::READ)
            .map_err(Error::system("epoll_ctl"))?;
        let memory = Memory::find(&Host::default());
        let memory = match memory_limit {
            Some(limit) => memory.limited(limit),
            None => memory,
        };
        Ok(Self {
            gauge: Gauge::start(memory, Arc::clone(&readings))?,
            readings,
            batch: Vec::new(),
        })
    }
}

impl Driver {
    /// Workers first: the machine's memory is judged with what they are known to have. Where one of them ended after
    /// the machine was measured, the reading holds what it had, and nobody else is to end for it: a newer one follows.
    pub fn take_readings(&mut self) {
        let measures = &mut self.measures;
        // It is closed by nobody while this thread lives.
        drop(measures.readings.drain(&mut measures.batch));
        let mut machine = None;
        for reading in measures.batch.drain(..) {
            match reading {
                Reading::Worker {
                    slot,
                    pid,
                    private_bytes,
                } => {
                    let worker = self.workers.get_mut(slot);
                    if let Some(worker) = worker.filter(|worker| worker.is_process(pid)) {
                        worker.measured(private_bytes);
                        self.machine.measured(self.now, slot, private_bytes);
                    }
                }
                Reading::Machine {
                    resident_bytes,
                    pressure,
                    gone,
                } if measures.gauge.is_current(gone) => machine = Some((resident_bytes, pressure)),
                Reading::Machine { .. } => {}
            }
        }
        if let Some((resident, pressure)) = machine {
            self.machine.machine_measured(self.now, resident, pressure);
        }
    }
}

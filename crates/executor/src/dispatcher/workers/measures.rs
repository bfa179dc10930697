//! Passes the gauge's measurements to the machine.

use std::sync::Arc;

use forebay_base::Queue;

use crate::dispatcher::context::Context;
use crate::dispatcher::poll::{Poll, Source, watch_only};
use crate::dispatcher::supervisor::mailbox::queue_error;
use crate::dispatcher::workers::processes::Processes;
use crate::error::Result;
use crate::gauge::{Gauge, Memory, Reading};
use crate::limit::READINGS_MAX;
use crate::request::Slot;

/// The gauge, with the queue of its readings.
pub struct Measures {
    gauge: Gauge,
    readings: Arc<Queue<Reading>>,
    batch: Vec<Reading>,
}

impl Measures {
    /// Start the gauge's thread.
    ///
    /// # Errors
    /// `System`.
    pub fn start(poll: &Poll, memory: Memory) -> Result<Self> {
        let readings = Arc::new(Queue::new(READINGS_MAX).map_err(queue_error)?);
        watch_only(poll, &*readings, Source::Gauge)?;
        Ok(Self {
            gauge: Gauge::start(memory, Arc::clone(&readings))?,
            readings,
            batch: Vec::new(),
        })
    }

    /// Begin to measure a worker.
    pub fn watch(&self, slot: Slot, pid: i32) {
        self.gauge.watch(slot, pid);
    }

    /// A worker has ended.
    pub fn unwatch(&self, slot: Slot) {
        self.gauge.unwatch(slot);
    }

    /// Measure a worker now.
    pub fn measure(&self, slot: Slot) {
        self.gauge.measure(slot);
    }

    /// Measure often while there is work.
    pub fn pace(&self, busy: bool) {
        self.gauge.pace(busy);
    }

    /// Pass the readings that have come to the machine.
    ///
    /// Workers first: the guard judges the machine's memory by what each of them is known to have.
    pub fn take_readings(&mut self, cx: &mut Context, processes: &mut Processes) {
        let (machine, now) = (&mut cx.machine, cx.now);
        let of_machine = self.take(|slot, pid, private_bytes| {
            let worker = processes.get_mut(slot);
            if let Some(worker) = worker.filter(|worker| worker.is_process(pid)) {
                worker.measured(private_bytes);
                machine.measured(now, slot, private_bytes);
            }
        });
        if let Some((resident_bytes, pressure)) = of_machine {
            machine.machine_measured(now, resident_bytes, pressure);
        }
    }

    /// Take the readings that have come: each worker's private bytes, then memory and pressure of the machine.
    ///
    /// If a worker ended after the machine was measured, that reading still contains the worker's memory and is
    /// dropped, so that no other worker is expelled for it; a newer reading follows.
    fn take(&mut self, mut of_worker: impl FnMut(Slot, i32, u64)) -> Option<(u64, f32)> {
        // The queue stays open while this thread lives.
        drop(self.readings.drain(&mut self.batch));
        let mut of_machine = None;
        for reading in self.batch.drain(..) {
            match reading {
                Reading::Worker {
                    slot,
                    pid,
                    private_bytes,
                } => of_worker(slot, pid, private_bytes),
                Reading::Machine {
                    resident_bytes,
                    pressure,
                    gone,
                } if self.gauge.is_current(gone) => of_machine = Some((resident_bytes, pressure)),
                Reading::Machine { .. } => {}
            }
        }
        of_machine
    }
}

#[cfg(test)]
mod tests {
    use forebay_base::host::Host;

    use super::*;

    #[test]
    fn the_memory_of_an_ended_worker_is_not_counted_for_another() {
        let poll = Poll::new().expect("an epoll");
        let mut measures =
            Measures::start(&poll, Memory::find(&Host::default())).expect("a thread");
        let reading = |resident_bytes, gone| Reading::Machine {
            resident_bytes,
            pressure: 0.0,
            gone,
        };
        let push = |measures: &Measures, reading| assert!(measures.readings.push(reading).is_ok());
        push(&measures, reading(7, 0));
        measures.gauge.unwatch(3);
        assert_ne!(measures.take(|_, _, _| {}), Some((7, 0.0)));
        push(&measures, reading(8, 1));
        push(&measures, reading(7, 0));
        assert!(
            measures
                .take(|_, _, _| {})
                .is_some_and(|(resident, _)| resident != 7)
        );
    }
}

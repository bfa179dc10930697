//! What is counted: steps of each worker once it is warm, and the processor time of both processes.
use std::fs;
use std::time::{Duration, Instant};

use crate::Outcome;

/// One worker's steps after the warm-up.
#[derive(Clone, Debug, Default)]
struct Steps {
    first: Option<Instant>,
    last: Option<Instant>,
    count: u32,
    pulling: Duration,
}

/// Counts from `warm` on.
#[derive(Debug)]
pub struct Meter {
    warm: Instant,
    workers: Vec<Steps>,
    processes: Vec<u32>,
    cpu_before: Option<Duration>,
    count: u32,
}

/// What was counted.
#[derive(Debug)]
pub struct Counted {
    /// Steps of all workers in a second.
    pub steps_per_s: f64,
    /// How long the pulls of a step took, on average.
    pub pulling: Duration,
    /// Processor time of both processes for a step.
    pub cpu: Duration,
}

impl Meter {
    pub fn new(workers: usize, warm: Instant, processes: Vec<u32>) -> Self {
        Self {
            warm,
            workers: vec![Steps::default(); workers],
            processes,
            cpu_before: None,
            count: 0,
        }
    }

    /// A worker has ended the pulls of a step, which it began `pulling` ago.
    ///
    /// From the first one that is counted to the last one there are whole steps, so that nothing depends on when in
    /// its step a worker was found by the end of the warm-up.
    pub fn step(&mut self, worker: usize, now: Instant, pulling: Duration) -> Outcome<()> {
        if now < self.warm {
            return Ok(());
        }
        if self.cpu_before.is_none() {
            self.cpu_before = Some(cpu(&self.processes)?);
        }
        let steps = &mut self.workers[worker];
        self.count += 1;
        if steps.first.is_none() {
            steps.first = Some(now);
            return Ok(());
        }
        steps.last = Some(now);
        steps.count += 1;
        steps.pulling += pulling;
        Ok(())
    }

    /// Whether each worker has taken the two steps that a rate needs.
    pub fn is_complete(&self) -> bool {
        self.workers.iter().all(|steps| steps.last.is_some())
    }

    /// What was counted.
    ///
    /// # Errors
    ///
    /// A worker has not taken two steps.
    pub fn counted(&self) -> Outcome<Counted> {
        let used = cpu(&self.processes)?;
        let before = self.cpu_before.ok_or("no worker took a step in time")?;
        let mut steps_per_s = 0.0;
        let (mut count, mut pulling) = (0, Duration::ZERO);
        for steps in &self.workers {
            let (Some(first), Some(last)) = (steps.first, steps.last) else {
                return Err("a worker took less than two steps: measure for longer".into());
            };
            steps_per_s += f64::from(steps.count) / (last - first).as_secs_f64();
            count += steps.count;
            pulling += steps.pulling;
        }
        Ok(Counted {
            steps_per_s,
            pulling: pulling / count,
            cpu: used.saturating_sub(before) / self.count,
        })
    }
}

/// What the main threads of these processes have run; they have no others.
fn cpu(processes: &[u32]) -> Outcome<Duration> {
    let mut total = Duration::ZERO;
    for process in processes {
        let text = fs::read_to_string(format!("/proc/{process}/schedstat"))?;
        let ran = text.split_whitespace().next().ok_or("an empty schedstat")?;
        total += Duration::from_nanos(ran.parse()?);
    }
    Ok(total)
}

//! What workers use of pool, tensor, blockio, arena and transport, summed.
//!
//! A worker knows these figures alone: its processes and files are not the server's. It sends those that have changed
//! since its last record, as they are now and not as differences, so that a record that was lost is made good by the
//! next one. The sums are kept up with each record: reading them costs the same with one worker as with a thousand.

mod families;
mod record;

use std::collections::HashMap;

pub use families::{BUCKETS, FAMILIES, Family, HISTOGRAM_CELLS, Kind};
pub use record::{Figure, read};

use forebay_transport::{Scheme, Totals};

use crate::error::Result;
use crate::feed::{Distribution, Exposition, owned, sample};
use crate::request::Slot;
use families::{CELLS, cell};

/// The figures of all workers. What they hold is bounded by the number of workers and the table of families.
#[derive(Debug)]
pub struct Usage {
    totals: Box<[f64]>,
    workers: HashMap<Slot, Box<[f64]>>,
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            totals: vec![0.0; CELLS].into_boxed_slice(),
            workers: HashMap::new(),
        }
    }
}

impl Usage {
    /// Take in a record of a worker.
    ///
    /// # Errors
    /// `Malformed`; then nothing has changed.
    pub fn take(&mut self, slot: Slot, record: &[u8]) -> Result<()> {
        let figures = read(record)?;
        let worker = self.workers.entry(slot);
        let worker = worker.or_insert_with(|| vec![0.0; CELLS].into_boxed_slice());
        for Figure { cell, value } in figures {
            let before = worker[cell];
            // What was counted stays counted, whatever the worker says.
            if GAUGES[cell] || value >= before {
                self.totals[cell] += value - before;
                worker[cell] = value;
            }
        }
        Ok(())
    }

    /// The worker of a slot has ended: what it held is gone, what it counted stays.
    pub fn end(&mut self, slot: Slot) {
        let Some(worker) = self.workers.remove(&slot) else {
            return;
        };
        for (cell, value) in worker.into_iter().enumerate() {
            if GAUGES[cell] {
                self.totals[cell] -= value;
            }
        }
    }

    /// Every metric of the table, those that nobody has used included, with what the connections of this process have
    /// moved, and how many there are.
    pub fn expose(&self, own: &Totals) -> Exposition {
        let mut totals = self.totals.clone();
        add_transport(&mut totals, own);
        let mut exposition = Exposition::default();
        let mut cells = &totals[..];
        for family in &FAMILIES {
            for labels in family.combinations() {
                let (values, rest) = cells.split_at(family.width());
                cells = rest;
                let (name, labels) = (family.name, &labels);
                match family.kind {
                    Kind::Counter => exposition.counters.push(sample(name, labels, values[0])),
                    Kind::Gauge => exposition.gauges.push(sample(name, labels, values[0])),
                    Kind::Histogram => {
                        exposition
                            .histograms
                            .push(distribution(name, labels, values));
                    }
                }
            }
        }
        exposition
    }
}

/// A histogram: each upper bound with the count of values up to it, the sum, the count of all.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // counts of a record are not negative
fn distribution(
    name: &'static str,
    labels: &[(&'static str, &str)],
    values: &[f64],
) -> Distribution {
    let (counts, sum) = values.split_at(values.len() - 1);
    let mut count = 0_u64; // a worker may report more than 64 bits hold
    let mut buckets = Vec::with_capacity(BUCKETS.len());
    for (at, value) in counts.iter().enumerate() {
        count = count.saturating_add(*value as u64);
        buckets.extend(BUCKETS.get(at).map(|bound| (*bound, count)));
    }
    Distribution {
        name,
        labels: owned(labels),
        buckets,
        sum: sum[0],
        count,
    }
}

#[allow(clippy::cast_precision_loss)] // as in a record
fn add_transport(cells: &mut [f64], totals: &Totals) {
    let mut add = |name, label, value: u64| {
        if let Some(cell) = cell(name, label) {
            cells[cell] += value as f64;
        }
    };
    add("forebay_transport_bytes_total", "sent", totals.sent_bytes);
    add(
        "forebay_transport_bytes_total",
        "received",
        totals.received_bytes,
    );
    for (scheme, open) in Scheme::ALL.into_iter().zip(totals.connections) {
        add("forebay_transport_connections", scheme.name(), open as u64);
    }
}

/// The cells that go with their worker.
static GAUGES: [bool; CELLS] = {
    let mut gauges = [false; CELLS];
    let (mut family, mut cell) = (0, 0);
    while family < FAMILIES.len() {
        let end = cell + FAMILIES[family].cells();
        while cell < end {
            gauges[cell] = matches!(FAMILIES[family].kind, Kind::Gauge);
            cell += 1;
        }
        family += 1;
    }
    gauges
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Writer;

    fn record(figures: &[(&str, &[&str], u64)]) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.array(figures.len());
        for (name, labels, value) in figures {
            writer.array(3).text(name).array(labels.len());
            for label in *labels {
                writer.text(label);
            }
            writer.unsigned(*value);
        }
        writer.into_bytes()
    }

    fn value(usage: &Usage, name: &str, labels: &[&str]) -> f64 {
        let exposition = usage.expose(&Totals::default());
        let mut samples = exposition.counters.iter().chain(&exposition.gauges);
        let one = samples.find(|sample| {
            let values = sample.labels.iter().map(|(_, value)| value.as_str());
            sample.name == name && values.eq(labels.iter().copied())
        });
        one.expect("a metric of the table").value
    }

    const READS: (&str, &[&str]) = ("forebay_blockio_operations_total", &["read", "threads"]);
    const LIVE: (&str, &[&str]) = ("forebay_arena_bytes", &["live"]);

    #[test]
    fn figures_of_workers_add_up_and_the_newest_of_a_worker_counts() {
        let mut usage = Usage::default();
        for (slot, reads) in [(1, 5), (2, 7), (1, 9)] {
            usage
                .take(slot, &record(&[(READS.0, READS.1, reads)]))
                .expect("a record");
        }
        assert!((value(&usage, READS.0, READS.1) - 16.0).abs() < f64::EPSILON);
    }

    #[test]
    fn counters_survive_their_worker_and_gauges_go_with_it() {
        let mut usage = Usage::default();
        let both = record(&[(READS.0, READS.1, 5), (LIVE.0, LIVE.1, 4096)]);
        usage.take(1, &both).expect("a record");
        usage.take(2, &both).expect("a record");
        usage.end(1);
        usage.end(1);
        assert!((value(&usage, READS.0, READS.1) - 10.0).abs() < f64::EPSILON);
        assert!((value(&usage, LIVE.0, LIVE.1) - 4096.0).abs() < f64::EPSILON);
        // The next worker of the slot counts from nought.
        usage
            .take(1, &record(&[(READS.0, READS.1, 1)]))
            .expect("a record");
        assert!((value(&usage, READS.0, READS.1) - 11.0).abs() < f64::EPSILON);
    }

    #[test]
    fn a_counter_that_falls_changes_nothing() {
        let mut usage = Usage::default();
        for reads in [5, 3, 6] {
            let one = record(&[(READS.0, READS.1, reads)]);
            usage.take(1, &one).expect("a record");
        }
        assert!((value(&usage, READS.0, READS.1) - 6.0).abs() < f64::EPSILON);
    }

    #[test]
    fn the_transport_of_the_server_counts_beside_that_of_its_workers() {
        let mut usage = Usage::default();
        let sent = ("forebay_transport_bytes_total", &["sent"][..]);
        usage
            .take(1, &record(&[(sent.0, sent.1, 70)]))
            .expect("a record");
        let own = Totals {
            sent_bytes: 30,
            connections: [0, 2, 0, 0],
            ..Totals::default()
        };
        let exposition = usage.expose(&own);
        let values = |name| {
            let samples = exposition.counters.iter().chain(&exposition.gauges);
            let of_name = samples.filter(move |sample| sample.name == name);
            of_name.map(|sample| sample.value).collect::<Vec<_>>()
        };
        assert_eq!(values("forebay_transport_bytes_total"), [100.0, 0.0]);
        assert_eq!(
            values("forebay_transport_connections"),
            [0.0, 2.0, 0.0, 0.0]
        );
    }

    #[test]
    fn a_histogram_is_read_with_the_counts_up_to_each_bound() {
        let mut usage = Usage::default();
        let mut writer = Writer::default();
        writer
            .array(1)
            .array(3)
            .text("forebay_pool_acquire_seconds");
        writer.array(1).text("server").array(HISTOGRAM_CELLS);
        for count in [4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 2] {
            writer.unsigned(count);
        }
        writer.float(60.5);
        usage.take(1, &writer.into_bytes()).expect("a record");
        let exposition = usage.expose(&Totals::default());
        let Distribution {
            buckets,
            sum,
            count,
            ..
        } = exposition.histograms.first().expect("a histogram");
        assert_eq!(buckets.len(), BUCKETS.len());
        assert_eq!((buckets[0], buckets[6]), ((0.0001, 4), (0.1, 4)));
        assert_eq!((buckets[7], buckets[9]), ((0.3, 5), (10.0, 5)));
        assert_eq!((*sum, *count), (60.5, 7));
    }

    #[test]
    fn a_malformed_record_changes_nothing() {
        let mut usage = Usage::default();
        let mut cut = record(&[(READS.0, READS.1, 5), (LIVE.0, LIVE.1, 4096)]);
        cut.pop();
        assert!(usage.take(1, &cut).is_err());
        assert!(value(&usage, READS.0, READS.1).abs() < f64::EPSILON);
    }
}

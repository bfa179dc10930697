//! Metrics as they are handed out: names, labels, numbers.

use super::histogram::Histogram;

/// Labels of one number; their values are of bounded sets.
pub type Labels = Vec<(&'static str, String)>;

/// One number.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub name: &'static str,
    pub labels: Labels,
    pub value: f64,
}

/// One histogram, its bounds in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    pub name: &'static str,
    pub labels: Labels,
    pub buckets: Vec<(f64, u64)>,
    pub sum: f64,
    pub count: u64,
}

/// All of them at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exposition {
    pub counters: Vec<Sample>,
    pub gauges: Vec<Sample>,
    pub histograms: Vec<Distribution>,
}

impl Exposition {
    /// Add a counter.
    pub fn counter(&mut self, name: &'static str, labels: &[(&'static str, &str)], value: u64) {
        self.counters.push(sample(name, labels, float(value)));
    }

    /// Add a gauge.
    pub fn gauge(&mut self, name: &'static str, labels: &[(&'static str, &str)], value: u64) {
        self.gauges.push(sample(name, labels, float(value)));
    }

    /// Add a gauge of seconds.
    pub fn seconds(&mut self, name: &'static str, labels: &[(&'static str, &str)], ms: u64) {
        self.gauges.push(sample(name, labels, float(ms) / 1e3));
    }

    /// Add a histogram.
    pub fn histogram(
        &mut self,
        name: &'static str,
        labels: &[(&'static str, &str)],
        histogram: &Histogram,
    ) {
        self.histograms.push(Distribution {
            name,
            labels: owned(labels),
            buckets: histogram.buckets(),
            sum: histogram.sum_seconds(),
            count: histogram.count(),
        });
    }
}

/// A number as it is handed out.
pub fn sample(name: &'static str, labels: &[(&'static str, &str)], value: f64) -> Sample {
    Sample {
        name,
        labels: owned(labels),
        value,
    }
}

/// Labels as they are handed out.
pub fn owned(labels: &[(&'static str, &str)]) -> Labels {
    let labels = labels.iter();
    labels
        .map(|(name, value)| (*name, (*value).to_owned()))
        .collect()
}

#[allow(clippy::cast_precision_loss)] // exact up to 2^53
fn float(value: u64) -> f64 {
    value as f64
}

//! The figures that a worker may report: a table of bounded sets, so that no worker can make a server keep more.

/// How figures of several workers become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows; what an ended worker counted stays.
    Counter,
    /// As it is now; it goes with its worker.
    Gauge,
    /// Counts of [`BUCKETS`], of what is above them, and the sum of all values; it only grows.
    Histogram,
}

/// One metric, with every label that it may have.
#[derive(Debug)]
pub struct Family {
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [Label],
}

/// A label's name, and its values.
pub type Label = (&'static str, &'static [&'static str]);

/// Upper bounds in seconds: an idle service is lent in tens of microseconds, a cold one starts in up to some seconds.
pub const BUCKETS: [f64; 10] = [
    0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0,
];

/// Numbers of a histogram: its buckets, what is above them, the sum.
pub const HISTOGRAM_CELLS: usize = BUCKETS.len() + 2;

/// Pools that workers made: the server knows its own, which it lends to them.
const OWN_POOL: Label = ("pool", &["worker"]);

/// Every metric, in the order in which their cells are counted.
pub const FAMILIES: [Family; 9] = [
    Family {
        name: "forebay_pool_services",
        kind: Kind::Gauge,
        labels: &[
            OWN_POOL,
            ("state", &["idle", "leased", "starting", "settling"]),
        ],
    },
    Family {
        name: "forebay_pool_waiters",
        kind: Kind::Gauge,
        labels: &[OWN_POOL],
    },
    Family {
        name: "forebay_pool_acquires_total",
        kind: Kind::Counter,
        labels: &[
            ("pool", &["server", "worker"]),
            ("result", &["ok", "timeout", "failed"]),
        ],
    },
    Family {
        name: "forebay_pool_acquire_seconds",
        kind: Kind::Histogram,
        labels: &[("pool", &["server"])],
    },
    Family {
        name: "forebay_tensor_slots",
        kind: Kind::Gauge,
        labels: &[("state", &["used", "waiting"])],
    },
    Family {
        name: "forebay_blockio_operations_total",
        kind: Kind::Counter,
        labels: &[
            ("operation", &["read", "write", "fsync", "fdatasync"]),
            ("backend", &["io_uring", "threads"]),
        ],
    },
    Family {
        name: "forebay_arena_bytes",
        kind: Kind::Gauge,
        labels: &[("state", &["live", "free", "quarantined"])],
    },
    Family {
        name: "forebay_transport_connections",
        kind: Kind::Gauge,
        labels: &[("scheme", &["unix", "tcp", "tls", "shm"])],
    },
    Family {
        name: "forebay_transport_bytes_total",
        kind: Kind::Counter,
        labels: &[("direction", &["sent", "received"])],
    },
];

/// The cells of all families: an upper bound on what is kept of one worker.
pub const CELLS: usize = {
    let (mut cells, mut at) = (0, 0);
    while at < FAMILIES.len() {
        cells += FAMILIES[at].cells();
        at += 1;
    }
    cells
};

impl Family {
    /// Numbers for one combination of labels.
    pub const fn width(&self) -> usize {
        match self.kind {
            Kind::Counter | Kind::Gauge => 1,
            Kind::Histogram => HISTOGRAM_CELLS,
        }
    }

    /// Numbers for all combinations of labels.
    pub const fn cells(&self) -> usize {
        let (mut cells, mut at) = (self.width(), 0);
        while at < self.labels.len() {
            cells *= self.labels[at].1.len();
            at += 1;
        }
        cells
    }

    /// The combinations of labels, in the order of their cells.
    pub fn combinations(&self) -> impl Iterator<Item = Vec<(&'static str, &'static str)>> + '_ {
        (0..self.cells() / self.width()).map(|number| self.combination(number))
    }

    fn combination(&self, number: usize) -> Vec<(&'static str, &'static str)> {
        let mut left = number;
        let mut labels = Vec::with_capacity(self.labels.len());
        for (name, values) in self.labels.iter().rev() {
            labels.push((*name, values[left % values.len()]));
            left /= values.len();
        }
        labels.reverse();
        labels
    }
}

/// The family of a name, with its first cell; `None` for one that this server does not know.
pub fn family(name: &str) -> Option<(usize, &'static Family)> {
    let mut first = 0;
    for family in &FAMILIES {
        if family.name == name {
            return Some((first, family));
        }
        first += family.cells();
    }
    None
}

/// The cell of a metric with one label; `None` for one that is not in the table.
pub fn cell(name: &str, label: &str) -> Option<usize> {
    let (first, family) = family(name)?;
    let (_, values) = family.labels.first()?;
    let number = values.iter().position(|known| *known == label)?;
    Some(first + number * family.width())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cell_has_one_combination_of_labels() {
        let (_, family) = family("forebay_blockio_operations_total").expect("it is in the table");
        let combinations: Vec<_> = family.combinations().collect();
        assert_eq!(combinations.len(), 8);
        assert_eq!(
            combinations[3],
            [("operation", "write"), ("backend", "threads")]
        );
    }

    #[test]
    fn families_follow_each_other_and_fill_all_cells() {
        let mut next = 0;
        for known in &FAMILIES {
            assert_eq!(family(known.name).map(|(first, _)| first), Some(next));
            next += known.cells();
        }
        assert_eq!(next, CELLS);
        assert!(family("forebay_requests_total").is_none());
    }
}

//! What workers use, in the form of metrics.

use forebay_executor::usage::{Kind, Metric};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// Lists of counters, gauges and histograms, each with its name and a dict of its labels.
pub fn readings<'py>(py: Python<'py>, readings: &[Metric]) -> PyResult<Bound<'py, PyDict>> {
    let [counters, gauges, histograms] = [(); 3].map(|()| PyList::empty(py));
    for reading in readings {
        let labels = PyDict::new(py);
        for (name, value) in &reading.labels {
            labels.set_item(name, value)?;
        }
        match reading.kind {
            Kind::Counter => counters.append((reading.name, labels, reading.values[0]))?,
            Kind::Gauge => gauges.append((reading.name, labels, reading.values[0]))?,
            Kind::Histogram => {
                let (buckets, sum, count) = reading.histogram();
                histograms.append((reading.name, labels, buckets, sum, count))?;
            }
        }
    }
    let dict = PyDict::new(py);
    dict.set_item("counters", counters)?;
    dict.set_item("gauges", gauges)?;
    dict.set_item("histograms", histograms)?;
    Ok(dict)
}

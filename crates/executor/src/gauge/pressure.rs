//! Pressure stall information: how long tasks waited for memory.
//!
//! Source: "PSI - Pressure Stall Information" of the kernel's documentation. Not every kernel has it, or has it
//! enabled: then the pressure is zero.

use std::fs;
use std::path::PathBuf;

use forebay_base::host::Host;

/// The file to read the pressure from, if there is one.
#[derive(Clone, Debug)]
pub struct Pressure(Option<PathBuf>);

impl Pressure {
    /// The pressure of this process's cgroup, else the machine's.
    pub fn find(host: &Host) -> Self {
        let cgroup = host.unified_cgroup();
        let own = cgroup.and_then(|cgroup| Some(cgroup.levels().first()?.join("memory.pressure")));
        let files = own.into_iter().chain([host.proc().join("pressure/memory")]);
        // The file alone is no proof: with `psi=0` at boot, reading it fails.
        Self(
            files
                .into_iter()
                .find(|file| fs::read_to_string(file).is_ok_and(|text| some(&text).is_some())),
        )
    }

    /// The fraction of the last ten seconds in which tasks stalled, 0.0 to 1.0.
    pub fn read(&self) -> f32 {
        let text = self
            .0
            .as_ref()
            .and_then(|file| fs::read_to_string(file).ok());
        text.and_then(|text| some(&text)).unwrap_or(0.0)
    }
}

fn some(text: &str) -> Option<f32> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let percent = line
        .split_ascii_whitespace()
        .find_map(|word| word.strip_prefix("avg10="))?;
    percent
        .parse()
        .ok()
        .map(|percent: f32| (percent / 100.0).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_some_counts() {
        let text = "some avg10=25.50 avg60=0.05 avg300=0.18 total=1290789\nfull avg10=9.00 avg60=0 avg300=0 total=1\n";
        assert_eq!(some(text), Some(0.255));
        for broken in ["", "full avg10=1.00\n", "some avg60=1\n", "some avg10=x\n"] {
            assert_eq!(some(broken), None, "{broken}");
        }
    }

    #[test]
    fn without_it_there_is_no_pressure() {
        assert!(Pressure::find(&Host::at("/nowhere")).read().abs() < f32::EPSILON);
    }
}

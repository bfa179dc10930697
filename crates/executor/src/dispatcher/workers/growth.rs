//! How much a worker grew during a run, by the kernel's high-water mark.
//!
//! The gauge measures ten times a second, and a run may grow and end between two measurements. The kernel keeps the
//! peak of resident memory (`VmHWM`); reset before a run, it shows the run's peak afterwards. Reading it walks no
//! pages, unlike the measurement of private memory. Source: `proc_pid_status(5)`, and `proc_pid_clear_refs(5)` for 5.

use std::fs;

/// The resident memory of a process when the kernel's mark was reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pid: i32,
    resident_bytes: u64,
}

impl Mark {
    /// Reset the mark; `None` if the kernel refuses.
    pub fn set(pid: i32) -> Option<Self> {
        fs::write(format!("/proc/{pid}/clear_refs"), "5").ok()?;
        let (resident_bytes, _) = resident(pid)?;
        Some(Self {
            pid,
            resident_bytes,
        })
    }

    /// The most by which the process has grown since then. Cost: about 30 us.
    pub fn growth(&self) -> Option<u64> {
        let (_, most) = resident(self.pid)?;
        Some(most.saturating_sub(self.resident_bytes))
    }
}

/// The resident memory of a process, and its peak since the mark was reset.
fn resident(pid: i32) -> Option<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some((field(&status, "VmRSS:")?, field(&status, "VmHWM:")?))
}

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_and_went_is_seen() {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let grows = || {
            let mark = Mark::set(pid).expect("our own process");
            let block = std::hint::black_box(vec![1_u8; 40_000_000]);
            drop(block);
            mark.growth().expect("it lives") > 30_000_000
        };
        assert!(
            (0..10).any(|_| grows()),
            "other tests of this process free memory meanwhile, but not each time"
        );
        let again = Mark::set(pid).expect("our own process");
        assert!(again.growth().expect("it lives") < 30_000_000);
    }

    #[test]
    fn a_process_that_is_gone_has_no_mark() {
        assert_eq!(Mark::set(i32::MAX), None);
    }
}

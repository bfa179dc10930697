//! How much memory a process has for itself.

use std::fs;

use rustix::process::Pid;

/// Private bytes of a process: what would come back if it ended. None where it is gone, or where that is unknown:
/// another user's, or one that may not be dumped.
///
/// Resident pages that no other process maps, so that what a service shares with its template does not count.
/// Source: `smaps_rollup` in proc(5). Cost: the kernel walks the page tables, 0.1 ms with numpy imported, under the
/// lock that the process needs for its page faults; hence at a slow pace alone.
pub fn private_bytes(pid: Pid) -> Option<u64> {
    let pid = pid.as_raw_nonzero();
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    // One that has ended and is not yet waited for has no memory, and an empty file.
    (!text.is_empty()).then(|| sum_private(&text))
}

fn sum_private(text: &str) -> u64 {
    let kib = text
        .lines()
        .filter(|line| line.starts_with("Private_"))
        .filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
    kib.sum::<u64>() * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_pages_are_summed_and_shared_ones_are_not() {
        let text = "00400000-7fff [rollup]\nRss: 900 kB\nShared_Dirty: 300 kB\n\
                    Private_Clean: 8 kB\nPrivate_Dirty: 100 kB\nPrivate_Hugetlb: 2048 kB\n";
        assert_eq!(sum_private(text), (8 + 100 + 2048) * 1024);
    }

    #[test]
    fn a_process_has_private_bytes_while_it_lives() {
        let mut child = std::process::Command::new("sleep");
        let mut child = child.arg("60").spawn().expect("starts");
        let pid = Pid::from_child(&child);
        assert!(private_bytes(pid).is_some_and(|bytes| bytes > 0));
        child.kill().expect("ours");
        child.wait().expect("killed");
        assert_eq!(private_bytes(pid), None);
    }
}

//! One process: what it has for itself, and whether the kernel ends it first.

use std::fs;
use std::io::Write;

use crate::error::{Error, Result};

/// Private bytes of a process: what would come back if it ended. `None` where it is gone.
///
/// Where `smaps_rollup` is refused (another user's, or one that may not be dumped) or not there, what is resident and
/// not shared by a file, by `statm`; pages that a fork shares with its template count there, so that is too much
/// rather than too little. Sources: proc(5). Cost: 70 us for a small process, 12 us by `statm`.
pub fn private_bytes(pid: i32) -> Option<u64> {
    match fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) {
        // One that has ended and is not yet waited for has no memory, and an empty file.
        Ok(text) if text.is_empty() => None,
        Ok(text) => Some(sum_private(&text)),
        Err(_) => own_pages(&fs::read_to_string(format!("/proc/{pid}/statm")).ok()?),
    }
}

fn sum_private(text: &str) -> u64 {
    let names = ["Private_Clean:", "Private_Dirty:", "Private_Hugetlb:"];
    let kib = names
        .iter()
        .filter_map(|name| super::memory::field(text, name));
    kib.sum::<u64>() * 1024
}

fn own_pages(statm: &str) -> Option<u64> {
    let mut pages = statm
        .split_ascii_whitespace()
        .skip(1)
        .map(str::parse::<u64>);
    let (resident, shared) = (pages.next()?.ok()?, pages.next()?.ok()?);
    let pages = resident.saturating_sub(shared);
    (resident > 0).then(|| pages * rustix::param::page_size() as u64)
}

/// Have the kernel end this process before others when memory is out: 0 to 1,000. It is never lowered.
///
/// # Errors
/// `System`: it is gone, or another user's.
pub fn set_oom_score(pid: i32, score: i32) -> Result<()> {
    let path = format!("/proc/{pid}/oom_score_adj");
    let failed = || Error::system(format!("raise {path}"));
    let now = fs::read_to_string(&path).map_err(failed())?;
    if now.trim().parse().is_ok_and(|now: i32| now >= score) {
        return Ok(());
    }
    let file = fs::OpenOptions::new().write(true).open(&path);
    let written = file.and_then(|mut file| file.write_all(score.to_string().as_bytes()));
    written.map_err(failed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::WORKER_OOM_SCORE;
    use std::process::{Child, Command};

    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Self {
            Self(Command::new("sleep").arg("60").spawn().expect("starts"))
        }

        fn pid(&self) -> i32 {
            i32::try_from(self.0.id()).expect("a pid")
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn private_pages_are_summed_and_shared_ones_are_not() {
        let text = "00400000-7fff [rollup]\nRss: 900 kB\nShared_Dirty: 300 kB\n\
                    Private_Clean: 8 kB\nPrivate_Dirty: 100 kB\nPrivate_Hugetlb: 2048 kB\n";
        assert_eq!(sum_private(text), (8 + 100 + 2048) * 1024);
    }

    #[test]
    fn statm_gives_what_no_file_shares() {
        let page = rustix::param::page_size() as u64;
        assert_eq!(own_pages("900 300 100 1 0 50 0\n"), Some(200 * page));
        assert_eq!(own_pages("0 0 0 0 0 0 0\n"), None);
        assert_eq!(own_pages("9"), None);
    }

    #[test]
    fn a_process_has_private_bytes_until_it_ends() {
        let mut sleeper = Sleeper::start();
        assert!(private_bytes(sleeper.pid()).is_some_and(|bytes| bytes > 0));
        sleeper.0.kill().expect("ours");
        let died = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        let pid = rustix::process::Pid::from_child(&sleeper.0);
        rustix::process::waitid(rustix::process::WaitId::Pid(pid), died).expect("it dies");
        assert_eq!(private_bytes(sleeper.pid()), None, "a zombie has none");
        sleeper.0.wait().expect("killed");
        assert_eq!(private_bytes(sleeper.pid()), None);
    }

    #[test]
    fn the_score_is_raised_and_never_lowered() {
        let sleeper = Sleeper::start();
        let score = || fs::read_to_string(format!("/proc/{}/oom_score_adj", sleeper.pid()));
        set_oom_score(sleeper.pid(), WORKER_OOM_SCORE).expect("raised");
        set_oom_score(sleeper.pid(), 100).expect("left");
        assert_eq!(score().expect("read").trim(), "500");
    }
}

//! The client's end of the keeper: its control socket, its process, the shared page.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use forebay_base::time::timespec;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{
    PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, pidfd_open, pidfd_send_signal, waitid,
};

use crate::clock::now_ms;
use crate::control::{self, Receiver};
use crate::error::{Error, Result};
use crate::limit::{CONTROL_BYTES_MAX, CONTROL_WAIT_MS, TEMPLATES_MAX};
use crate::machine::Key;
use crate::sys::{Cell, Page};
use crate::wire::{Event, KeeperRequest, Launch};

/// What a keeper process inherits.
#[derive(Debug)]
pub struct Handover {
    /// Its control socket.
    pub control: OwnedFd,
    /// The page of words.
    pub page: OwnedFd,
    /// The pidfd of this process.
    pub client: OwnedFd,
}

#[derive(Debug)]
pub struct Link {
    page: Page,
    /// Given to each keeper; None once the pool is closed.
    page_fd: Option<OwnedFd>,
    /// A keeper is being started; its end of the socket has been handed over.
    offered: Option<OwnedFd>,
    running: Option<Running>,
    receiver: Receiver,
    epoch: u64,
    /// Templates that the running keeper knows.
    described: BTreeSet<u32>,
    /// How many idle services of a key stay; sent to each keeper.
    keep: BTreeMap<Key, u32>,
}

#[derive(Debug)]
struct Running {
    control: OwnedFd,
    process: OwnedFd,
}

impl Running {
    /// Wait until the keeper has read, or `until` comes; whether it has.
    fn has_room(&self, until: u64) -> bool {
        loop {
            let limit = timespec(Duration::from_millis(until.saturating_sub(now_ms())));
            match poll(
                &mut [PollFd::new(&self.control, PollFlags::OUT)],
                Some(&limit),
            ) {
                Err(Errno::INTR) => {}
                done => return matches!(done, Ok(1..)),
            }
        }
    }
}

impl Link {
    pub fn new() -> Result<Self> {
        let (page, page_fd) = Page::create()?;
        Ok(Self {
            page,
            page_fd: Some(page_fd),
            offered: None,
            running: None,
            receiver: Receiver::default(),
            epoch: 0,
            described: BTreeSet::new(),
            keep: BTreeMap::new(),
        })
    }

    pub fn handover(&mut self) -> Result<Option<Handover>> {
        if self.running.is_some() {
            return Ok(None);
        }
        let (ours, theirs) = control::pair()?;
        self.offered = Some(ours);
        let failed = |source| Error::System {
            what: "dup".into(),
            source,
        };
        let page_fd = self.page_fd.as_ref().ok_or(Error::Closed)?;
        let page = page_fd.try_clone().map_err(failed)?;
        let client =
            pidfd_open(getpid(), PidfdFlags::empty()).map_err(Error::system("pidfd_open"))?;
        Ok(Some(Handover {
            control: theirs,
            page,
            client,
        }))
    }

    pub fn attach(&mut self, process: OwnedFd) -> u64 {
        if let Some(control) = self.offered.take() {
            self.running = Some(Running { control, process });
            self.epoch += 1;
            self.described.clear();
        }
        self.epoch()
    }

    pub fn epoch(&self) -> u64 {
        if self.running.is_some() {
            self.epoch
        } else {
            0
        }
    }

    pub fn control(&self) -> Option<&OwnedFd> {
        self.running.as_ref().map(|running| &running.control)
    }

    pub fn cell(&self, slot: u32) -> &Cell {
        self.page.cell(slot)
    }

    /// Keep `min_idle` idle services of a key, under this keeper and each later one.
    pub fn keep(&mut self, key: Key, min_idle: u32) -> Result<()> {
        self.keep.insert(key, min_idle);
        if self.running.is_some() {
            match self.send(&KeeperRequest::Keep { key, min_idle }, &[]) {
                Ok(()) | Err(Error::KeeperLost) => {} // the next keeper is sent all of them
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Send a keeper that was attached how many idle services of each key stay.
    pub fn resend_kept(&self) -> Result<()> {
        for (&key, &min_idle) in &self.keep {
            self.send(&KeeperRequest::Keep { key, min_idle }, &[])?;
        }
        Ok(())
    }

    /// How many idle services of a key stay.
    pub fn min_idle(&self, key: Key) -> usize {
        self.keep.get(&key).copied().unwrap_or(0) as usize
    }

    /// Describe a template, unless the keeper knows as many as it takes.
    pub fn describe(
        &mut self,
        template: u32,
        launch: Launch,
        setup: Vec<u8>,
        spares: u32,
    ) -> Result<()> {
        let known = self.described.len();
        if known >= TEMPLATES_MAX && !self.described.contains(&template) {
            let next = "use another pool for further classes or environments";
            let (maximum, value) = (TEMPLATES_MAX as u64, known as u64 + 1);
            return Err(Error::Limit {
                limit: "templates_max",
                maximum,
                value,
                next,
            });
        }
        let request = KeeperRequest::Template {
            template,
            launch,
            setup,
            spares,
        };
        self.send(&request, &[])?;
        self.described.insert(template);
        Ok(())
    }

    /// Send a request. It waits only while the keeper's socket is full, and at most `CONTROL_WAIT_MS`: a keeper that
    /// has not read for so long is stopped or hung, and is lost.
    pub fn send(&self, request: &KeeperRequest, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        let bytes = request.encode();
        if bytes.len() > CONTROL_BYTES_MAX {
            let next = "make the program's arguments and environment smaller";
            let (maximum, value) = (CONTROL_BYTES_MAX as u64, bytes.len() as u64);
            return Err(Error::Limit {
                limit: "control_bytes_max",
                maximum,
                value,
                next,
            });
        }
        let running = self.running.as_ref().ok_or(Error::KeeperLost)?;
        let mut deadline = None;
        loop {
            match control::send(&running.control, &bytes, descriptors, SendFlags::DONTWAIT) {
                Ok(()) => return Ok(()),
                Err(Errno::AGAIN) => {
                    let until = *deadline.get_or_insert_with(|| now_ms() + CONTROL_WAIT_MS);
                    if !running.has_room(until) {
                        // Its socket ends with it: the next drive finds that, and handles the loss.
                        let _ = pidfd_send_signal(&running.process, Signal::KILL);
                        return Err(Error::KeeperLost);
                    }
                }
                Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => {
                    return Err(Error::KeeperLost);
                }
                Err(errno) => return Err(Error::system("request to the keeper")(errno)),
            }
        }
    }

    /// The next event; an inner None is the keeper's end.
    pub fn receive(&mut self) -> Result<Option<(Option<Event>, Option<OwnedFd>)>> {
        let Some(running) = &self.running else {
            return Ok(None);
        };
        let packet = match self.receiver.receive(&running.control, RecvFlags::DONTWAIT) {
            Ok(Some(packet)) => packet,
            Ok(None) | Err(Error::Interrupted) => return Ok(None),
            Err(error) => return Err(error),
        };
        if packet.bytes.is_empty() {
            return Ok(Some((None, None)));
        }
        let event = Event::decode(&packet.bytes)?;
        Ok(Some((Some(event), packet.descriptors.into_iter().next())))
    }

    /// Ask the keeper to end everything; its process is returned to be waited for.
    pub fn detach(&mut self) -> Option<OwnedFd> {
        if let Some(control) = self.control() {
            // Without waiting: where it is full, the end of file says the same.
            let bytes = KeeperRequest::Shutdown.encode();
            let _ = control::send(control, &bytes, &[], SendFlags::DONTWAIT);
        }
        self.page_fd = None;
        self.offered = None;
        self.running.take().map(|running| running.process)
    }

    /// The keeper is gone.
    pub fn lose(&mut self) {
        if let Some(running) = self.running.take() {
            // It may only have closed its socket: it must not come back to life over our services.
            let _ = pidfd_send_signal(&running.process, Signal::KILL);
            join(&running.process, 1_000);
        }
    }

    /// Close the descriptors without a shutdown request.
    pub fn forget(&mut self) {
        self.running = None;
        self.offered = None;
        self.page_fd = None;
    }
}

/// Wait for the keeper's end and reap it; a keeper that does not end in time is killed. Whether it ended by itself.
pub fn join(process: &OwnedFd, limit_ms: u64) -> bool {
    let limit = timespec(Duration::from_millis(limit_ms));
    let ended = loop {
        match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&limit)) {
            Err(Errno::INTR) => {}
            Ok(count) => break count > 0,
            Err(_) => break false,
        }
    };
    if !ended {
        let _ = pidfd_send_signal(process, Signal::KILL);
    }
    // Fails where the program reaps all its children itself.
    let _ = waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED);
    ended
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_keeper_is_told_of_no_more_templates_than_it_takes() {
        let mut idle = Command::new("cat");
        let idle = idle.stdin(Stdio::piped()).spawn();
        let mut keeper = idle.expect("a process to stand for the keeper");
        let pid = rustix::process::Pid::from_child(&keeper);
        let mut link = Link::new().expect("a page");
        let limit = u32::try_from(TEMPLATES_MAX).expect("small");
        let describe =
            |link: &mut Link, number| link.describe(number, Launch::default(), vec![], 0);

        for _ in 0..2 {
            let handover = link.handover().expect("a pair").expect("none runs");
            link.attach(pidfd_open(pid, PidfdFlags::empty()).expect("it lives"));
            for number in 0..limit {
                describe(&mut link, number).expect("below the limit");
            }
            describe(&mut link, 0).expect("known already");
            let error = describe(&mut link, limit).expect_err("one too many");
            assert!(error.to_string().starts_with("templates_max is 64, 65"));
            drop(handover);
            link.running = None; // the next keeper knows nothing
        }
        drop(keeper.stdin.take());
        keeper.wait().expect("ends at the end of its input");
    }
}

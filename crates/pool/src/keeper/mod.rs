//! The keeper: one thread, one process per client, owner of every process that the client uses.
//!
//! It holds the client's lifeline twice, as the control socket's end of file and as the client's pidfd (whichever
//! comes first: a forked child of the client may hold the socket open). When the client is gone it kills every
//! group it owns, removes their directories and exits last. It is a subreaper, so that what
//! services leave behind comes to it. Its direct children carry a parent-death signal against its own death.
//! Nothing in it blocks but the wait for events: sends to client and templates never wait.
//!
//! | what fails | what happens |
//! |---|---|
//! | client ends, is killed, closes | every group killed, directories removed, keeper exits |
//! | service ends | its group is killed, the client gets cause, code and last output |
//! | template ends | services already forked live on; those asked for are reported as `TemplateDied` |
//! | template cannot import | reported as `TemplateUnfit` with its reason |
//! | deadline passes | the word's swap decides; if the keeper wins, the group is killed |
//! | client does not read | events wait in a queue; one death per service bounds it |

mod cgroup;
mod copies;
mod deadline;
mod limits;
mod memory;
mod output;
mod process;
mod program;
mod registry;
mod removal;
mod scratch;
mod service;
mod source;
mod spares;
mod template;
mod watch;

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use forebay_base::poll::Ready;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Pid, set_child_subreaper, setsid};
use rustix::thread::set_name;

use crate::clock::now_ms;
use crate::control::{self, Receiver};
use crate::error::{Error, Result};
use crate::sys::{Page, close_inherited, raise_open_files};
use crate::wire::{Event, KeeperRequest, Report};
pub use memory::private_bytes;
use registry::Registry;
use source::{Poller, Source, Token};

/// How long the last processes may take to die before the keeper gives up on them.
const END_MS: u64 = 5_000;
/// Longest time between two checks of what is left of them: nothing wakes the keeper when an orphan ends.
const END_LOOK_MS: u64 = 5;

/// What a keeper is started with.
#[derive(Debug)]
pub struct Inherited {
    /// The control socket.
    pub control: OwnedFd,
    /// The page of words.
    pub page: OwnedFd,
    /// The client's pidfd.
    pub client: OwnedFd,
    /// Where directories for services are made.
    pub scratch: PathBuf,
}

/// Be the keeper until the client is gone.
pub fn run(inherited: Inherited) -> Result<()> {
    // Out of the client's session: no Ctrl-C, no hang-up. Fails only where it was started in one of its own.
    let _ = setsid();
    let _ = set_name(c"fb keeper"); // for ps and top
    close_inherited(&[&inherited.control, &inherited.page, &inherited.client])
        .map_err(Error::system("fcntl(F_SETFD)"))?;
    raise_open_files();
    set_child_subreaper(Pid::from_raw(1))
        .map_err(Error::system("prctl(PR_SET_CHILD_SUBREAPER)"))?;
    let mut keeper = Keeper::new(inherited)?;
    let served = keeper.serve();
    keeper.end(matches!(served, Ok(true)));
    served.map(drop)
}

struct Keeper {
    poller: Poller,
    control: OwnedFd,
    client: OwnedFd,
    registry: Registry,
    outbox: VecDeque<(Event, Option<OwnedFd>)>,
    wants_write: bool,
    receiver: Receiver,
}

impl Keeper {
    fn new(inherited: Inherited) -> Result<Self> {
        let poller = Poller::new().map_err(Error::system("epoll_create1"))?;
        source::watch(&poller, &inherited.control, Token::only(Source::Control))?;
        source::watch(&poller, &inherited.client, Token::only(Source::Client))?;
        let registry = Registry::new(Page::map(&inherited.page)?, inherited.scratch);
        let (control, client) = (inherited.control, inherited.client);
        let (outbox, receiver) = (VecDeque::new(), Receiver::default());
        Ok(Self {
            poller,
            control,
            client,
            registry,
            outbox,
            wants_write: false,
            receiver,
        })
    }

    /// Handle events until the client is gone or asks for the end; whether it has asked.
    fn serve(&mut self) -> Result<bool> {
        loop {
            let now = now_ms();
            let wait = soonest(
                self.registry.wait_ms(now),
                self.registry.housekeeping_ms(now),
            );
            self.wait(wait)?;
            let mut index = 0;
            while let Some((token, _)) = self.poller.event(index) {
                index += 1;
                match token.kind {
                    Source::Client => return Ok(false),
                    Source::Control => {
                        if let Some(asked) = self.take_requests()? {
                            return Ok(asked);
                        }
                    }
                    _ => self.registry.handle(&self.poller, token),
                }
            }
            self.registry.expire(&self.poller, now_ms());
            self.registry.tend_orphans(now_ms());
            self.registry.do_housekeeping(now_ms());
            self.outbox.extend(self.registry.take_events());
            self.flush()?;
        }
    }

    /// Sleep until there is an event, at most so many milliseconds.
    fn wait(&mut self, limit_ms: Option<u64>) -> Result<()> {
        self.poller
            .wait(limit_ms.map(Duration::from_millis))
            .map_err(Error::system("epoll_wait"))
    }

    /// Once the client has closed or asked for the end: whether it has asked.
    fn take_requests(&mut self) -> Result<Option<bool>> {
        while let Some(packet) = self.receiver.receive(&self.control, RecvFlags::DONTWAIT)? {
            if packet.bytes.is_empty() {
                return Ok(Some(false));
            }
            match KeeperRequest::decode(&packet.bytes)? {
                KeeperRequest::Shutdown => return Ok(Some(true)),
                request => self
                    .registry
                    .request(&self.poller, request, &packet.descriptors),
            }
        }
        Ok(None)
    }

    /// Send what waits, as far as the client takes it.
    fn flush(&mut self) -> Result<()> {
        while let Some((event, descriptor)) = self.outbox.front() {
            let descriptors: Vec<_> = descriptor.iter().map(AsFd::as_fd).collect();
            match control::send(
                &self.control,
                &event.encode(),
                &descriptors,
                SendFlags::DONTWAIT,
            ) {
                Ok(()) => drop(self.outbox.pop_front()),
                Err(Errno::AGAIN) => return self.want_write(true),
                // The client is gone; its end of file or its pidfd says so next.
                Err(_) => {
                    self.outbox.clear();
                    return Ok(());
                }
            }
        }
        self.want_write(false)
    }

    fn want_write(&mut self, wanted: bool) -> Result<()> {
        if self.wants_write != wanted {
            let interest = |write| Ready { read: true, write };
            let (before, after) = (interest(self.wants_write), interest(wanted));
            let token = Token::only(Source::Control);
            self.poller
                .change(&self.control, token, before, after)
                .map_err(Error::system("epoll_ctl"))?;
            self.wants_write = wanted;
        }
        Ok(())
    }

    /// End everything and wait for it: in order where the client asked for that, and as long as it lives.
    fn end(&mut self, orderly: bool) {
        let deadline = now_ms() + END_MS;
        self.poller.remove(&self.control); // its end has been seen
        self.registry.end_all(&self.poller, orderly);
        while now_ms() < deadline && self.registry.has_processes() {
            let next = self.registry.wait_ms(now_ms()).unwrap_or(END_LOOK_MS);
            if self.wait(Some(next.min(END_LOOK_MS))).is_err() {
                break;
            }
            let mut index = 0;
            while let Some((token, _)) = self.poller.event(index) {
                index += 1;
                if token.kind == Source::Client {
                    self.poller.remove(&self.client);
                    self.registry.end_all(&self.poller, false);
                }
                self.registry.handle(&self.poller, token);
            }
            self.registry.expire(&self.poller, now_ms());
            self.registry.kill_orphans();
            self.registry.do_housekeeping(now_ms()); // while the others die
        }
        self.registry
            .finish_housekeeping(&mut self.poller, deadline);
    }
}

/// The earlier of two waits.
fn soonest(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

/// Decode a template's report; one that is malformed makes the template unfit.
fn report_of(bytes: &[u8]) -> Report {
    Report::decode(bytes).unwrap_or_else(|error| Report::Unfit {
        reason: error.to_string().into_bytes(),
    })
}

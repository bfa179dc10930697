//! The workers: connections of one thread, which pull, "compute" and pull again.
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::Outcome;
use crate::connection::Connection;
use crate::contents;
use crate::line::{Line, Way};
use crate::memory::{Destination, Memory};
use crate::meter::Meter;
use crate::options::Options;
use crate::random::Random;
use crate::sys;

const EVENTS: usize = 256;
const TIMER: u64 = u64::MAX;
const READ_BYTES: usize = 256 << 10;
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
struct Worker {
    /// Servers whose tensors are not all there.
    left: usize,
    began: Instant,
    /// Its first step is the one whose rows are compared.
    is_checked: bool,
}

/// All workers.
pub struct Workers {
    options: Options,
    pub memory: Memory,
    connections: Vec<Connection>,
    each: Vec<Worker>,
    /// When a worker has computed.
    computing: BinaryHeap<Reverse<(Instant, usize)>>,
    line: Option<Line>,
    epoll: OwnedFd,
    timer: OwnedFd,
    /// What the timer is set to.
    armed: Option<Instant>,
    random: Random,
    pub meter: Meter,
}

impl Workers {
    /// Workers of these connections, of which each has one to every server.
    pub fn new(options: Options, connections: Vec<Connection>, meter: Meter) -> Outcome<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        epoll::add(
            &epoll,
            &timer,
            EventData::new_u64(TIMER),
            EventFlags::IN | EventFlags::ET,
        )?;
        for (index, connection) in connections.iter().enumerate() {
            let data = EventData::new_u64(index as u64);
            epoll::add(&epoll, &connection.socket, data, EventFlags::IN)?;
        }
        let pulls = connections.len() * options.tensors;
        let bytes = pulls * options.bytes.next_multiple_of(4096) * 2 + (128 << 20);
        let now = Instant::now();
        let mut random = Random::new();
        let mut computing = BinaryHeap::new();
        for worker in 0..options.workers {
            computing.push(Reverse((
                now + options.compute.mul_f64(random.share()),
                worker,
            )));
        }
        let workers = (0..options.workers).map(|_| Worker {
            left: 0,
            began: now,
            is_checked: false,
        });
        Ok(Self {
            options,
            memory: Memory::new(options.registration, bytes)?,
            connections,
            each: workers.collect(),
            computing,
            line: (options.delay > Duration::ZERO).then(|| Line::new(options.delay)),
            epoll,
            timer,
            armed: None,
            random,
            meter,
        })
    }

    /// Work until then, and for longer where a worker has not taken two steps by then.
    ///
    /// # Errors
    ///
    /// Rows that are not what they should be, or a worker whose rows were not compared, among others.
    pub fn run(&mut self, until: Instant) -> Outcome<()> {
        let mut events = Vec::with_capacity(EVENTS);
        let mut bytes = vec![0; READ_BYTES];
        let latest = until + PATIENCE;
        while Instant::now() < until || !self.meter.is_complete() && Instant::now() < latest {
            self.begin_steps()?;
            self.deliver()?;
            self.set_timer(latest)?;
            epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                None,
            )?;
            for event in events.drain(..) {
                let data = event.data.u64();
                if data != TIMER {
                    self.turn(usize::try_from(data)?, &mut bytes)?;
                }
            }
        }
        if !self.each.iter().all(|worker| worker.is_checked) {
            return Err("a worker did not end its first step: measure for longer".into());
        }
        Ok(())
    }

    /// Workers that have computed pull again.
    fn begin_steps(&mut self) -> Outcome<()> {
        let now = Instant::now();
        while let Some(&Reverse((due, worker))) = self.computing.peek()
            && due <= now
        {
            self.computing.pop();
            let servers = self.options.servers;
            let is_checked = self.each[worker].is_checked;
            self.each[worker].left = servers;
            self.each[worker].began = Instant::now();
            for connection in worker * servers..(worker + 1) * servers {
                self.pull(connection, is_checked)?;
                self.send(connection)?;
            }
        }
        Ok(())
    }

    fn pull(&mut self, connection: usize, is_checked: bool) -> Outcome<()> {
        for tensor in 0..self.options.tensors {
            let destination = self.memory.lend(self.options.bytes)?;
            if !is_checked {
                sys::write(destination.span(), &vec![0xff; self.options.bytes]);
            }
            self.connections[connection].pull(tensor, destination)?;
        }
        Ok(())
    }

    fn send(&mut self, index: usize) -> Outcome<()> {
        let connection = &mut self.connections[index];
        if let Some(line) = &mut self.line {
            let bytes = connection.take_outgoing();
            if !bytes.is_empty() {
                line.put(index, Way::ToServer, bytes, Instant::now());
            }
            return Ok(());
        }
        let wants_room = connection.send()?;
        if wants_room != connection.is_watched {
            connection.is_watched = wants_room;
            let room = if wants_room {
                EventFlags::OUT
            } else {
                EventFlags::empty()
            };
            let data = EventData::new_u64(index as u64);
            epoll::modify(&self.epoll, &connection.socket, data, EventFlags::IN | room)?;
        }
        Ok(())
    }

    /// Take out of the line what is due.
    fn deliver(&mut self) -> Outcome<()> {
        while let Some(line) = &mut self.line
            && let Some((index, way, bytes)) = line.take(Instant::now())
        {
            match way {
                Way::ToServer => {
                    let socket = &self.connections[index].socket;
                    if rustix::io::write(socket, &bytes)? != bytes.len() {
                        return Err(
                            "a request was sent in part: the socket's buffer is full".into()
                        );
                    }
                }
                Way::ToWorker => {
                    self.connections[index].feed(&bytes)?;
                    self.settle(index)?;
                }
            }
        }
        Ok(())
    }

    fn turn(&mut self, index: usize, bytes: &mut [u8]) -> Outcome<()> {
        let Some(line) = &mut self.line else {
            self.connections[index].receive()?;
            return self.settle(index);
        };
        let count = rustix::io::read(&self.connections[index].socket, &mut *bytes)?;
        if count == 0 {
            return Err("a server has gone".into());
        }
        line.put(
            index,
            Way::ToWorker,
            bytes[..count].to_vec(),
            Instant::now(),
        );
        Ok(())
    }

    /// Take the pulls that have ended, and use the slots that are free now.
    fn settle(&mut self, index: usize) -> Outcome<()> {
        let worker = index / self.options.servers;
        let had = self.connections[index].left;
        while let Some((tensor, destination)) = self.connections[index].take_end()? {
            if !self.each[worker].is_checked {
                self.compare(index % self.options.servers, tensor, &destination)?;
            }
            self.memory.give_back(destination)?;
        }
        self.send(index)?;
        if had > 0 && self.connections[index].left == 0 {
            self.end_server(worker)?;
        }
        Ok(())
    }

    fn compare(&self, server: usize, tensor: usize, destination: &Destination) -> Outcome<()> {
        let mut found = Vec::new();
        sys::read(destination.span(), &mut found);
        if found != contents::of(server, tensor, self.options.bytes) {
            return Err(format!("tensor {tensor} of server {server} came with other rows").into());
        }
        Ok(())
    }

    fn end_server(&mut self, index: usize) -> Outcome<()> {
        let worker = &mut self.each[index];
        worker.left -= 1;
        if worker.left > 0 {
            return Ok(());
        }
        worker.is_checked = true;
        let now = Instant::now();
        self.meter.step(index, now, now - worker.began)?;
        let share = 0.9 + 0.2 * self.random.share();
        self.computing
            .push(Reverse((now + self.options.compute.mul_f64(share), index)));
        Ok(())
    }

    /// Wake for what is next: a worker, the line, the end.
    fn set_timer(&mut self, latest: Instant) -> Outcome<()> {
        let worker = self.computing.peek().map(|Reverse((due, _))| *due);
        let line = self.line.as_ref().and_then(Line::next);
        let next = [worker, line]
            .into_iter()
            .flatten()
            .fold(latest, Instant::min);
        if self.armed == Some(next) {
            return Ok(()); // no system call more for whoever wakes more often
        }
        self.armed = Some(next);
        let wait = next.saturating_duration_since(Instant::now());
        let wait = wait.max(Duration::from_nanos(1)); // nothing would disarm it
        let value = Timespec::try_from(wait)?;
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: value,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }
}

//! The connections of the programs: what they send, and what they are answered.

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::BorrowerId;
use super::source::{LenderPoll, LenderSource, token_of, watch};
use crate::control::{self, Receiver};
use crate::error::{Error, Result};
use crate::limit::BORROWERS_MAX;
use crate::wire::shared::{QuestionId, Reply, Request};

/// A program's connection.
#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    /// Its process: a child that it forked may hold its socket open for longer.
    _process: Option<OwnedFd>,
    /// The handshake is done: the program has named the version that it speaks.
    is_open: bool,
}

/// The connected programs.
#[derive(Debug)]
pub(super) struct Borrowers {
    connections: BTreeMap<BorrowerId, Connection>,
    next_program: BorrowerId,
    /// Programs to disconnect at the end of this turn.
    to_disconnect: Vec<BorrowerId>,
    receiver: Receiver,
}

impl Default for Borrowers {
    fn default() -> Self {
        Self {
            connections: BTreeMap::new(),
            next_program: 1,
            to_disconnect: Vec::new(),
            receiver: Receiver::default(),
        }
    }
}

impl Borrowers {
    /// Connect one more program, and watch it. Above the limit it is told why it is refused: `None`.
    ///
    /// One whose process is not visible here, as from outside of a container, ends with its connection alone.
    pub fn connect(
        &mut self,
        poll: &LenderPoll,
        socket: OwnedFd,
        pid: i32,
    ) -> Result<Option<BorrowerId>> {
        if self.connections.len() >= BORROWERS_MAX {
            refuse_connection(&socket);
            return Ok(None);
        }
        let number = self.next_program;
        self.next_program += 1;
        let process = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        if let Some(process) = &process {
            watch(poll, process, token_of(LenderSource::ProgramExit, number))?;
        }
        watch(poll, &socket, token_of(LenderSource::Program, number))?;
        let connection = Connection {
            socket,
            _process: process,
            is_open: false,
        };
        self.connections.insert(number, connection);
        Ok(Some(number))
    }

    /// A program has named the version that it speaks.
    pub fn open(&mut self, program: BorrowerId) {
        if let Some(connection) = self.connections.get_mut(&program) {
            connection.is_open = true;
        }
    }

    /// Receive one message of a program, if there is one. After an invalid one the program is disconnected.
    pub fn receive(&mut self, program: BorrowerId) -> Option<(Request, Vec<OwnedFd>)> {
        let connection = self.connections.get(&program)?;
        let received = self
            .receiver
            .receive(&connection.socket, RecvFlags::DONTWAIT);
        if matches!(received, Ok(None) | Err(Error::Interrupted)) {
            return None;
        }
        if let Ok(Some(packet)) = received
            && let Ok(request) = Request::decode(&packet.bytes)
            && (connection.is_open || matches!(request, Request::Hello { .. }))
        {
            return Some((request, packet.descriptors));
        }
        self.disconnect(program); // its end of file, or an invalid message
        None
    }

    /// Answer a program. One whose socket is full of unread answers is disconnected.
    pub fn reply(&mut self, program: BorrowerId, reply: &Reply, descriptors: &[BorrowedFd<'_>]) {
        if let Some(connection) = self.connections.get(&program) {
            let bytes = reply.encode();
            if control::send(&connection.socket, &bytes, descriptors, SendFlags::DONTWAIT).is_err()
            {
                self.to_disconnect.push(program);
            }
        }
    }

    /// Answer that there is no answer, and why.
    pub fn fail(&mut self, program: BorrowerId, ticket: QuestionId, reason: &str) {
        let reason = reason.as_bytes().to_vec();
        self.reply(program, &Reply::Failed { ticket, reason }, &[]);
    }

    /// Answer why a request is refused.
    pub fn refuse(&mut self, program: BorrowerId, ticket: QuestionId, error: &Error) {
        let (limit, maximum, value, next) = match error {
            Error::Limit {
                limit,
                maximum,
                value,
                next,
            } => (*limit, *maximum, *value, (*next).to_owned()),
            // The program has its own limit: this is the one of the process that lends.
            Error::Descriptors { maximum, twice, .. } => {
                let next = format!(
                    "all of its descriptors are in use: start it with more (ulimit -n {twice}), \
                     or keep fewer services at once"
                );
                let limit = "RLIMIT_NOFILE of forebay serve";
                (limit, *maximum, maximum.saturating_add(1), next)
            }
            other => return self.fail(program, ticket, &other.to_string()),
        };
        let reply = Reply::Refused {
            ticket,
            limit: limit.as_bytes().to_vec(),
            maximum,
            value,
            next: next.into_bytes(),
        };
        self.reply(program, &reply, &[]);
    }

    /// Disconnect a program at the end of this turn.
    pub fn disconnect(&mut self, program: BorrowerId) {
        self.to_disconnect.push(program);
    }

    /// A program to disconnect, whose connection is closed now. It may come twice.
    pub fn next_disconnected(&mut self) -> Option<BorrowerId> {
        let program = self.to_disconnect.pop()?;
        self.connections.remove(&program);
        Some(program)
    }
}

/// Tell a program that too many are connected.
fn refuse_connection(socket: &OwnedFd) {
    let reason = format!(
        "borrowers_max is {BORROWERS_MAX} programs, and so many are connected to the shared pool; \
         end one, or start another pool: forebay serve --path"
    );
    let reply = Reply::Failed {
        ticket: 0,
        reason: reason.into_bytes(),
    };
    // If this fails, the program sees an end of file, which says less.
    let _ = control::send(socket, &reply.encode(), &[], SendFlags::DONTWAIT);
}

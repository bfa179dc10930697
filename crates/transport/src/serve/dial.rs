//! Connecting to a target without waiting.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};

use crate::error::{Error, Result};
use crate::limit::Limits;
use crate::link::admission::Admission;
use crate::messages::state::State;
use crate::stream::Socket;
use crate::stream::unix;

/// Keepalive of an idle connection: the first probe after this, the interval, and the number of probes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 4;
/// A peer that acknowledges nothing for so long is gone; `TCP_USER_TIMEOUT` in tcp(7).
const DEAD_AFTER_MS: u32 = 30_000;

/// The address of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// What connections are forwarded to.
#[derive(Clone, Debug)]
pub struct Target {
    pub address: Address,
    /// The token to show.
    pub token: Option<Vec<u8>>,
    pub limits: Limits,
}

impl Target {
    /// Begin to connect; `None` where the target's queue is full, and the same call may succeed later.
    ///
    /// The state shows the outcome: until the connection is established, it neither sends nor receives.
    pub(crate) fn dial(&self) -> Result<Option<State<Socket>>> {
        let Some(socket) = self.connect()? else {
            return Ok(None);
        };
        let token = self.token.as_deref();
        let mut state = State::new(Arc::new(socket), self.limits, Admission::Anybody, token);
        state.trust(); // the program chose it
        Ok(Some(state))
    }

    fn connect(&self) -> Result<Option<OwnedFd>> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (socket, outcome) = match &self.address {
            Address::Tcp(address) => {
                let family = if address.is_ipv4() {
                    AddressFamily::INET
                } else {
                    AddressFamily::INET6
                };
                let socket = socket_with(family, SocketType::STREAM, flags, None)
                    .map_err(|errno| self.failed(errno))?;
                tune(&socket);
                let outcome = connect(&socket, address);
                (socket, outcome)
            }
            Address::Unix(path) => {
                let address = unix::address(path)?;
                let socket = unix::stream_socket(flags)?;
                let outcome = connect(&socket, &address);
                (socket, outcome)
            }
        };
        match outcome {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(Some(socket)),
            Err(Errno::AGAIN) => Ok(None),
            Err(errno) => Err(self.failed(errno)),
        }
    }

    fn failed(&self, errno: Errno) -> Error {
        let what = match &self.address {
            Address::Tcp(address) => format!("connect to the target {address}"),
            Address::Unix(path) => format!("connect to the target {}", path.display()),
        };
        Error::System { what, errno }
    }
}

/// Send small messages at once, and detect peers that vanished silently.
///
/// A failure only costs time, so it is ignored.
pub(crate) fn tune(socket: impl AsFd) {
    let socket = socket.as_fd();
    let _ = sockopt::set_tcp_nodelay(socket, true);
    let _ = sockopt::set_socket_keepalive(socket, true);
    let _ = sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE);
    let _ = sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL);
    let _ = sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES);
    let _ = sockopt::set_tcp_user_timeout(socket, DEAD_AFTER_MS);
}

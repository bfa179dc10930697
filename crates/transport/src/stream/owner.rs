//! The user at the other end of a TCP connection over the loopback interface.
//!
//! Every user of a machine can connect to its loopback interface, and TCP carries no credentials. The kernel knows
//! whose each socket is, and says so by `sock_diag(7)`, within one network namespace and for one system call or two.
//! A socket that its process has closed has no owner any more and would be reported as root's: it is in another state
//! than established then, and without an inode, so an answer counts only with both.
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, getpeername, getsockname,
    netlink, recv, send, socket_with,
};

use crate::error::{Error, Result};

/// `SOCK_DIAG_BY_FAMILY` of `linux/sock_diag.h`.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST` of `linux/netlink.h`.
const REQUEST: u16 = 1;
/// `IPPROTO_TCP`.
const TCP: u8 = 6;
/// `TCP_ESTABLISHED` and `TCP_LISTEN` of `linux/tcp_states.h`.
const ESTABLISHED: u8 = 1;
/// `TCP_FIN_WAIT1` and `TCP_FIN_WAIT2`: a peer that has said all and still reads.
const HALF_CLOSED: [u8; 2] = [4, 5];
const LISTEN: u8 = 10;
/// `DEFAULT_OVERFLOWUID` of `linux/highuid.h`.
const OVERFLOW: u32 = 65_534;
/// Of `struct nlmsghdr`, `struct inet_diag_req_v2` and `struct inet_diag_msg`.
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = 56;
const ANSWER_BYTES: usize = 72;
/// Where `idiag_uid` and `idiag_inode` are in `struct inet_diag_msg`.
const UID_AT: usize = 64;
const INODE_AT: usize = 68;

/// Asks the kernel for the user of a peer.
#[derive(Debug)]
pub struct Owners {
    kernel: OwnedFd,
    sequence: AtomicU32,
}

/// What the kernel reports of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SocketInfo {
    state: u8,
    uid: u32,
    inode: u32,
}

impl Owners {
    /// Open a way to ask, and try it on a listening socket.
    ///
    /// # Errors
    /// `Config`: this kernel does not answer, or a container forbids to ask.
    pub fn open(listening: impl AsFd) -> Result<Self> {
        Self::try_open(listening).map_err(|errno| {
            Error::Config(format!(
                "the kernel does not say whose a connection over the loopback interface is \
                 (sock_diag: {errno}), and every user of this machine can open one: give token=, \
                 a unix:// path, or unprotected=True where all of them may connect"
            ))
        })
    }

    fn try_open(listening: impl AsFd) -> std::result::Result<Self, Errno> {
        let kernel = socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        )?;
        let owners = Self {
            kernel,
            sequence: AtomicU32::new(1),
        };
        let own = address(getsockname(listening)?)?;
        let any = SocketAddr::new(unspecified(own.ip()), 0);
        let socket = owners.ask(own, any)?;
        if socket.state == LISTEN && !is_overflow_user(rustix::process::geteuid().as_raw()) {
            Ok(owners)
        } else {
            Err(Errno::NOTSUP)
        }
    }

    /// The user of the process at the other end; None: it has gone, or cannot be determined.
    pub fn of_peer(&self, connected: impl AsFd) -> Option<u32> {
        let peer = getpeername(&connected).ok().flatten()?;
        let own = address(getsockname(&connected).ok()?).ok()?;
        let socket = self.ask(address(peer).ok()?, own).ok()?;
        let is_open = socket.state == ESTABLISHED || HALF_CLOSED.contains(&socket.state);
        (is_open && socket.inode != 0).then_some(socket.uid)
    }

    /// Whether the peer is of this process's user, or root, who may do anything in any case.
    pub fn admits(&self, connected: impl AsFd) -> bool {
        let user = rustix::process::geteuid().as_raw();
        self.of_peer(connected)
            .is_some_and(|uid| uid == user || uid == 0)
    }

    /// Ask for the socket that has one address and is connected to the other.
    fn ask(&self, at: SocketAddr, to: SocketAddr) -> std::result::Result<SocketInfo, Errno> {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        send(&self.kernel, &request(sequence, at, to), SendFlags::empty())?;
        let mut answer = [0u8; 512];
        loop {
            // The kernel has answered within the call that asked.
            let (_, count) = recv(&self.kernel, &mut answer[..], RecvFlags::DONTWAIT)?;
            let answer = &answer[..count.min(512)];
            if read_u32(answer, 8) == Some(sequence) {
                return parse_answer(answer);
            }
        }
    }
}

/// Whether a user's number stands for every user that this namespace has no number for (`user_namespaces(7)`): a process
/// that has it itself could not tell its own from them.
fn is_overflow_user(user: u32) -> bool {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let overflow = read("/proc/sys/kernel/overflowuid");
    let map = read("/proc/self/uid_map");
    let has_all = map.split_whitespace().eq(["0", "0", "4294967295"]);
    user == overflow.trim().parse().unwrap_or(OVERFLOW) && !has_all
}

/// Why a peer was not admitted, for logs and counters.
pub fn foreign_user_message(uid: Option<u32>) -> String {
    let whose = uid.map_or_else(|| "nobody any more".to_owned(), |uid| format!("user {uid}"));
    format!(
        "a peer that belongs to {whose} was turned away: without a token only this user may \
         connect over the loopback interface"
    )
}

fn request(sequence: u32, at: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let length = u32::try_from(HEADER_BYTES + REQUEST_BYTES).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(HEADER_BYTES + REQUEST_BYTES);
    bytes.extend(length.to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(REQUEST.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend([0; 4]); // to the kernel
    let family = if at.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let family = u8::try_from(family.as_raw()).unwrap_or(0);
    bytes.extend([family, TCP, 0, 0]);
    bytes.extend(u32::MAX.to_ne_bytes()); // in any state
    bytes.extend(at.port().to_be_bytes());
    bytes.extend(to.port().to_be_bytes());
    bytes.extend(sixteen(at.ip()));
    bytes.extend(sixteen(to.ip()));
    bytes.extend([0; 4]); // by any interface
    bytes.extend([0xff; 8]); // no cookie
    bytes
}

fn parse_answer(answer: &[u8]) -> std::result::Result<SocketInfo, Errno> {
    let kind = answer
        .get(4..6)
        .map(|two| u16::from_ne_bytes([two[0], two[1]]));
    if kind != Some(BY_FAMILY) || answer.len() < HEADER_BYTES + ANSWER_BYTES {
        let code = read_u32(answer, HEADER_BYTES).unwrap_or(0);
        return Err(Errno::from_raw_os_error(code.cast_signed().wrapping_neg()));
    }
    let word = |at| read_u32(answer, HEADER_BYTES + at).ok_or(Errno::BADMSG);
    Ok(SocketInfo {
        state: answer[HEADER_BYTES + 1],
        uid: word(UID_AT)?,
        inode: word(INODE_AT)?,
    })
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(four.try_into().ok()?))
}

fn address(address: impl TryInto<SocketAddr>) -> std::result::Result<SocketAddr, Errno> {
    address.try_into().map_err(|_| Errno::AFNOSUPPORT)
}

fn sixteen(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            bytes
        }
    }
}

fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn pair(host: &str) -> Option<(TcpListener, TcpStream, TcpStream)> {
        let listener = TcpListener::bind((host, 0)).ok()?;
        let client = TcpStream::connect(listener.local_addr().ok()?).ok()?;
        let (accepted, _) = listener.accept().ok()?;
        Some((listener, client, accepted))
    }

    #[test]
    fn a_peer_of_this_user_is_let_in_over_both_protocols() {
        let mut tried = 0;
        for host in ["127.0.0.1", "::1"] {
            let Some((listener, _client, accepted)) = pair(host) else {
                continue; // a machine without IPv6
            };
            tried += 1;
            let owners = Owners::open(&listener).expect("the kernel tells");
            let user = rustix::process::geteuid().as_raw();
            assert_eq!(owners.of_peer(&accepted), Some(user), "{host}");
            assert!(owners.admits(&accepted));
        }
        assert!(tried > 0);
    }

    /// A closed socket has no owner, which an answer reports as root: a foreign user who sends and closes at once
    /// would be taken for it.
    #[test]
    fn a_peer_that_has_closed_is_not_let_in() {
        let (listener, client, accepted) = pair("127.0.0.1").expect("loopback");
        let owners = Owners::open(&listener).expect("the kernel tells");
        drop(client);
        assert_eq!(owners.of_peer(&accepted), None);
        assert!(!owners.admits(&accepted));
    }

    #[test]
    fn what_is_no_tcp_socket_cannot_be_asked_about() {
        let (unix, _other) = crate::stream::unix::pair().expect("pair");
        assert!(matches!(Owners::open(&unix), Err(Error::Config(_))));
    }
}

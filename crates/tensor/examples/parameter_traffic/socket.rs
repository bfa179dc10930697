//! Stream sockets of both kinds, nonblocking.
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process;

use crate::options::Network;

/// Where one server listens.
#[derive(Debug)]
pub enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    /// Listen, and say where: a name or a port.
    pub fn bind(network: Network, server: usize) -> io::Result<(Self, String)> {
        match network {
            Network::Unix => {
                let name = format!("forebay-traffic-{}-{server}", process::id());
                let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
                listener.set_nonblocking(true)?;
                Ok((Self::Unix(listener), name))
            }
            Network::Tcp => {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                listener.set_nonblocking(true)?;
                let port = listener.local_addr()?.port().to_string();
                Ok((Self::Tcp(listener), port))
            }
        }
    }

    /// A peer that waits, if one does.
    pub fn accept(&self) -> io::Result<Option<OwnedFd>> {
        let accepted = match self {
            Self::Unix(listener) => listener.accept().and_then(|(stream, _)| unix(stream)),
            Self::Tcp(listener) => listener.accept().and_then(|(stream, _)| tcp(stream)),
        };
        match accepted {
            Ok(socket) => Ok(Some(socket)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

/// Connect to where `bind` said.
pub fn connect(network: Network, address: &str) -> io::Result<OwnedFd> {
    match network {
        Network::Unix => {
            let address = SocketAddr::from_abstract_name(address)?;
            unix(UnixStream::connect_addr(&address)?)
        }
        Network::Tcp => {
            let port: u16 = address.parse().map_err(io::Error::other)?;
            tcp(TcpStream::connect(("127.0.0.1", port))?)
        }
    }
}

fn unix(stream: UnixStream) -> io::Result<OwnedFd> {
    stream.set_nonblocking(true)?;
    Ok(stream.into())
}

fn tcp(stream: TcpStream) -> io::Result<OwnedFd> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    Ok(stream.into())
}

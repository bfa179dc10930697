//! The parameter servers: one thread in a process of its own, which answers all connections.
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use forebay_memory::Lease;
use forebay_tensor::{Description, Dtype, Number, PeerId, Shard, ShardLimits, Span};
use rustix::event::epoll::{self, EventData, EventFlags};

use crate::Outcome;
use crate::contents;
use crate::memory::{Known, Memory};
use crate::options::Options;
use crate::socket::Listener;
use crate::sys;

const SPANS: usize = 64;
const EVENTS: usize = 256;
/// The descriptor whose end ends the servers.
const LIFELINE: u64 = u64::MAX;

struct Server {
    shard: Shard<Lease>,
    listener: Listener,
    tensors: Span,
}

struct Peer {
    socket: OwnedFd,
    server: usize,
    id: PeerId,
    wants_write: bool,
    /// Blocks that are registered for an answer which has not gone out whole.
    under_way: Vec<(usize, Known)>,
}

struct Servers {
    options: Options,
    memory: Memory,
    each: Vec<Server>,
    peers: Vec<Peer>,
    epoll: OwnedFd,
}

/// Serve until standard input ends. Says on a line where each server listens.
pub fn serve(options: Options) -> Outcome<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(
        &epoll,
        io::stdin().as_fd(),
        EventData::new_u64(LIFELINE),
        EventFlags::IN,
    )?;
    let bytes = options.servers * (options.tensors * options.bytes + (64 << 20));
    let mut memory = Memory::new(options.registration, bytes)?;
    let mut servers = Vec::new();
    let mut addresses = Vec::new();
    for number in 0..options.servers {
        let (server, address) = start(number, options, &mut memory)?;
        let data = EventData::new_u64(number as u64);
        epoll::add(&epoll, server.listener.as_fd(), data, EventFlags::IN)?;
        servers.push(server);
        addresses.push(address);
    }
    let mut out = io::stdout();
    writeln!(out, "{}", addresses.join(" "))?;
    out.flush()?;
    let mut all = Servers {
        options,
        memory,
        each: servers,
        peers: Vec::new(),
        epoll,
    };
    all.run()?;
    writeln!(out, "{}", all.memory.registrations()?)?;
    Ok(())
}

/// One server with its tensors.
fn start(number: usize, options: Options, memory: &mut Memory) -> Outcome<(Server, String)> {
    let mut shard = Shard::new(ShardLimits {
        slots: options.slots,
        grant_bytes: crate::grant(options),
        ..ShardLimits::default()
    })?;
    let block = memory.allocate(options.tensors * options.bytes)?;
    let tensors = sys::span_of(&block, options.tensors * options.bytes);
    for tensor in 0..options.tensors {
        let span = tensors.part(tensor * options.bytes, options.bytes);
        sys::write(span, &contents::of(number, tensor, options.bytes));
        let description = Description {
            dtype: Dtype {
                number: Number::Unsigned,
                item_bytes: 8,
                text: "<u8".into(),
            },
            shape: vec![options.bytes as u64 / 8],
        };
        let name = crate::tensor_name(tensor);
        let published = shard.publish(&name, description, span, block.clone());
        published.map_err(|(error, _)| error)?;
    }
    let (listener, address) = Listener::bind(options.network, number)?;
    let server = Server {
        shard,
        listener,
        tensors,
    };
    Ok((server, address))
}

impl Servers {
    fn run(&mut self) -> Outcome<()> {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                None,
            )?;
            for event in events.drain(..) {
                let (flags, data) = (event.flags, event.data.u64());
                if data == LIFELINE {
                    return Ok(());
                }
                let index = usize::try_from(data)?;
                match index.checked_sub(self.options.servers) {
                    None => self.accept(index)?,
                    Some(peer) if flags.intersects(EventFlags::HUP | EventFlags::ERR) => {
                        self.part(peer)?;
                    }
                    Some(peer) => self.turn(peer)?,
                }
            }
        }
    }

    fn accept(&mut self, number: usize) -> Outcome<()> {
        while let Some(socket) = self.each[number].listener.accept()? {
            let id = self.each[number].shard.connect(u32::MAX, Instant::now())?;
            let data = EventData::new_u64((self.options.servers + self.peers.len()) as u64);
            epoll::add(&self.epoll, &socket, data, EventFlags::IN)?;
            self.peers.push(Peer {
                socket,
                server: number,
                id,
                wants_write: false,
                under_way: Vec::new(),
            });
        }
        Ok(())
    }

    fn part(&mut self, index: usize) -> Outcome<()> {
        let peer = &mut self.peers[index];
        epoll::delete(&self.epoll, &peer.socket)?;
        self.each[peer.server].shard.disconnect(peer.id);
        for (_, known) in peer.under_way.drain(..) {
            self.memory.rings.unregister(known)?;
        }
        Ok(())
    }

    /// All requests that are there, then as many answers as go out.
    fn turn(&mut self, index: usize) -> Outcome<()> {
        let peer = &mut self.peers[index];
        let shard = &mut self.each[peer.server].shard;
        loop {
            let spans = shard.incoming(peer.id);
            let room: usize = spans.iter().map(Span::bytes).sum();
            match sys::receive(peer.socket.as_fd(), &spans)? {
                None => break,
                Some(0) => return self.part(index),
                Some(bytes) => {
                    shard.received(peer.id, bytes, Instant::now())?;
                    if bytes < room {
                        break;
                    }
                }
            }
        }
        self.answer(index)
    }

    fn answer(&mut self, index: usize) -> Outcome<()> {
        let mut spans = [Span::EMPTY; SPANS];
        loop {
            let peer = &mut self.peers[index];
            let server = &mut self.each[peer.server];
            let count = server.shard.outgoing(peer.id, &mut spans);
            if count == 0 {
                return self.wait_for_room(index, false);
            }
            let spans = &spans[..count];
            if self.memory.is_per_transfer() {
                register(
                    spans,
                    server.tensors,
                    self.options.bytes,
                    peer,
                    &mut self.memory,
                )?;
            }
            let sent = match sys::send(peer.socket.as_fd(), spans) {
                Ok(Some(sent)) => sent,
                Ok(None) => return self.wait_for_room(index, true),
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return self.part(index),
                Err(error) => return Err(error.into()),
            };
            if self.memory.is_per_transfer() {
                let bytes = self.options.bytes;
                unregister(spans, sent, server.tensors, bytes, peer, &mut self.memory)?;
            }
            server.shard.sent(peer.id, sent, Instant::now());
        }
    }

    fn wait_for_room(&mut self, index: usize, wants_write: bool) -> Outcome<()> {
        let peer = &mut self.peers[index];
        if peer.wants_write != wants_write {
            peer.wants_write = wants_write;
            let data = EventData::new_u64((self.options.servers + index) as u64);
            let flags = if wants_write {
                EventFlags::IN | EventFlags::OUT
            } else {
                EventFlags::IN
            };
            epoll::modify(&self.epoll, &peer.socket, data, flags)?;
        }
        Ok(())
    }
}

/// Which tensor a span lies in; `None` for a header.
fn tensor_of(span: Span, tensors: Span, bytes: usize) -> Option<usize> {
    let from =
        (span.address().as_ptr() as usize).checked_sub(tensors.address().as_ptr() as usize)?;
    (from < tensors.bytes()).then_some(from / bytes)
}

/// Register each block that an answer reads, unless a part of that answer has gone out already.
fn register(
    spans: &[Span],
    tensors: Span,
    bytes: usize,
    peer: &mut Peer,
    memory: &mut Memory,
) -> io::Result<()> {
    for span in spans {
        if let Some(tensor) = tensor_of(*span, tensors, bytes)
            && !peer.under_way.iter().any(|(known, _)| *known == tensor)
        {
            let known = memory.rings.register(tensors.part(tensor * bytes, bytes))?;
            peer.under_way.push((tensor, known));
        }
    }
    Ok(())
}

/// Unregister each block whose last byte is among the `sent` ones.
fn unregister(
    spans: &[Span],
    sent: usize,
    tensors: Span,
    bytes: usize,
    peer: &mut Peer,
    memory: &mut Memory,
) -> io::Result<()> {
    let mut end = 0;
    for span in spans {
        end += span.bytes();
        if end > sent {
            break;
        }
        if let Some(tensor) = tensor_of(*span, tensors, bytes)
            && let Some(at) = peer
                .under_way
                .iter()
                .position(|(known, _)| *known == tensor)
        {
            memory.rings.unregister(peer.under_way.swap_remove(at).1)?;
        }
    }
    Ok(())
}

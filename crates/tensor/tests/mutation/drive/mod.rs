//! Any bytes to one of the machines: what it said to them, and whether it refused them.
//!
//! The fuzz target `tensor` drives the same.
mod client;
mod server;

use forebay_tensor::{Hello, Welcome};

pub use client::Client;
pub use server::Server;

/// Bytes that a machine is given before it may say something, at least: as often doubled as the input's second byte
/// says.
const BURST_BYTES: usize = 32;

/// Who is to hear the bytes, as the first of them says.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub enum Role {
    Greeting = 0,
    Server = 1,
    Client = 2,
}

/// What became of an input.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub said: Vec<u8>,
    pub refused: Option<String>,
}

/// Who hears an input, and in which bursts.
fn plan(input: &[u8]) -> Option<(Role, usize, &[u8])> {
    let (&[role, burst], bytes) = input.split_first_chunk()?;
    let role = [Role::Greeting, Role::Server, Role::Client][usize::from(role % 3)];
    Some((role, BURST_BYTES << (burst % 16), bytes))
}

/// Have a machine hear `input`, at most `step` bytes at a time.
pub fn drive(input: &[u8], step: usize) -> Seen {
    let mut seen = Seen::default();
    let Some((role, burst, bytes)) = plan(input) else {
        return seen;
    };
    match role {
        Role::Greeting => greet(bytes),
        Role::Server => {
            let mut server = Server::new();
            for burst in bytes.chunks(burst) {
                if let Err(error) = server.hear(burst, step) {
                    seen.refused = Some(error.to_string());
                    break;
                }
                seen.said.extend(server.say());
            }
            seen.said.extend(server.end());
        }
        Role::Client => {
            let mut client = Client::new();
            seen.said.extend(client.say());
            for burst in bytes.chunks(burst) {
                if let Err(error) = client.hear(burst, step) {
                    seen.refused = Some(error.to_string());
                    break;
                }
                seen.said.extend(client.say());
            }
            seen.said.extend(client.end());
        }
    }
    seen
}

/// A message with which a connection is set up: what can be read means the same once it was written again.
fn greet(bytes: &[u8]) {
    if let Ok(hello) = Hello::decode(bytes) {
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    }
    if let Ok(welcome) = Welcome::decode(bytes) {
        assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
    }
}

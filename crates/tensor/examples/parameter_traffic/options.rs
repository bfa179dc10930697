//! What is run: `NAME=VALUE` on the command line.
use std::error::Error;
use std::str::FromStr;
use std::time::Duration;

/// How a block becomes one that a device could reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// The arena's chunks are registered when they are made.
    Static,
    /// The same, of an arena that grows by small chunks, each registered when it comes.
    Grown,
    /// Each block of the arena is registered before its transfer and unregistered after it, on both sides.
    Transfer,
    /// The same, and the requester maps and unmaps the memory for each pull.
    Fresh,
}

impl FromStr for Registration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "static" => Ok(Self::Static),
            "grown" => Ok(Self::Grown),
            "transfer" => Ok(Self::Transfer),
            "fresh" => Ok(Self::Fresh),
            _ => Err(format!(
                "registration={text}: give static, grown, transfer or fresh"
            )),
        }
    }
}

/// What the sockets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    Unix,
    Tcp,
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "unix" => Ok(Self::Unix),
            "tcp" => Ok(Self::Tcp),
            _ => Err(format!("network={text}: give unix or tcp")),
        }
    }
}

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub workers: usize,
    pub servers: usize,
    /// Tensors of each server, all of which each worker pulls in a step.
    pub tensors: usize,
    /// Bytes of a tensor.
    pub bytes: usize,
    /// Requests that each connection may have outstanding.
    pub slots: u32,
    /// Pulls that a request may have.
    pub entries: u32,
    pub registration: Registration,
    pub network: Network,
    /// How long bytes are under way, each way.
    pub delay: Duration,
    /// What a worker waits for after each step, with a tenth more or less.
    pub compute: Duration,
    pub warm_up: Duration,
    pub measured: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            workers: 20,
            servers: 2,
            tensors: 16,
            bytes: 4096,
            slots: 16,
            entries: 1,
            registration: Registration::Static,
            network: Network::Unix,
            delay: Duration::ZERO,
            compute: Duration::ZERO,
            warm_up: Duration::from_millis(500),
            measured: Duration::from_secs(2),
        }
    }
}

impl Options {
    /// Read the command line.
    ///
    /// # Errors
    ///
    /// An unknown name, or a value that cannot be one.
    pub fn parse(arguments: &[String]) -> Result<Self, Box<dyn Error>> {
        let mut options = Self::default();
        for argument in arguments {
            let (name, value) = argument.split_once('=').ok_or("give NAME=VALUE")?;
            match name {
                "workers" => options.workers = value.parse()?,
                "servers" => options.servers = value.parse()?,
                "tensors" => options.tensors = value.parse()?,
                "bytes" => options.bytes = value.parse()?,
                "slots" => options.slots = value.parse()?,
                "entries" => options.entries = value.parse()?,
                "registration" => options.registration = value.parse()?,
                "network" => options.network = value.parse()?,
                "delay_ms" => options.delay = milliseconds(value)?,
                "compute_ms" => options.compute = milliseconds(value)?,
                "warm_up_ms" => options.warm_up = milliseconds(value)?,
                "measured_ms" => options.measured = milliseconds(value)?,
                _ => return Err(format!("unknown option {name}").into()),
            }
        }
        let counts = [options.workers, options.servers, options.tensors];
        if counts.contains(&0) || options.bytes == 0 || !options.bytes.is_multiple_of(8) {
            return Err("no count may be 0, and bytes are a multiple of 8".into());
        }
        Ok(options)
    }
}

fn milliseconds(value: &str) -> Result<Duration, Box<dyn Error>> {
    Ok(Duration::try_from_secs_f64(value.parse::<f64>()? / 1e3)?)
}

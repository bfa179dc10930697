//! The traffic of parameter servers on real sockets: `parameter_traffic [NAME=VALUE]...`.
//!
//! So many workers pull so many tensors from each of so many servers, wait as if they computed, and pull again.
//! All servers are one thread of a second process, all workers one thread of the first; between each worker and each
//! server there is a connection with a [`Requester`](forebay_tensor::Requester) at its one end and a
//! [`Shard`](forebay_tensor::Shard)'s peer at its other. Nothing but the options differs between two runs: how many
//! requests are outstanding, how many pulls a request has, and how memory is registered, which is real: the kernel pins
//! the pages for `io_uring`, as it would for a device.
//!
//! Latency is added in the workers' process by a line that keeps the bytes of both ways; the compute time is a timer.
//! A worker's first step is compared byte by byte, into memory that held something else.
//!
//! | module | what |
//! |---|---|
//! | `options` | what is run |
//! | `server` | the servers' process |
//! | `workers`, `connection`, `line` | the workers' process |
//! | `memory` | arenas, and registration once or for each transfer |
//! | `meter` | what is counted |
//! | `sys` | all the `unsafe` there is |
//!
//! Prints one line of JSON.
mod connection;
mod contents;
mod line;
mod memory;
mod meter;
mod options;
mod random;
mod server;
mod socket;
mod sys;
mod workers;

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::process::{self, ChildStdout, Command, Stdio};
use std::time::Instant;

use rustix::process::{Resource, getrlimit, setrlimit};

use connection::Connection;
use meter::{Counted, Meter};
use options::Options;
use workers::Workers;

/// What may go wrong here ends the run with its message.
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    allow_descriptors()?;
    match arguments.split_first() {
        Some((first, rest)) if first == "serve" => server::serve(Options::parse(rest)?),
        _ => work(Options::parse(&arguments)?, &arguments),
    }
}

/// Run servers and workers, and print what was counted.
#[allow(clippy::print_stdout)] // what it is for
fn work(options: Options, arguments: &[String]) -> Outcome<()> {
    let mut servers = Command::new(env::current_exe()?)
        .arg("serve")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut answers = BufReader::new(servers.stdout.take().ok_or("it was piped")?);
    let connections = connect(&options, &mut answers)?;
    let warm = Instant::now() + options.warm_up;
    let meter = Meter::new(options.workers, warm, vec![process::id(), servers.id()]);
    let mut workers = Workers::new(options, connections, meter)?;
    workers.run(warm + options.measured)?;
    let counted = workers.meter.counted()?;
    drop(servers.stdin.take()); // which ends them, before their peers go
    let mut registered = String::new();
    answers.read_to_string(&mut registered)?;
    if !servers.wait()?.success() {
        return Err("the servers have failed".into());
    }
    let registrations = workers.memory.registrations()? + registered.trim().parse::<u64>()?;
    println!("{}", json(&options, &counted, registrations));
    Ok(())
}

/// Connect each worker to each server, the first worker's first.
fn connect(options: &Options, servers: &mut BufReader<ChildStdout>) -> Outcome<Vec<Connection>> {
    let mut line = String::new();
    servers.read_line(&mut line)?;
    let addresses: Vec<&str> = line.split_whitespace().collect();
    if addresses.len() != options.servers {
        return Err("the servers did not start".into());
    }
    let mut connections = Vec::new();
    for _ in 0..options.workers {
        for address in &addresses {
            let socket = socket::connect(options.network, address)?;
            connections.push(Connection::new(socket, options)?);
        }
    }
    Ok(connections)
}

fn json(options: &Options, counted: &Counted, registrations: u64) -> String {
    #[allow(clippy::cast_precision_loss)] // a few thousand
    let tensors = (options.servers * options.tensors) as f64;
    format!(
        "{{\"steps_per_s\": {:.3}, \"tensors_per_s\": {:.1}, \"pull_ms\": {:.4}, \
         \"cpu_us_per_tensor\": {:.4}, \"registrations\": {registrations}}}",
        counted.steps_per_s,
        counted.steps_per_s * tensors,
        counted.pulling.as_secs_f64() * 1e3,
        counted.cpu.as_secs_f64() * 1e6 / tensors,
    )
}

/// Bytes of answers that a connection may have outstanding: enough for all of its slots.
fn grant(options: Options) -> u64 {
    let pulls = u64::from(options.slots) * u64::from(options.entries);
    (pulls * (options.bytes as u64 + 4096)).max(16 << 20)
}

fn tensor_name(tensor: usize) -> String {
    format!("layer/{tensor}/weights")
}

/// Have as many descriptors as may be had: there is one for each connection.
fn allow_descriptors() -> Outcome<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}

//! The other end in a process of its own: this test's program again, told what to be.
use std::env;
use std::io::Read;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};

use forebay_tensor::Key;
use forebay_tensor::fabric::FabricPull;
use forebay_verbs::{Catalog, Puller, Registering};

use crate::support::{Place, patience, serve};

const ROLE: &str = "FOREBAY_VERBS_TEST_ROLE";
const PLACE: &str = "FOREBAY_VERBS_TEST_SOCKET";

/// What the other process does once it is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Owns [`TENSOR`] and answers.
    Owner(u32, Registering),
    /// Owns it, and never looks at a request.
    Silent(u32),
    /// Pulls into its own memory without end.
    Requester(u32),
}

/// What an owner has: 1 MiB in rows of one byte, filled with seed 0.
pub(crate) const TENSOR: Key = Key {
    id: 0,
    generation: 1,
};
pub(crate) const TENSOR_BYTES: usize = 1 << 20;

impl Role {
    fn encode(self) -> String {
        match self {
            Self::Owner(slots, Registering::Once) => format!("owner {slots}"),
            Self::Owner(slots, Registering::PerTransfer) => format!("owner-per-transfer {slots}"),
            Self::Silent(slots) => format!("silent {slots}"),
            Self::Requester(slots) => format!("requester {slots}"),
        }
    }

    fn decode(text: &str) -> Self {
        let (role, slots) = text.split_once(' ').expect("a role and its slots");
        let slots = slots.parse().expect("a number");
        match role {
            "owner" => Self::Owner(slots, Registering::Once),
            "owner-per-transfer" => Self::Owner(slots, Registering::PerTransfer),
            "silent" => Self::Silent(slots),
            _ => Self::Requester(slots),
        }
    }
}

/// A process, killed where the test ends first.
#[derive(Debug)]
pub(crate) struct Peer(Child);

impl Peer {
    pub(crate) fn kill(&mut self) {
        self.0.kill().expect("it is ours");
        self.0.wait().expect("it is ours");
    }

    /// Stop it, as a debugger or a frozen machine does.
    pub(crate) fn stop(&self) {
        let sent = Command::new("kill")
            .args(["-STOP", &self.0.id().to_string()])
            .status();
        assert!(sent.expect("there is kill").success());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Start the other end; what to connect to it by.
pub(crate) fn start(role: Role) -> (Peer, UnixStream) {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let place = env::temp_dir().join(format!("forebay-verbs-{}-{count}", std::process::id()));
    let listener = UnixListener::bind(&place).expect("a socket");
    let child = Command::new(env::current_exe().expect("this program"))
        .args(["--ignored", "--exact", "peer::the_other_end", "--nocapture"])
        .env(ROLE, role.encode())
        .env(PLACE, &place)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("started");
    let (stream, _) = listener.accept().expect("it connects");
    std::fs::remove_file(place).expect("ours");
    (Peer(child), stream)
}

#[test]
#[ignore = "the other end of other tests; does nothing by itself"]
fn the_other_end() {
    let (Ok(role), Ok(socket)) = (env::var(ROLE), env::var(PLACE)) else {
        return;
    };
    let stream = UnixStream::connect(socket).expect("the test listens");
    let place = Place::new("peer");
    let mut catalog = Catalog::default();
    let key = catalog
        .publish(place.block(TENSOR_BYTES, 0), 1)
        .expect("published");
    assert_eq!(key, TENSOR);
    match Role::decode(&role) {
        Role::Owner(slots, registering) => {
            serve(
                place
                    .responder(stream, slots, registering)
                    .expect("connected"),
                &catalog,
            );
        }
        Role::Silent(slots) => {
            let mut lifeline = stream.try_clone().expect("a descriptor");
            let responder = place
                .responder(stream, slots, Registering::Once)
                .expect("connected");
            drop(lifeline.read(&mut [0])); // until the test's end goes
            drop(responder);
        }
        Role::Requester(slots) => {
            let puller = place
                .puller(stream, slots, Registering::Once)
                .expect("connected");
            pull_for_ever(&place, puller);
        }
    }
}

fn pull_for_ever(place: &Place, mut puller: Puller) {
    let block = place.block(TENSOR_BYTES, 0);
    let mut arrivals = Vec::new();
    loop {
        while puller.has_free_slot() {
            let pull = FabricPull {
                token: 0,
                tensor: TENSOR,
                first: 0,
                rows: 65_536,
                into: block.clone(),
                at: 0,
                bytes: 65_536,
            };
            if puller.pull(pull).is_err() {
                return;
            }
        }
        if puller.wait(&mut arrivals, Some(patience())).is_err() {
            return;
        }
        for arrival in arrivals.drain(..) {
            puller.settle(arrival);
        }
    }
}

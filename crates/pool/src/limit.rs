//! Every limit of the pool, by name.

use std::time::Duration;

/// Services that one keeper can own at once: one word of the shared page each.
pub const SERVICES_MAX: u32 = 4096;
/// Bytes of one message between client, keeper and template; the kernel's default socket buffer holds it.
pub const CONTROL_BYTES_MAX: usize = 128 * 1024;
/// Descriptors that travel with one message; the kernel's own limit is 253.
pub const CONTROL_FDS_MAX: usize = 4;
/// Bytes kept of what a service wrote to stdout and stderr: the newest.
pub const OUTPUT_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a line or a file that says that a program is ready; of what is longer the rest is not looked at.
pub const LINE_BYTES_MAX: usize = 4 * 1024;
/// Templates that one keeper runs at once.
pub const TEMPLATES_MAX: usize = 64;
/// Descriptors that a foreign program inherits start here, as with systemd and s6.
pub const INHERITED_FD: i32 = 3;
/// Longest time between two looks for adopted orphans, in milliseconds, while any process lives.
pub const ORPHAN_SCAN_MS: u64 = 5_000;
/// Longest wait for a keeper that does not read its full socket, in milliseconds; after it the keeper is lost.
pub const CONTROL_WAIT_MS: u64 = 1_000;
/// Shortest time that a keeper is given to end its services when the pool is closed, in milliseconds.
pub const CLOSE_MS_MIN: u64 = 100;
/// Time that a service is given for what it does before it ends, in milliseconds; after it its group is killed.
pub const EXIT_HOOKS_MS: u64 = 1_000;
/// Time between two looks at whether the last processes of such a service have ended, in milliseconds.
pub const GROUP_CHECK_MS: u64 = 2;
/// Notes of what happened that wait to be taken; the newest.
pub const NOTES_MAX: usize = 4096;
/// Time between two looks at a service that is too old and in use, in milliseconds.
pub const LIFETIME_LOOK_MS: u64 = 1_000;
/// Starts after which a template has spares: one that is asked for a single service needs none.
pub const SPARES_FROM: u64 = 2;
/// Time from a start to the fork of a spare, in milliseconds, so that it delays no burst of starts.
pub const SPARE_DELAY_MS: u64 = 10;
/// Programs that one shared pool serves at once.
pub const BORROWERS_MAX: usize = 256;
/// Time between two looks of a lender at whether its socket is still where programs look for it, in milliseconds.
pub const SOCKET_CHECK_MS: u64 = 1_000;
/// Kinds of services that one shared pool knows: one for each class and set of arguments, of each version of its code.
pub const KINDS_MAX: usize = 4096;
/// Rows of one answer about services: they fit one control message, names cut to `NAME_BYTES_MAX` included.
pub const ROWS_MAX: usize = 256;
/// Readers of events in one program of a shared pool.
pub const READERS_MAX: usize = 64;
/// Copies of its leases that one program of a shared pool may have at once. With at most half of a keeper's services in
/// the pool itself, two programs that copy as much as they may leave room to the others.
pub const COPIES_MAX: usize = 512;
// Two programs leave a quarter of them, and each service that ends keeps its slot until its death is known.
const _: () = assert!(2 * COPIES_MAX + SERVICES_MAX as usize / 2 < SERVICES_MAX as usize);
/// What a program reports of a service that it started, in bytes.
pub const REPORT_BYTES_MAX: usize = 1 << 16;
/// Bytes kept of the name of a kind.
pub const NAME_BYTES_MAX: usize = 200;
/// Messages that one program may send before others have their turn.
pub const TURN_MESSAGES: usize = 32;
/// How long a lender, and a program that waits for it, polls before it sleeps.
///
/// A third of [`forebay_base::spin::SPIN`], which suits two ends that only wait for each other. A lender is the third
/// process beside a program and its service: while it polls after its answer, it is in the way of the call that the
/// program makes next. On two loaded cores, five rounds by turns, an acquire, a call and a release took 122 to 140 us with
/// 20 (58 to 70 us of the program's CPU), 182 to 356 us with 60 (66 to 129); a bare acquire and release 26 to 35 us
/// against 23 to 132.
pub const LENDER_SPIN: Duration = Duration::from_micros(20);
/// Longest time until the directories of ended leases are looked for, in milliseconds, while the keeper is awake.
pub const DIRECTORY_SCAN_MS: u64 = 1_000;
/// Files and directories that the keeper removes between two looks at what is more urgent.
pub const REMOVE_BATCH: usize = 16;
/// Time between two rounds of measuring the memory of services, in milliseconds; only where a pool limits it.
pub const MEMORY_SCAN_MS: u64 = 1_000;
/// Services that the keeper measures between two looks at what is more urgent: 0.1 ms each.
pub const MEMORY_BATCH: usize = 8;

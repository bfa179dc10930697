//! The limits of the dispatcher's turns, clients and queues, with their reasons.
//!
//! Those on what is asked for, measured and kept are in [`crate::limit`].

use crate::limit::UNREAD_RESULTS_MAX;

/// Connected clients; further ones are answered with a refusal (`clients_max`). Each holds a descriptor and about 2
/// KiB.
pub const CLIENTS_MAX: usize = 1_024;
/// Refused connections beside them; accepting pauses there.
pub const REFUSED_MAX: usize = 64;
/// A refused client may call for this long, and for [`REFUSED_ANSWERED_MS`] after its first answer.
pub const REFUSED_MS: u64 = 2_000;
/// See [`REFUSED_MS`].
pub const REFUSED_ANSWERED_MS: u64 = 100;
/// Time between two warnings about refused clients.
pub const REFUSED_WARNING_MS: u64 = 60_000;
/// Unanswered calls of one client: submissions on their way, and waits for requests.
pub const CALLS_PER_CLIENT_MAX: usize = 65_536;
/// Unread answers of one client, in bytes. Above it, ends are sent without their results, which the client fetches from
/// the disk when it wants them, and answers from the disk wait (`client_results_bytes_max`).
pub const CLIENT_RESULTS_BYTES_MAX: usize = 16 << 20;
/// Answers from the disk on their way to one client; further questions wait until it has read some.
pub const CLIENT_FETCHES_MAX: usize = 8;
/// Ends that one client received without their results: the retention keeps these results, and of more the newest.
pub const UNREAD_RESULTS_PER_CLIENT_MAX: usize = 65_536;
const _: () = assert!(UNREAD_RESULTS_PER_CLIENT_MAX <= UNREAD_RESULTS_MAX);
/// Unread answers of one client, in bytes, above which the dispatcher reads nothing more from it.
pub const CLIENT_UNREAD_BYTES_MAX: usize = 32 << 20;
/// Other unread answers of one client, in bytes; the next answer closes its connection, while its requests continue
/// (`client_outbox_bytes_max`).
pub const CLIENT_OUTBOX_BYTES_MAX: usize = 64 << 20;
const _: () = assert!(CLIENT_RESULTS_BYTES_MAX < CLIENT_UNREAD_BYTES_MAX);
const _: () = assert!(CLIENT_UNREAD_BYTES_MAX < CLIENT_OUTBOX_BYTES_MAX);
/// A result that is always sent with its end, however much its client has not read: as long as the end without it.
pub const ANSWER_BYTES_SMALL: usize = 256;
/// Calls of one client in one turn, so that no client keeps the workers waiting: about 100 us.
pub const CALLS_A_TURN: usize = 64;
/// Submissions and other commands of the program's threads that wait for the dispatcher.
pub const COMMANDS_MAX: usize = 1 << 20;
/// Orders that the supervisor has not taken.
pub const ORDERS_MAX: usize = 1 << 16;
/// Calls that the server's main thread has not taken; beyond it they are refused.
pub const TICKETS_MAX: usize = 4_096;
/// Ends of in-process submissions that the program has not taken.
pub const FINISHED_MAX: usize = 1 << 22;
/// Bytes of a submission's arguments, unless the settings say otherwise.
pub const ARGUMENTS_BYTES_MAX: usize = 16 << 20;
/// A worker that closed its socket but did not exit is killed after this.
pub const HALF_DEAD_MS: u64 = 1_000;
/// How long the supervisor has to report how a worker ended, before the cause counts as unknown.
pub const DEATH_REPORT_MS: u64 = 5_000;
/// Time until a store that could not write is tried again.
pub const STORE_AGAIN_MS: u64 = 1_000;
/// Bytes of arguments on their way to the disk. Above it the dispatcher stops reading from clients that submit, until
/// some are written.
pub const WRITING_BYTES_MAX: usize = 64 << 20;
/// Bytes of the audit log, and of the one before it (`audit_bytes_max`).
pub const AUDIT_BYTES_MAX: u64 = 10_000_000;
/// Lines that wait to be written into it; what comes faster is counted.
pub const AUDIT_LINES_MAX: usize = 8_192;
/// Submissions that wait for the code that is being loaded; further ones are checked against the previous code.
pub const PARKED_MAX: usize = 10_000;
/// Bytes of these submissions.
pub const PARKED_BYTES_MAX: usize = 64 << 20;
/// Workers whose side sockets are open; each holds two descriptors.
pub const SIDES_MAX: usize = 4_096;
/// Records of one worker in one turn: a worker may send without end.
pub const RECORDS_A_TURN: usize = 64;
/// Turns' worth of records that are read before the end of a run: more than the socket's buffer holds.
pub const RECORD_TURNS_AT_END: usize = 32;
/// Output of one worker that is read at once: the capacity of a pipe.
pub const OUTPUT_READ_BYTES: usize = 64 << 10;
/// Output of one worker that is read in one turn.
pub const OUTPUT_BYTES_A_TURN: usize = 1 << 20;
/// The last output of a worker, which is reported with its death.
pub const LAST_OUTPUT_BYTES: usize = 4 << 10;
/// Items of one stream in one turn.
pub const ITEMS_A_TURN: usize = 32;
/// Bytes of a log in one item.
pub const LOG_PIECE_BYTES: usize = 64 << 10;
/// Items of one reader of the feed in one turn: a thousand events, about 200 us.
pub const FEED_ITEMS_A_TURN: usize = 4;
/// Time between two items of a busy feed. Each wakes a client: at this pace ten of them cost a hundredth of a core, and
/// no person sees the delay.
pub const FEED_PAUSE_MS: u64 = 10;
/// How often the reason of a waiting request is checked while a client follows it.
pub const REASONS_MS: u64 = 1_000;
/// Runs at least this long are measured by the kernel's high-water mark; for shorter ones the two reads would cost too
/// much.
pub const GROWTH_RUN_MS: u64 = 20;
/// Time between two signals to a run that is to end.
pub const INTERRUPT_REPEAT_MS: u64 = 100;

//! What the dispatcher holds at most, with the reasons.

use crate::limit::UNREAD_RESULTS_MAX;

/// Connections of clients; who comes then is answered by a refusal (`clients_max`). Each holds a descriptor and about
/// 2 KiB.
pub const CLIENTS_MAX: usize = 1_024;
/// Connections beside those that are being refused; accepting pauses there.
pub const REFUSED_MAX: usize = 64;
/// Who is refused may call for so long, and for so long after its first answer.
pub const REFUSED_MS: u64 = 2_000;
/// See [`REFUSED_MS`].
pub const REFUSED_ANSWERED_MS: u64 = 100;
/// Between two warnings that clients are refused.
pub const REFUSED_WARNING_MS: u64 = 60_000;
/// Calls of one client that are not answered: submissions on their way, requests that are waited for.
pub const CALLS_PER_CLIENT_MAX: usize = 65_536;
/// Answers that one client has not taken, in bytes: above it, ends are told without their results, which are on disk
/// and asked for when they are wanted, and answers from the disk wait (`client_results_bytes_max`).
pub const CLIENT_RESULTS_BYTES_MAX: usize = 16 << 20;
/// Answers from the disk that are on their way to one client; further questions wait until it has taken some.
pub const CLIENT_FETCHES_MAX: usize = 8;
/// Results that one client was told of without them: the retention spares them, and of more the newest.
pub const UNREAD_RESULTS_PER_CLIENT_MAX: usize = 65_536;
const _: () = assert!(UNREAD_RESULTS_PER_CLIENT_MAX <= UNREAD_RESULTS_MAX);
/// Answers that one client has not taken, in bytes, above which nothing more is read from it.
pub const CLIENT_UNREAD_BYTES_MAX: usize = 32 << 20;
/// Other answers that one client has not taken, in bytes; with the next one its connection ends, and its requests go
/// on (`client_outbox_bytes_max`).
pub const CLIENT_OUTBOX_BYTES_MAX: usize = 64 << 20;
const _: () = assert!(CLIENT_RESULTS_BYTES_MAX < CLIENT_UNREAD_BYTES_MAX);
const _: () = assert!(CLIENT_UNREAD_BYTES_MAX < CLIENT_OUTBOX_BYTES_MAX);
/// A result that is told with its end however much its client has not taken: as long as what is told without it.
pub const ANSWER_BYTES_SMALL: usize = 256;
/// Calls of one client in one turn, so that nobody keeps the workers waiting: about 100 us.
pub const CALLS_A_TURN: usize = 64;
/// Connections that are accepted in one turn.
pub const ACCEPTS_A_TURN: usize = 16;
/// Submissions and words of the program's threads that wait for the dispatcher.
pub const COMMANDS_MAX: usize = 1 << 20;
/// Orders that the crew has not taken.
pub const ORDERS_MAX: usize = 1 << 16;
/// Calls that the server's main thread has not taken; beyond it they are refused.
pub const TICKETS_MAX: usize = 4_096;
/// Ends of in-process submissions that nobody has taken.
pub const FINISHED_MAX: usize = 1 << 22;
/// Bytes of a submission's arguments, unless the settings say otherwise.
pub const ARGUMENTS_BYTES_MAX: usize = 16 << 20;
/// How long accepting pauses where no descriptor is left.
pub const ACCEPT_PAUSE_MS: u64 = 100;
/// A worker that closed its socket and lives on is killed after so long.
pub const HALF_DEAD_MS: u64 = 1_000;
/// How long the crew has to say how a worker ended, before its end counts as unknown.
pub const DEATH_TOLD_MS: u64 = 5_000;
/// A store that took nothing is tried again after so long.
pub const STORE_AGAIN_MS: u64 = 1_000;
/// Bytes of arguments on their way to the disk; above it clients that call are not read until some are there.
pub const WRITING_BYTES_MAX: usize = 64 << 20;
/// Submissions that wait for the code that is being loaded; beyond it they are checked against the last one.
pub const PARKED_MAX: usize = 10_000;
/// And their bytes.
pub const PARKED_BYTES_MAX: usize = 64 << 20;
/// WorkerProcesses whose side sockets are open; each holds two descriptors.
pub const SIDES_MAX: usize = 4_096;
/// Records of one worker in one turn: it may talk without end.
pub const RECORDS_A_TURN: usize = 64;
/// Turns' worth of its records that are read before the end of a run: more than its socket's buffer holds.
pub const RECORD_TURNS_AT_END: usize = 32;
/// Output of one worker that is read at once, which is what a pipe holds.
pub const OUTPUT_READ_BYTES: usize = 64 << 10;
/// And in one turn.
pub const OUTPUT_BYTES_A_TURN: usize = 1 << 20;
/// The last output of a worker that is told with its death.
pub const LAST_OUTPUT_BYTES: usize = 4 << 10;
/// Items of one stream in one turn.
pub const ITEMS_A_TURN: usize = 32;
/// Bytes of a log in one item.
pub const LOG_PIECE_BYTES: usize = 64 << 10;
/// What happened to a request and was not taken by who follows it; the oldest goes first.
pub const EVENTS_QUEUED_MAX: usize = 256;
/// How often the reason of what waits is looked at where somebody follows it.
pub const REASONS_MS: u64 = 1_000;
/// A run from this time on is asked how much it grew; shorter ones are left in peace.
pub const GROWTH_RUN_MS: u64 = 20;
/// Between two signals to a run that is to end.
pub const INTERRUPT_REPEAT_MS: u64 = 100;

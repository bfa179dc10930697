//! The limits on what is asked for, measured and kept: options of a request, logs, results, the gauge.
//!
//! Those of the dispatcher's turns, clients and queues are in `dispatcher::limit`.

/// A blob from this size on travels as a segment beside the head, not in it (`blob_segment_bytes_min`).
///
/// Below it a copy costs less than a segment's header and bookkeeping; the value is the one of `forebay.rpc`.
pub const BLOB_SEGMENT_BYTES_MIN: usize = 64 << 10;
/// Text of an option: a key, an idempotency key, a submitter (`option_text_bytes_max`).
pub const OPTION_TEXT_BYTES_MAX: usize = 256;
/// Requests that one request may come after (`after_max`).
pub const AFTER_MAX: usize = 1_000;
/// Requests that one run may submit as its children (`children_max`).
pub const CHILDREN_MAX: u32 = 10_000;
/// Requests above a child: its parent, that one's parent, and so on (`depth_max`).
pub const DEPTH_MAX: u32 = 64;
/// Runs of an idempotent request without retries whose nodes were lost; it may be what ends them (`nodes_lost_max`).
pub const NODES_LOST_MAX: u32 = 10;
/// Runs after the first (`retries_max`).
pub const RETRIES_MAX: u32 = 1_000;
/// The longest time in an option: ten years, in milliseconds (`option_time_ms_max`).
pub const OPTION_TIME_MS_MAX: u64 = 10 * 366 * 86_400_000;
/// Cores that one request may ask for (`cpu_max`).
pub const CPU_MAX: u32 = 1_024;
/// Requests that a worker may be handed while it runs one (`ahead_max`).
pub const AHEAD_MAX: u32 = 64;
/// One record of a side socket, its head included (`side_record_bytes_max`).
///
/// A worker cuts its output into records of at most this size: well below the kernel's default for a socket's buffer
/// (`net.core.wmem_default`, 208 KiB), so that one always fits an empty socket.
pub const SIDE_RECORD_BYTES_MAX: usize = (64 << 10) + 13;
/// Results on their way to the disk, in bytes; above it nothing is dispatched until some are there
/// (`results_writing_bytes_max`).
///
/// Workers return results faster than a disk writes: without the limit, a thousand of a megabyte were all in memory.
pub const RESULTS_WRITING_BYTES_MAX: usize = 32 << 20;
/// Unread results may make the directory this many times as large as the retention allows; beyond that the oldest are
/// removed too.
pub const UNREAD_RETENTION_TIMES: u64 = 4;
/// Unread results that the retention keeps at once, each counted for every client that has not read it: about 50 bytes
/// each, here and with the client, so 13 MiB.
pub const UNREAD_RESULTS_MAX: usize = 1 << 18;
/// Pages that a backup copies between two looks at the log of the store: 4 MiB, some milliseconds
/// (`backup_step_pages`).
pub const BACKUP_STEP_PAGES: u16 = 1_024;
/// Bytes that the log of the store may grow by while a backup reads one moment of it (`backup_log_growth_max`).
pub const BACKUP_LOG_GROWTH_MAX: u64 = 256 << 20;
/// Moments that a backup begins with before it gives up (`backup_moments_max`).
pub const BACKUP_MOMENTS_MAX: u32 = 3;
/// Reports of the calls of hooks that wait for the disk (`outbox_reports_max`): 2 MB, since what one of them quotes has
/// at most 2,000 characters. A full disk makes them wait.
pub const OUTBOX_REPORTS_MAX: usize = 1_000;
/// Output that is kept of one request: head and tail (`log_bytes_max`).
pub const LOG_BYTES_MAX: u64 = 10_000_000;
/// Of that, the size of its beginning; a constant of the file format, because the marker follows it.
///
/// A multiple of every usual block size, so that discarding what follows frees whole blocks.
pub const LOG_HEAD_BYTES: u64 = 256 << 10;
/// The smallest `log_bytes_max`.
pub const LOG_BYTES_LEAST: u64 = 4 * LOG_HEAD_BYTES;
/// Log files that stay open; further ones are opened for each write (`log_files_open_max`).
pub const LOG_FILES_OPEN_MAX: usize = 256;
/// One item of a generator, whatever the settings say (`max_item_bytes`): it is one message to a reader.
pub const ITEM_BYTES_MOST: usize = 64 << 20;
/// Items of one message to a reader, in bytes; a larger item has a message of its own (`item_piece_bytes`).
pub const ITEM_PIECE_BYTES: usize = 64 << 10;
/// And their number: small ones cost more to take apart than to copy.
pub const ITEM_PIECE_COUNT: usize = 1_024;
/// Items that a reader passes over in one turn, to get behind the number that it named: about 100 us
/// (`item_looks_max`).
pub const ITEM_LOOKS_MAX: usize = 4_096;
/// What it reads at once for that, and how often in one turn: 1 MiB.
pub const ITEM_SKIP_BYTES: usize = 16 << 10;
/// See [`ITEM_SKIP_BYTES`].
pub const ITEM_SKIP_READS: usize = 64;
/// Events that the feed keeps, superseded ones included (`feed_events_max`). A reader that is slower than the server is
/// so many behind before it is told a gap: some seconds at 10,000 requests a second.
pub const FEED_EVENTS_MAX: usize = 65_536;
/// Time between the beginnings of two feeds on one store, whatever the clock says: 2^36 numbers, which is 20,000 events
/// a second for 40 days.
pub const FEED_STEP_MS: u64 = 1 << 16;
/// Bytes of these events (`feed_bytes_max`).
pub const FEED_BYTES_MAX: usize = 16 << 20;
/// Requests, and names, that one reader of the feed may name (`filter_ids_max`): each is looked at for each event.
pub const FILTER_IDS_MAX: usize = 64;
/// Names of requests that are counted apart (`metric_names_max`); further ones count as `other`.
pub const METRIC_NAMES_MAX: usize = 1_000;
/// How often workers and memory are measured while something runs. A reading costs 70 us for a small process, so
/// fourteen workers cost a hundredth of a core.
pub const GAUGE_BUSY_MS: u64 = 100;
/// How often otherwise.
pub const GAUGE_IDLE_MS: u64 = 1_000;
/// The share of a core that measuring may take, one in this many: longer rounds make longer pauses (`gauge_share`).
pub const GAUGE_SHARE: u32 = 20;
/// Readings that wait for the dispatcher (`readings_max`); further ones are dropped, newer ones follow.
pub const READINGS_MAX: usize = 10_000;
/// A difference of the wall clock from this on counts as a step; a smaller one is its daily correction (`step_ms`).
pub const STEP_MS: u64 = 1_000;
/// With less memory, or with one core, nothing unneeded stays resident (`low_resource`).
pub const LOW_RESOURCE_BYTES: u64 = 2_000_000_000;
/// See [`LOW_RESOURCE_BYTES`].
pub const LOW_RESOURCE_CORES_MILLI: u32 = 1_000;

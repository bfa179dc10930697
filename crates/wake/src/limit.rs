//! Limits that several drivers share.

/// A blocked thread looks and yields for this long before it sleeps, in microseconds.
///
/// Waking a sleeper on another core costs 25 to 50 us each way: the answer of a process that slept comes after that, and
/// must be found by who still looks. A lease of a service that resets (acquire, call, release) on two idle cores: 112 to
/// 120 us with 20 us of it, 40 us with 60, 40 to 90 with 100; a sequential call of 100 bytes: 57 us without, 10 us with 20
/// or 60. Where both ends have one core nothing is lost, because each look yields it.
pub const SPIN_US: u64 = 60;

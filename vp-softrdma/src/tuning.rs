//! Tuning constants: how long, how much, how often; each with the measurement that chose it.
//!
//! What a constant was compared with stands behind *Measured*: the value, and the ratio of the row of
//! `warpline perf local` that depends most on it, other value to this one. `scripts/tune NAME VALUE...`
//! repeats it: it builds the command with each value and measures them in turns, with the options after
//! `tune:`. Below 0.98 a value is slower, between 0.98 and 1.02 it is no different. A
//! constant that was not compared with others has the reason for its value. How a waiting thread spins is in
//! `kal-shim/os/src/tuning.rs`, connection management in `ual/cm/src/tuning.rs`.

use crate::limits;

// Progress.

/// How long the engine stays away after an application thread was inside: at first.
///
/// tune: `--op send --mode lat --size 8 --poll --crc on`
/// *Measured*: 10000: 0.93, 400000: 1.00. Longer, a peer's Read meets a back-off that has begun (docs/findings.md).
pub(crate) const FIRST_BACK_OFF_NS: u64 = 50_000;

/// The same at most, while applications keep coming.
///
/// tune: `--op send --mode lat --size 8 --poll --crc on`
/// *Measured*: 100000: 0.98, 10000000: 1.00.
pub(crate) const BACK_OFF_NS: u64 = 1_000_000;

/// How long at most a thread that leads may be away before the engine's thread serves the sockets, while it
/// has always come back in time.
///
/// *Measured* with `ib_send_lat -e`, whose threads lead (`benches/perftest --only " -e"`), as ratio to TCP with two
/// thread hops: 50000: 1.50, 1000000: 0.99.
pub(crate) const ABSENCE_NS: u64 = 1_000_000;

/// A thread that reads a socket this often within one back-off of the engine does little else: the engine
/// removes the socket from its epoll set.
///
/// tune: `--op send --mode lat --size 8 --poll --crc on`
/// *Measured*: 16: 1.00, never (`u32::MAX`): 0.95 to 0.97. `EPOLL_CTL_MOD` to no events instead of taking the socket out:
/// 0.3 to 0.8 % of the 3 to 5.
pub(crate) const OFTEN: u32 = 256;

/// A thread that finds the lock of a QP taken looks so many times before it sleeps.
///
/// *Not measured*: as the mutex of the standard library; the holder posts or receives a message in less time.
pub(crate) const LOCK_SPINS: u32 = 100;

/// Up to so many QPs of a CQ are polled one by one, without a call of epoll.
///
/// tune: `--op send --mode rate --size 8 --poll --crc on --conns 4`
/// *Not measured*: a poll of a QP without octets is one `recv`, as long as the `epoll_wait` that it saves; with more
/// QPs, most of which have no octets, one `epoll_wait` for all is cheaper.
pub(crate) const DIRECT_QPS: usize = 4;

/// After so many such polls the other QPs of the RNIC are served, too, if they had no work lately.
///
/// tune: `--op send --mode lat --size 8 --poll --crc on`
/// *Measured*: 8: 1.00, 2048: 1.00.
pub(crate) const SERVE_ALL_EVERY: u32 = 128;

/// So many polls serve the one that had work, each time after it: for longer than a near peer takes to follow up.
///
/// *Measured* with `ib_read_lat -R`, whose server polls another CQ (`benches/perftest --only "read lat"`), as ratio to
/// `warpline perf local`: 0: 5.3; from every poll to every 128th in seven steps: 1.22; 1024: 1.06 by `epoll_wait`, 0.98
/// by reading its socket directly.
pub(crate) const EAGER_POLLS: u32 = 1024;

/// One in so many of these polls serves the QPs of the polled CQ, and all others: a system call for each.
///
/// *Measured* like [`EAGER_POLLS`], on a busy machine: 1: 1.08; 2, 4 and 8: 1.03 to 1.05.
pub(crate) const OWN_EVERY: u32 = 4;

/// A consumer of many QPs that always finds completions flushes what is deferred all the same, every
/// so many polls: else a QP that is given new work at each of its completions keeps others from transmitting.
///
/// tune: `--op send --mode rate --size 8 --poll --crc on --conns 8`
/// *Measured*: 4: 0.86 to 1.05, 200: 0.97 to 1.23; chosen for fairness: at every 32nd poll the slowest of
/// 100 connections had 0.77 to 0.81 of the mean, at every 24th 0.91 (docs/findings.md).
pub(crate) const FLUSH_EVERY: u32 = 24;

/// So many empty polls without an arm between them end the event mode of a CQ.
///
/// tune: `--op send --mode lat --size 8 --wait fd --crc on`
/// *Measured*: 1: 0.88, 256: 1.00.
pub(crate) const EVENT_MODE_POLLS: u32 = 16;

/// A poller that finds another thread inside a QP yields its processor every so many times.
///
/// tune: `--op read --mode bw --size 1m --poll --crc on`
/// *Measured*: see docs/findings.md; never yielding, 4.7 to 9.3 GB/s from round to round where it is 9.1 to 9.5.
pub(crate) const SHUT_OUTS_PER_YIELD: u32 = 16;

/// How often the spin of a waiting thread begins anew because a QP received, before the thread sleeps at
/// last: a signal ends a sleep and no spin.
///
/// tune: `--op read --mode lat --size 8 --wait --crc on`
/// *Measured*: 0: 0.94.
pub(crate) const RENEWALS: u32 = 64;

/// Events taken per `epoll_wait`.
///
/// tune: `--op send --mode rate --size 8 --poll --crc on --conns 100`
/// *Not measured*: each event costs work on its socket that is far longer than its share of the call; the array of 64 is
/// 768 octets of stack.
pub(crate) const EVENTS: usize = 64;

/// Deadlines nearer than this are exact; others are shared, at most an eighth of the wait later.
///
/// *Not measured*: the exact ones are those of coalescing and of back-offs, which are shorter; probes and time-outs
/// are longer, and those of many idle connections then wake the engine once.
pub(crate) const EXACT_TIMER_NS: u64 = 1 << 20;

/// Cancelled deadlines that may stay in the heap, whatever their share of it.
///
/// *Not measured*: 64 entries of 32 octets; below that, rebuilding the heap for half of them saves nothing.
pub(crate) const KEPT_CANCELLED: usize = 64;

// Coalescing.

/// Octets of payload that are worth a system call of their own: with so many deferred, a post transmits.
///
/// tune: `--op write --mode bw --size 64k --poll --crc off`
/// *Measured*: 65536: 0.82, 8388608: 1.00.
pub(crate) const FULL_OCTETS: u64 = 1 << 20;

/// Longest that a post is deferred, in nanoseconds.
///
/// tune: `--op send --mode rate --size 8 --poll --crc on`
/// *Measured*: 5000: 0.74, 200000: 1.03, for eight times the delay of a post that nothing follows.
pub(crate) const BOUND_NS: u64 = 25_000;

/// Longest time between two checks of the engine of a QP whose consumer has repeatedly polled in time.
///
/// tune: `--op send --mode rate --size 8 --poll --crc on`
/// *Measured*: 50000: 0.52, 20000000: 1.06, for a flush that may be twenty times as late.
pub(crate) const LAZY_NS: u64 = 1_000_000;

// Transmit.

/// Octets of a batch: then they are written to the socket. The end of each batch is a packet of its own,
/// mostly a small one. 16 KiB are for headers: messages that fill a MiB are in it to their ends.
///
/// tune: `--op write --mode bw --size 64k --poll --crc off`
/// *Measured*: 147456: 0.86, 4210688: 1.02, for four times the memory.
pub(crate) const BATCH_OCTETS: usize = (1 << 20) + (16 << 10);

/// Of those, octets that are copied: what fits into a core's second-level cache. Headers
/// count, so that a batch ends with a whole message.
///
/// tune: `--op write --mode bw --size 64k --poll --crc on`
/// *Measured*: 65536: 0.80 to 0.84, 1048576: 0.98 to 1.03, for four times the memory.
pub(crate) const ARENA_OCTETS: usize = 256 << 10;

/// FPDUs in a batch.
///
/// tune: `--op send --mode rate --size 8 --poll --crc on`
/// *Measured*: 32: 0.87, 2048: 1.00.
pub(crate) const BATCH_FPDUS: usize = 512;

/// From so many octets on a payload is sent without a copy, if there is no CRC.
///
/// tune: `--op write --mode bw --size 16k --poll --crc off`
/// *Measured*: 2048: 1.00, 32768: 0.87.
pub(crate) const GATHER_MIN: u32 = 4 << 10;
// So that it is in registered memory, and not inline.
const _: () = assert!(GATHER_MIN > limits::MAX_INLINE);

/// Octets that a QP sends before others get their turn.
///
/// tune: `--op write --mode bw --size 1m --poll --crc off --conns 8`
/// *Not measured by itself*: one batch, whose size was measured (`BATCH_OCTETS`): less would split a batch, more would
/// let the others wait for several.
pub(crate) const SEND_BUDGET: usize = BATCH_OCTETS;

/// After so many octets sent in one go, the socket is read again: more may have arrived meanwhile.
///
/// tune: `--op send --mode bw --size 64k --poll --crc on`
/// *Measured*: 4096: 1.02, never: 0.98; where a connection has just begun, never: 0.93 (docs/findings.md).
pub(crate) const LONG_SEND: usize = 64 << 10;

/// Buffers of each size that a thread keeps.
///
/// *Not measured*: a thread serves one QP at a time; the others are for QPs whose FPDUs are not whole yet.
pub(crate) const KEPT_BUFFERS: usize = 4;

// Receive.

/// Octets of one read from the socket: as many as still stay in the cache.
///
/// tune: `--op write --mode bw --size 4k --poll --crc on`
/// *Measured*: 65536: 1.00, 1048576: 1.00.
pub(crate) const STAGING: usize = 256 << 10;

/// Octets read for one QP before others get their turn.
///
/// tune: `--op write --mode bw --size 1m --poll --crc on`
/// *Measured*: 65536: 0.99, 16777216: 1.04 for one connection; bounds what the others wait.
pub(crate) const RECEIVE_BUDGET: usize = 1 << 20;

/// Octets of a payload that are worth a system call of their own, straight into registered memory.
///
/// tune: `--op write --mode bw --size 64k --poll --crc on`
/// *Measured*: 4096: 0.99, 262144 (never): 1.03 with CRC; without CRC and never, each octet is copied once more.
pub(crate) const PLACE_MIN: u32 = 32 << 10;

/// Reads in a row without a large payload after which none is expected.
///
/// tune: `--op write --mode bw --size 64k --poll --crc on`
/// *Measured*: 1: 0.98, 8: 1.00.
pub(crate) const PLACE_READS: u8 = 2;

/// Pauses, of some 20 ns each, between two reads of a socket that must bring the rest of a payload.
///
/// tune: `--op write --mode bw --size 64k --poll --crc off`
/// *Measured*: 0: 0.99 here, 0.91 on an AMD EPYC (docs/findings.md); 512: 0.99.
pub(crate) const PAUSES: u32 = 64;

// Streams that their QPs have left.

/// Zero-length kicks at most; each waits twice as long as the one before.
///
/// *Not measured*: from 20 ms, eight of them take five seconds in all; a peer that is alive responds long before.
pub(crate) const KICKS: u32 = 8;

/// How often the time between two probes doubles while only receives wait for the peer.
///
/// *Not measured*: ten thousand idle connections then send 60 probes a second, not a thousand.
pub(crate) const PROBE_DOUBLINGS: u32 = 4;

/// Streams that may linger without their QPs.
///
/// *Not measured*: a bound, so that peers that never close hold few descriptors.
pub(crate) const LINGERING: usize = 256;

/// Reads before other QPs are served.
///
/// *Not measured*: what arrives there is dropped.
pub(crate) const LINGER_READS: u32 = 4;

/// Time between two checks whether everything has arrived: at first, doubling.
///
/// *Not measured*: a few round trips of a near peer. The check is a system call that only such streams make.
pub(crate) const LINGER_CHECK_NS: u64 = 500_000;

/// The same at most.
///
/// *Not measured*: 20 checks a second; the descriptor is held this much too long.
pub(crate) const MAX_LINGER_CHECK_NS: u64 = 50_000_000;

// Local streams.

/// Octets of ULPDU of an FPDU in shared memory: 63 KiB of payload, and its header. Both ends copy at the same time
/// however long it is, since a ring publishes parts of an FPDU.
///
/// tune: `--op write --mode bw --size 1m --poll --crc off --local on`
/// *Measured*: 32832: 0.95; with CRC 0.89 to 0.96, half a round trip of 48 KiB 0.91, of 64 KiB 1.01.
pub(crate) const LOCAL_ULPDU: u16 = (63 << 10) + 64;

/// As [`PLACE_MIN`], where a read costs no system call.
///
/// *Not measured*: a read in pieces is then a few instructions more, which copying 2 KiB twice exceeds.
pub(crate) const LOCAL_PLACE_MIN: u32 = 2 << 10;

/// Octets read after a large payload, where a read costs no system call: a header.
///
/// *Not measured*: the longest header of a next FPDU fits; octets of its payload would be copied twice.
pub(crate) const LOCAL_SIDE: usize = 128;

// CRC32c.

/// Runs of each candidate when the fastest kernel is chosen, once per process.
///
/// *Not measured*: the first few bring wide vectors up to speed; the best counts. All of it takes some 100 us.
pub(crate) const CRC_TRIALS: usize = 10;

/// Octets of such a run: they fit into the first-level cache.
///
/// *Not measured*: a quarter of a large FPDU, so that what happens once per call hardly counts.
pub(crate) const CRC_TRIAL_OCTETS: usize = 16 << 10;

/// Below so many octets, to copy first and sum then is as fast as both at once.
///
/// tune: `--op write --mode bw --size 4k --poll --crc on`
/// *Measured*: 128: 1.00, 16384: 1.00; of 64 KiB, never: 0.92 (docs/findings.md).
pub(crate) const COPIER_MIN: usize = 1024;

/// Shorter pieces are faster without folding.
///
/// tune: `--op write --mode bw --size 1k --poll --crc on`
/// *Measured*: 64: 0.99, 2048: 0.83.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) const FOLD_MIN: usize = 256;

/// To join the sums of runs takes as long as they save in shorter pieces.
///
/// tune: `--op write --mode bw --size 64k --poll --crc on`
/// *Measured*: 1024: 1.05, never: 1.04, within the noise of bandwidths; the kernel by itself: docs/findings.md.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) const MIX_MIN: usize = 6 << 10;

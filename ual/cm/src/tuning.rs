//! Tuning constants of this crate: pauses, intervals of checks, and batches. None of them is in the data path.
//! Each has the measurement that chose it and the command that repeats it, or the reason for its value where
//! there was none. Time-outs are in ARCHITECTURE.md; bounds on what peers use up are beside what they bound.

use std::time::Duration;

/// How long the connection thread leaves the sockets to callers that served them.
///
/// *Not measured by itself*: the longest back-off of the provider's engine (`BACK_OFF_NS` of SoftRDMA), for which
/// ten times more made no difference. A command, or a caller that sleeps, ends it at once.
pub(crate) const BACK_OFF: Duration = Duration::from_millis(1);

/// How long a listener, or the connection thread, pauses when the process is out of descriptors or memory.
///
/// *Not measured*: ten retries a second cost no processor time to speak of, and a peer that waits does not
/// notice a tenth of a second.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// How long a refused connection waits for its next try.
///
/// *Not measured*: short beside the start of a server, which is what the tries wait for.
pub(crate) const REFUSED_PAUSE: Duration = Duration::from_millis(10);

/// How long the last attempt of a provider to connect has at least for its reply.
///
/// *Not measured*: a reply takes microseconds on one host, and a round trip between hosts; a busy machine may be 100 ms late.
pub(crate) const REPLY_MARGIN: Duration = Duration::from_millis(200);

/// Connections accepted at once per socket, so that a flood does not starve others.
///
/// *Not measured*: 64 accepts take less than a millisecond, which is what others wait.
pub(crate) const ACCEPTS: usize = 64;

/// How long an end that connected at the rendezvous waits for the other's message.
///
/// *Not measured*: both ends are on this machine and respond within microseconds; a machine under load gets a
/// few time slices. Later the connection uses TCP.
pub(crate) const PATIENCE: Duration = Duration::from_millis(50);

/// The same where the policy demands a local stream, so that the connection would fail otherwise.
///
/// *Not measured*: half of the time that the initiator waits for the MPA reply.
pub(crate) const PATIENCE_REQUIRED: Duration = Duration::from_secs(5);

/// How much longer than the close time-out a reset waits for the end of the stream. A time-out of ARCHITECTURE.md.
///
/// *Not measured*: on a busy machine the provider may notice its own time-out late.
pub(crate) const RESET_MARGIN: Duration = Duration::from_secs(1);

/// How much longer than twice the provider's time-out a disconnect may take. A time-out of ARCHITECTURE.md.
///
/// *Not measured*: for the same reason.
pub(crate) const END_MARGIN: Duration = Duration::from_secs(1);

/// How often a reset checks a queue pair that ends by itself.
///
/// *Not measured*: such a wait is rare, and ends one check late at most.
pub(crate) const END_CHECK: Duration = Duration::from_millis(1);

/// How often the thread of a provider's own connection manager checks whether it must end.
///
/// *Not measured*: five wake-ups a second of an idle adapter; closing one takes no longer than this.
pub(crate) const STOP_CHECK: Duration = Duration::from_millis(200);

/// A listener that cannot accept reports it at most this often.
///
/// *Not measured*: a shortage lasts, and one line of the log in ten seconds shows it.
pub(crate) const SHORTAGE_REPORTS: Duration = Duration::from_secs(10);

/// Memory that must be available to accept a connection.
///
/// *Not measured*: more than a start-up takes (`passive.rs`: 4 KiB behind a request), and more than a block of the
/// C library's reserve, so that the check fails where the C library would use its reserve.
pub(crate) const START_UP_MEMORY: usize = 33 << 10;

/// Half-open connections that are compared when one must go: of these, one whose source has the most.
///
/// *Computed*: where one source has half of a full list, 16 draws miss it once in 65,536 times.
pub(crate) const HALF_OPEN_SAMPLE: u64 = 16;

//! Tuning constants of the RoCE provider, each with its reason.

use std::time::Duration;

use roce_proto::rc::Mtu;

/// Packets of a connection that may be outstanding, of this path MTU: as many as take half of a peer's receive buffer,
/// which is twice [`RECEIVE_BUFFER`] (socket(7), `SO_RCVBUF`). Measured by `SO_MEMINFO`: a packet that arrives with
/// others of its message takes its octets and some 100 more; one that arrives alone, twice its octets, which the core
/// counts as two.
pub(crate) const fn window(mtu: Mtu) -> u16 {
    (RECEIVE_BUFFER / (mtu.octets() as usize + 128)) as u16
}

/// Octets asked for as the receive buffer of a socket: the limit of stock systems (net.core.rmem_max).
pub(crate) const RECEIVE_BUFFER: usize = 212_992;

/// So many empty polls without an arm between them end the event mode of a CQ. As SoftRDMA's.
pub(crate) const EVENT_MODE_POLLS: u32 = 16;

/// So many polls during a sleep of the engine's thread mean that threads poll all the time, although one waits for
/// events: before each wait it polls a few times.
pub(crate) const ATTENDED_POLLS: u32 = 8;

/// After so many polls that could not receive, the thread that does mostly waits for a processor: some microseconds.
pub(crate) const REFUSALS: u32 = 64;

/// Packets that wake the engine's thread between two trials whether threads that poll receive, at most. A trial that
/// fails delays a packet by [`FIRST_BACK_OFF`].
pub(crate) const MOST_BETWEEN_TRIALS: u32 = 1024;

/// For how long the engine's thread leaves the sockets to threads that poll, at first and at most: what a program
/// waits at most that stops polling and reads its memory. Measured with `ib_send_bw -x 0 -s 8`, which shares a processor
/// with that thread: 200 us, 1.23 to 1.54 million/s; 500 us, 1.75 and 1.78; 1 ms, 1.84 and 1.85.
pub(crate) const FIRST_BACK_OFF: Duration = Duration::from_micros(50);
pub(crate) const BACK_OFF: Duration = Duration::from_micros(500);

/// For how long the engine's thread looks for more packets after some arrived, before it sleeps: a window takes some
/// 50 us, and waking a thread 25. Measured with `ib_write_bw -x 0 -s 4096`, whose server sleeps: 1.2 to 1.3 times the
/// bandwidth without.
pub(crate) const SPIN: Duration = Duration::from_micros(50);

/// Neighbours are served after so many spins that found packets.
pub(crate) const ROUNDS: u32 = 64;

/// Microseconds after an acknowledgement within which a consumer that replies to messages has posted: the next
/// acknowledgement waits for its request.
pub(crate) const FOLLOWS_US: u64 = 20;

/// How long the engine's thread sleeps at most while acknowledgements or posts are kept.
pub(crate) const KEEP: Duration = Duration::from_micros(50);

/// Posts that wait for others leave when they are half of those that the connection may have, within these bounds, or
/// have so many octets of payload: enough to share the cost of a system call, and few enough that the peer has work
/// meanwhile. Measured by `perf local --op send --mode rate --poll` against 64 posts: of 64 outstanding, 32 posts 1.13
/// times the rate and 16 0.88; of 128, 32 posts 0.90; of 16, 8 posts 0.95. So many octets fill a call.
pub(crate) const LEAST_BATCH: u32 = 32;
pub(crate) const BATCH_POSTS: u32 = 64;
pub(crate) const BATCH_OCTETS: u64 = 60 << 10;

/// So many posts leave at once after some that the engine's thread had to send.
pub(crate) const EAGER_POSTS: u32 = 32;

/// Microseconds after which an unreliable connection looks again whether the peer's receive buffer has room.
pub(crate) const PAUSE_FULL_US: u64 = 50;

/// So many packets of an unreliable connection leave before it looks: 64 KiB, where half of the receive buffer is free.
pub(crate) const UNPACED: u32 = 16;

/// Octets received from one socket before acknowledgements leave: a sender that waits until its peer has read all that
/// it sent stands still meanwhile.
pub(crate) const RECEIVE_OCTETS: usize = 32 << 10;

/// Packets received from one socket before that, and before other sockets and timers are served. Measured by `perf local
/// --op send --mode rate --poll`, whose sender posts 32 at a time: 1.08 times the rate of 64 calls.
pub(crate) const RECEIVE_PACKETS: usize = 16;

/// Largest path MTU: that of InfiniBand.
pub(crate) const MTU: Mtu = Mtu::Octets4096;

/// Code of the time after which unacknowledged packets are repeated: 268 ms. A NAK of the peer reports a loss,
/// unless the last packet is lost. With all repetitions a process may be descheduled for two seconds. With 67 ms a
/// connection once ended on a machine that was busy with builds.
pub(crate) const ACK_TIMEOUT: u8 = 16;

/// Code of the shortest such time that programs get, on connections whose acknowledgements come within a quarter of it:
/// 17 ms, some turns of the scheduler on a busy machine. Time-outs count as [`ACK_TIMEOUT`] all the same.
pub(crate) const LEAST_ACK_TIMEOUT: u8 = 12;

/// Repetitions without progress before a request fails.
pub(crate) const RETRIES: u8 = 7;

/// Code of the time after which a peer repeats a Send that found no receive: 0.64 ms.
pub(crate) const RNR_TIMER: u8 = 12;

/// Repetitions of such a Send that this end asks its peer for, unless set: unlimited.
pub(crate) const RNR_RETRIES: u8 = 7;

/// Seconds for which this end repeats such a Send, unless set: as long as connection management waits for an
/// application.
pub(crate) const RNR_SECONDS: u16 = 60;

/// Microseconds without a packet of the peer after which this end probes it.
pub(crate) const PROBE_AFTER_US: u64 = 10_000_000;

/// Code of the time within which a peer must reply to a message of the connection manager: 67 ms. This end waits
/// twice that.
pub(crate) const CM_RESPONSE: u8 = 14;

/// Repetitions of such a message: some two seconds in all.
pub(crate) const CM_RETRIES: u8 = 15;

/// Code of the time for which a connecting peer must wait for the application here: 69 s, more than connection
/// management would otherwise allow.
pub(crate) const CM_DECISION: u8 = 24;

/// Code of half the time after which a request to a datagram service is repeated, 0.54 s, and how often. In all some
/// nine seconds: the service's application must reply within that time.
pub(crate) const SIDR_RESPONSE: u8 = 16;
pub(crate) const SIDR_RETRIES: u8 = 15;

/// Replies of datagram services that are kept, to be sent again if a request is repeated.
pub(crate) const MAX_REPLIES: usize = 256;

/// Maximum number of undecided requests of one listener.
pub(crate) const MAX_BACKLOG: usize = 256;

//! Tuning constants of this crate: what is copied while posting, how often a request is signalled, and how memory is
//! allocated. Each has the measurement that chose it and the command that repeats it, or the reason for its value
//! where there was none. `cargo run --release -p warpline-benches --bin channel` compares a channel with the same
//! written on IT-API; its table is in docs/findings.md.

use std::time::Duration;

/// One request in this many is signalled.
///
/// *Not measured by itself*: an unsignalled Send saves its completion at both layers, some 500 instructions ("dequeue
/// from an EVD" of `--bin instructions`); of one in 32 that is 16 a message, and twice as many requests would hold their
/// memory twice as long to save 8 of them.
pub(crate) const SIGNAL_EVERY: u32 = 32;

/// A request is signalled, too, once the buffers since the last one have as many octets: the sender writes its messages
/// into few buffers then, which its processor's cache holds.
///
/// *Measured* with `--bin channel --octets 65536`, as ratio to the direct program: half a round trip 0.95 instead of 0.81.
pub(crate) const SIGNAL_OCTETS: usize = 128 << 10;

/// Octets that are copied while posting, header included, if the device can.
///
/// *Not measured by itself*: SoftRDMA copies payloads of this size in any case, and an inline request needs no buffer
/// until it completes. Each slot of the send queue has room for as many octets: 8 KiB for 32.
pub(crate) const INLINE: u32 = 256;

/// Messages up to this length, header included, use a shorter array on the stack: clearing 256 octets for each costs
/// more than copying most of them.
///
/// *Not measured by itself*: 64 octets of payload and the header, the size of the first row of `--bin channel`.
pub(crate) const SHORT: usize = 72;

/// Octets of the messages that a peer on the same machine is granted at once: receives are used in turn, and a processor's
/// cache should hold them. 128 messages of 16 KiB, 32 of 64 KiB; a quarter less with longer receives, 6 of 256 KiB.
///
/// *Measured* with `--bin channel`, as ratio to the direct program, one way, for 0.5, 1, 1.5, 2, 3 MiB (8 runs): 16 KiB 0.86, 0.90,
/// 0.94, 1.00, 1.04; 64 KiB 0.85, -, 0.93, 0.94, 0.93; 256 KiB -, 0.93, 0.95, 0.93, 0.84.
pub(crate) const LOCAL_SPAN: u32 = 2 << 20;

/// That divided by this, while each message is replied to before the next arrives: no more are under way then.
///
/// *Measured* with `--bin channel`, half a round trip, for spans of 0.25, 0.5, 1, 1.5, 2 MiB (8 runs): 16 KiB 1.01, 0.93, 0.95, 0.88,
/// 0.87. Longer messages are about 1 with each.
pub(crate) const ALTERNATING: u64 = 4;

/// Octets of a message that the receives have room for while many long ones come from a peer on the same machine: such a
/// message is sent in one Send then, as a small one. A power of two.
///
/// *Measured* with `--bin channel --octets N`, as ratio to the direct program, one way: 100,000 octets 1.03 instead of 0.79,
/// 200,000 0.97 instead of 0.91, 256 KiB 0.95 instead of 0.87. From 512 KiB on both are above 1. At a receiver of 2,000 messages
/// of 256 KiB 16 MiB were resident, as with messages of 64 KiB.
pub(crate) const LONG: u32 = 256 << 10;

/// Most buffers for long messages that leave. If an application keeps so many, the peer reads further messages.
///
/// *Not measured*: a peer grants 32 messages of 64 KiB. Those that were used last are used again.
pub(crate) const LONG_DRAFTS: usize = 32;

/// Buffers for small messages that are allocated at once.
///
/// *Not measured*: a registration each time would cost microseconds (`warpline perf costs`); a channel that sends one
/// message keeps seven buffers for nothing.
pub(crate) const DRAFTS: usize = 8;

/// Octets of a write that become one message; a longer one is sent in pieces, which are under way while the next is
/// written.
///
/// *Not measured by itself*: from 64 KiB on a channel reaches 0.97 to 1.28 of the direct program's rate, at 16 KiB 0.83.
pub(crate) const PIECE: usize = 64 << 10;

/// How often a waiting thread checks connections that may have ended without flushing a request: their peers have used
/// up every receive, against the protocol.
///
/// *Not measured*: a wake-up a second of a thread that waits; such an end is noticed this much later.
pub(crate) const END_CHECK: Duration = Duration::from_secs(1);

/// Pauses between the attempts to resume a session by all of its ways: the first, after which each is twice as long, and the
/// longest.
///
/// *Not measured*: a connection that was reset is back after the first; a peer's machine that starts is not asked often.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(2);
/// See [`FIRST_PAUSE`].
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Longest attempt by one way: then the next is tried.
///
/// *Not measured*: one lost SYN is repeated after a second.
pub(crate) const ATTEMPT: Duration = Duration::from_secs(3);

/// How long the peer's device may take to show that a connection lives, when there is a request for another.
///
/// *Not measured*: a few round trips on any path.
pub(crate) const ANSWER: Duration = Duration::from_secs(1);

/// Within this time a lost connection reports its end: the close time-out of its policy, and more.
///
/// *Not measured*: only a provider that fails takes longer.
pub(crate) const SETTLE: Duration = Duration::from_secs(30);

/// How long the device of a session may refuse memory before that is an error: one that is being removed refuses it before its
/// connections end.
///
/// *Not measured*: the kernel destroys thousands of objects in this time.
pub(crate) const REMOVAL: Duration = Duration::from_secs(2);

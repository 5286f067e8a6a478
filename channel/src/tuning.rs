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
/// cache should hold them. 96 messages of 16 KiB, 24 of 64 KiB.
///
/// *Measured* with `--bin channel`, as ratio to the direct program: half a round trip of 64 KiB 0.68 with 128 messages and
/// 0.88 with 16, of 16 KiB 0.80 with 128 and 0.92 with 64; one way 16 KiB 1.04 with 128 and 0.90 with 64, 64 KiB 0.63 with 4.
pub(crate) const LOCAL_SPAN: u32 = 3 << 19;

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

//! SoftRDMA: a verbs provider that speaks iWARP over ordinary TCP sockets, in user space.
//!
//! | folder | what |
//! |---|---|
//! | `provider`, `rnic`, `objects`, `parts`, `events`, `limits` | the adapter: privileged verbs, tables of its objects |
//! | `ports` | network interfaces as ports, and events about them |
//! | `memory` | regions, windows, STags: [`stag_table`], [`place`] |
//! | `queue` | completion queues ([`cq_ring`]), work queues, shared receive queues |
//! | `qp` | a queue pair: the protocol core with its lock, its host, its verbs |
//! | `stream` | the socket under a QP: batches, buffers, CRC, what outlives the QP |
//! | `engine` | progress: who serves which socket when, and the timers |
//! | `tuning` | tuning constants, each with the measurement that chose it |
//!
//! The protocol itself is the crate `iwarp-proto`; this crate gives it sockets, memory and threads.
//!
//! # How it works
//!
//! **Locks.** A QP's state is behind one lock of its own (`combining`: a thread that finds it
//! taken sets a flag, and the holder does what was wanted). Between QPs nothing is shared on the data path but two
//! lock-free structures: the CQ ring and the STag table.
//!
//! **STag table.** Segments of slots; a slot holds its STag and a use count in one word, and its
//! grant is immutable while valid. A lookup takes no lock; deregistration makes the slot invalid
//! and waits, bounded, until nobody uses it. All 24 bits of an index are random, whichever slot has
//! it: some say which slot, and the rest must be what the slot knows. Key octets are random, too,
//! and others at each use. Every segment is checked; who checks one after the other keeps its count
//! for as long as one call into the core lasts, and looks whether the STag is still valid: a
//! revocation that has begun is seen by the next segment.
//!
//! **CRC32c** is summed by the fastest kernel of the processor, chosen once by what each measures
//! and tested before it is trusted (`crc`): from 256 octets on folding by carry-less
//! multiplication, 512 or 256 bits at a time; from 6 KiB on also folding of 256 bits with the crc32
//! instruction beside it, for processors that multiply 512 bits in two halves; below that the
//! processor's own instruction; elsewhere the crate `crc32c`, which is also the oracle of the
//! tests. `warpline devices` names the kernel and its rate. A received FPDU is summed where `recv`
//! has just put it, in the cache, before anything of it is placed.
//!
//! **Memory.** Registered memory is never a Rust reference. `place` copies with raw pointers;
//! kernel reads and writes go through `stream.rs` with pointers that a held `Use` keeps alive. A
//! `MemRange` with an owner keeps the memory alive while any region covers it, so safe Rust cannot
//! free what a peer may still write.
//!
//! **Transmit.** A post transmits in the caller's context. FPDUs are gathered into a batch: with
//! CRC on copied into a pooled buffer and summed on the way, each octet read once (never over live
//! memory: an application or a peer may be writing it); with CRC off large payloads go out from
//! where they are. One `sendmsg` takes the batch. Sends and RDMA Writes of one segment, up to 4
//! KiB, the core writes there itself, many at once (`fast_tx`).
//!
//! **Coalescing.** A post on an idle connection transmits at once. One that follows another stays in
//! the core's send queue until the consumer polls in vain, waits or arms, the queue
//! or a MiB are full, or 25 us have passed (`coalesce`). The next post notices the
//! time; for a consumer that posts and never polls a timer of the engine does, after 25 us, and
//! after ever more, up to a millisecond, while the consumer polls in time. One operation at a
//! time never waits: a completion that was polled, or a poll in vain, says that nothing is to be
//! expected. A consumer of more than four QPs that always finds completions transmits at every
//! 24th poll, so that none of them transmits at the cost of the others. Lists, and requests that
//! say that more follows (`IT_COALESCE_WR_FLAG`), are one transmission. Local operations, closing
//! and destroying never wait.
//!
//! **Receive.** One large `recv` into a pooled buffer that the thread lends; the head of an
//! incomplete FPDU is all that a QP keeps. An idle QP holds no staging buffer. While payloads are
//! large (32 KiB; neither CRC nor markers), each goes from the socket to its place, and behind it
//! only 2 KiB are read: the end of its FPDU, what is small behind it, and the next header. Small
//! FPDUs are taken as many as there are, and copied. Sends and RDMA Writes of one segment take a
//! fast path (`fast_rx`): two octets of the header say what they are; what does not pass takes the
//! slow path, which knows the error.
//!
//! **An idle connection** costs 3.6 to 5 KB of the process's memory with queues of 4 and 4, from
//! the endpoint down (`warpline perf scale`). A buffer that the application registers alone costs
//! it a page more; `Pz::buffers` cuts many from one.
//!
//! **Progress** is leader and followers. A thread that polls a CQ serves the sockets itself,
//! directly when the CQ has few QPs, else through `epoll`. Of the threads that wait, one, the
//! leader, sleeps in `epoll_wait`; followers sleep on futexes and inherit the lead. A signal
//! handler ends the wait of its thread. The engine's thread watches only when no application thread
//! is inside; while applications poll it backs off, 50 us at first and up to a millisecond while they go
//! on, about half as long as they stay away from one poll to the next, and never fights them for a
//! socket, nor waits for a QP that a thread is inside. A QP that is polled without pause takes its
//! socket out of the epoll set (`unregistered`): each packet would call the set's callback, in the peer's
//! send, for nothing. The engine registers it again when a back-off ends without a poll, and a thread that
//! sleeps or arms does at once; a stream whose socket cannot be registered again ends. The hand-overs are model-checked
//! with loom.
//!
//! **Receives that come late.** A QP can be made so that a Send without a receive does not end its stream
//! (`qp/hold`): the core keeps it aside, with those behind it, and the rest of the stream goes on.
//!
//! **Turns.** A visit to a QP receives a MiB at most, and sends a batch of a MiB at most, or some
//! more where the socket takes it in parts. A QP that has more to do then is reported to `epoll`
//! anew, behind the others that are ready, and what other threads wanted meanwhile goes with
//! that report; else each request would be one more turn, and a thread could stay with one connection
//! for as long as its peer sends. Posts have the same turn; verbs that end a stream have none.
//!
//! **Ports** are watched through route netlink: one that becomes usable, stops being it, or has
//! other addresses is an asynchronous event.
//!
//! **Time** (close, zero-length kick, probe) is a heap of deadlines and a timerfd; the core itself has no
//! clock. A deadline may be late by an eighth of its wait, so that those of many connections wake
//! the engine once. A connection without posted work has none; one where nothing but receives waits
//! asks its peer more and more seldom. A QP has at most one deadline of each kind, which ends with
//! the stream that it was set for.
//!
//! **Destroying** a QP closes its stream, and takes nothing back that completed: the socket lingers
//! with the engine, bounded by the close time-out, until the peer's FIN; of more than 256 per RNIC
//! the oldest ends. If work is lost by it, or by a close in the middle of work, it lingers until
//! the peer's TCP has what ours had taken, and is reset behind that. Modify QP to Error is the one
//! end that resets at once.
//!
//! Its completions leave its CQs (`removal`): what other QPs have among them goes, with its place,
//! to a list beside the ring, which poppers take first, under a lock, until it is empty. So the
//! ring has no holes, slots of other QPs stay occupied as long as before, and who polls where
//! nothing was destroyed pays 5 instructions.

mod engine;
mod events;
mod fork;
mod limits;
mod memory;
mod objects;
mod parts;
mod ports;
mod provider;
mod qp;
mod queue;
mod rnic;
mod stream;
#[cfg(all(test, not(loom)))]
mod testing;
mod tuning;

#[cfg(feature = "bench")]
pub mod bench;

use kal_os::sync;
pub use memory::{place, stag_table};
pub use provider::{NAME, SoftRdma};
pub use queue::cq_ring;

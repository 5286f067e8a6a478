//! SoftRDMA: a verbs provider that speaks iWARP over ordinary TCP sockets, in user space.
//!
//! | folder | what |
//! |---|---|
//! | `provider`, `rnic`, `parts`, `limits` | the adapter: privileged verbs |
//! | `ports` | network interfaces as ports, and events about them |
//! | `queue` | completion queues: waiting, arming, progress |
//! | `qp` | a queue pair: the protocol core with its lock, its host, its verbs |
//! | `stream` | the socket under a QP: batches, buffers, CRC, what outlives the QP |
//! | `engine` | progress: which thread serves which socket when, and the timers |
//! | `tuning` | tuning constants, each with the measurement that chose it |
//!
//! The protocol itself is the crate `iwarp-proto`. Registered memory, the rings of queues and the tables of objects
//! are the crate `vp-soft`. This crate gives the protocol sockets and threads.
//!
//! # How it works
//!
//! **Locks.** A QP's state is under one lock of its own (`combining`: a thread that finds it taken sets
//! a flag, and the holder does the work). Between QPs nothing is shared on the data path but two
//! lock-free structures: the CQ ring and the STag table. A thread that checks one segment after the other keeps
//! its use of an STag for the duration of one call into the core, and checks each time that the STag is still
//! valid: the next segment sees a revocation that has begun.
//!
//! **CRC32c** is computed by the processor's fastest kernel, chosen once by measuring and tested before
//! it is trusted (`crc`): from 256 octets on folding by carry-less multiplication, 512 or 256 bits at a
//! time; from 6 KiB on also folding of 256 bits in parallel with the crc32 instruction, for processors
//! that execute 512-bit multiplications in two halves; below 256 octets the processor's crc32
//! instruction; elsewhere the crate `crc32c`, which is also the oracle of the tests. `warpline devices`
//! shows the kernel and its rate. The CRC of a received FPDU is checked where `recv` has just put it, in
//! the cache, before any of it is placed.
//!
//! **Memory.** Kernel reads and writes go through `stream` with pointers that a held `Use` keeps alive
//! (`stream/registered`).
//!
//! **Transmit.** A post transmits in the caller's context. FPDUs are gathered into a batch. With CRC on,
//! payloads are copied into a pooled buffer and summed during the copy, so each octet is read once
//! (never over live memory: an application or a peer may be writing it). With CRC off, large payloads
//! are sent from where they are. One `sendmsg` takes the batch. Sends and RDMA Writes of one segment, up
//! to 4 KiB, are written there by the core itself, many at once (`fast_tx`).
//!
//! **Coalescing.** A post on an idle connection transmits at once. One that follows another stays in the core's
//! send queue until the consumer finds its CQ empty, waits or arms, until the queue or a MiB are full, or until
//! 25 us have passed (`coalesce`). The next post notices the time. For a consumer that posts and never polls a
//! timer of the engine does, after 25 us; while the consumer polls in time the timer's interval grows, to a
//! millisecond. One operation at a time never waits: a completion that was polled, or an empty poll, shows that
//! no other post is to be expected. A consumer of more than four QPs that always finds completions transmits at
//! every 24th poll, so that no QP is kept from transmitting by the others. A list, and requests that announce
//! more (`IT_COALESCE_WR_FLAG`), are one transmission. Local operations, closing and destroying never wait.
//!
//! **Receive.** One large `recv` into a pooled buffer of the thread; a QP keeps only the head of an
//! incomplete FPDU, and an idle QP holds no staging buffer. While payloads are large (32 KiB; neither
//! CRC nor markers), each is read from the socket straight to its place, and only 2 KiB are read after
//! it: the end of its FPDU, small FPDUs that follow, and the next header. Small FPDUs are read together,
//! as many as have arrived, and copied. Sends and RDMA Writes of one segment take a fast path
//! (`fast_rx`): two octets of the header identify them; any other FPDU takes the slow path, which also
//! determines the error.
//!
//! **An idle connection** costs 3.6 to 5 KB of the process's memory with queues of 4 and 4, from the
//! endpoint down (`warpline perf scale`). Registering a buffer of its own costs the application a page
//! more; `Pz::buffers` divides one region into many.
//!
//! **Progress** is leader and followers. A thread that polls a CQ serves the sockets itself, directly
//! when the CQ has few QPs, else through `epoll`. The first receive that completes then goes to that thread
//! without being queued, unless another completion is before it or a consumer waits for a notification
//! (`Direct`). Of the threads that wait, one, the leader, sleeps in
//! `epoll_wait`; followers sleep on futexes and inherit the lead. A signal handler ends the wait of its
//! thread. The engine's thread watches only while no application thread does. While applications poll it
//! backs off, for 50 us at first and up to a millisecond, about half of the time between two polls; it
//! never competes for a socket and never waits for a QP's lock. A QP that is polled without pause
//! removes its socket from the epoll set (`unregistered`), because each packet would call the set's
//! callback in the peer's send for nothing. The engine registers it again when a back-off ends without a
//! poll; a thread that sleeps or arms registers it at once; a stream whose socket cannot be registered
//! again ends. The hand-overs are model-checked with loom.
//!
//! **Receives posted late.** A QP can be created so that a Send without a receive does not end its
//! stream (`qp/hold`): the core buffers the Send and those after it, and the rest of the stream goes
//! on.
//!
//! **Budgets.** One visit to a QP receives at most a MiB and sends at most a batch of a MiB, or somewhat
//! more where the socket takes it in parts. A QP that has more to do is then reported to `epoll` anew,
//! after the others that are ready, and requests that other threads have flagged by then are handled
//! with that report. Otherwise each request would be one more visit, and a thread could stay with one
//! connection for as long as its peer sends. Posts have the same budget; verbs that end a stream have
//! none.
//!
//! **Ports** are watched through route netlink: a port that becomes usable, ceases to be, or has other
//! addresses raises an asynchronous event.
//!
//! **Time** (close, zero-length kick, probe) is a heap of deadlines and a timerfd; the core itself has
//! no clock. A deadline may be late by an eighth of its wait, so that those of many connections wake the
//! engine once. A connection without posted work has none; a connection where only receives wait probes
//! its peer at growing intervals. A QP has at most one deadline of each kind, which is cancelled when
//! the stream ends that it was set for.
//!
//! **Destroying** a QP closes its stream; requests that completed before take effect all the same. The
//! socket lingers with the engine, bounded by the close time-out, until the peer's FIN; of more than 256
//! per RNIC the oldest ends. If work is lost by it, or by a close in the middle of work, the socket
//! lingers until the peer's TCP has everything that ours had taken, and is then reset. Modify QP to
//! Error is the only end that resets at once.
//!
//! A destroyed QP's completions leave its CQs (`removal`). Completions of other QPs among them move,
//! with their places, to a list beside the ring, which poppers take first, under a lock, until it is
//! empty. So the ring has no holes, slots of other QPs stay occupied as long as before, and polling a CQ
//! where nothing was destroyed costs 5 more instructions.

mod engine;
mod fork;
mod limits;
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
pub use provider::{NAME, SoftRdma};

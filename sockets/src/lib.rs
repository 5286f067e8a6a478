//! Functions of the C library that an unmodified program calls on TCP connections: for `LD_PRELOAD`, which
//! `warpline run --sockets` sets. Octets between two such programs of one host travel by memory that both share, beside the
//! TCP connection; all others by TCP. Calls have the results and the `errno` that they have without this library. What each
//! connection has moved is written to a record, if there is one.
//!
//! | file | what |
//! |---|---|
//! | `next`, `names` | the functions behind these, and the macro that makes these |
//! | `calls` | the functions, by what they do |
//! | `table`, `connection`, `way` | which descriptors are TCP connections; what each has moved |
//! | `process` | whether this is the process that the table belongs to |
//! | `kernel` | what the kernel knows about a connection |
//! | `record`, `line`, `complaint` | the lines of the record, and that some are lost |
//! | `ring` | octets by shared memory |
//!
//! **Any thread** and any signal handler may call, also while another closes the same descriptor: all state is in atomics
//! of static memory and of mappings, nothing of the heap is allocated after the start, no lock is waited for but that of `discard`, with signals blocked. A thread may be cancelled within a call
//! (pthread_cancel(3)): frames of this library have nothing to drop while the C library's function runs.
//!
//! **A child** made by fork(2) has a copy of the table, and counts from zero. One made by vfork(2) shares its parent's
//! memory, and changes nothing in it, but that a connection which another program gets goes on by TCP.
//!
//! **What is not seen:** calls that the C library makes by itself, as for a stream made by fdopen(3), system calls without the
//! C library, io_uring, other processes with the same connection. The kernel's count shows how many octets they moved.

mod calls;
mod complaint;
mod connection;
mod discard;
mod kernel;
mod line;
mod names;
mod next;
mod process;
mod record;
mod ring;
mod table;
mod tuning;
mod way;

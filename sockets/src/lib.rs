//! Functions of the C library that an unmodified program calls on TCP connections, followed and written to a record:
//! for `LD_PRELOAD`, which `warpline run --sockets --log FILE` sets. Each call is passed on unchanged, with its result and
//! `errno`: all octets travel by TCP.
//!
//! | file | what |
//! |---|---|
//! | `next`, `names` | the functions behind these, and the macro that makes these |
//! | `calls` | the functions, by what they do |
//! | `table`, `connection` | which descriptors are TCP connections; what each has moved |
//! | `process` | whether this is the process that the table belongs to |
//! | `kernel` | what the kernel knows about a connection |
//! | `record`, `line` | the lines of the record |
//!
//! **Any thread** and any signal handler may call, also while another closes the same descriptor: all state is in atomics
//! of static memory, nothing is allocated after the start, no lock is taken. A thread may be cancelled within a call
//! (pthread_cancel(3)): frames of this library have nothing to drop while the C library's function runs.
//!
//! **A child** made by fork(2) has a copy of the table, and counts from zero. One made by vfork(2) shares its parent's
//! memory, and changes nothing in it.
//!
//! **What is not seen:** calls that the C library makes by itself, as for a stream made by fdopen(3), system calls without the
//! C library, io_uring, other processes with the same connection. The kernel's count shows how many octets they moved.

mod calls;
mod connection;
mod kernel;
mod line;
mod names;
mod next;
mod process;
mod record;
mod table;
mod tuning;

//! Test double of `libibverbs.so.1` and `librdmacm.so.1`: one shared library with the functions of both that
//! `vp-verbs` uses. Two devices, `fakeib0` (InfiniBand) and `fakeiw0` (iWARP), whose queue pairs are connected
//! within the process by copying memory.
//!
//! [`control`] injects faults: any function can fail, completions can have any status, asynchronous events can
//! occur at any time. All state is in one [`world::World`] under one lock; any thread may call.
//!
//! Every function has the C signature and contract of the real one.
#![allow(unsafe_op_in_unsafe_fn, clippy::missing_safety_doc, missing_docs)]
#![allow(clippy::not_unsafe_ptr_arg_deref)] // as above

pub mod cm;
pub mod control;
pub mod data;
pub mod datagram;
pub mod objects;
pub mod orders;
pub mod world;

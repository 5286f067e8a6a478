//! `librdmacm.so.1` with all of rdma-core's symbol versions: exports that jump into Warpline's
//! `libibverbs.so.1`, which has the state of both.

include!(concat!(env!("OUT_DIR"), "/trampolines.rs"));

//! `librdmacm.so.1` with all of rdma-core's symbol versions: exports that jump into Warpline's
//! `libibverbs.so.1`, where the state of both is.

include!(concat!(env!("OUT_DIR"), "/trampolines.rs"));

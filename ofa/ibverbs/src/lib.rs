//! `libibverbs.so.1` with all of rdma-core's symbol versions, on SoftRDMA: exports that jump into the
//! crate `ofa`, and the functions that `librdmacm.so.1` uses.

extern crate ofa;

include!(concat!(env!("OUT_DIR"), "/trampolines.rs"));

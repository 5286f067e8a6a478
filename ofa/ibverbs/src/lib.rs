//! `libibverbs.so.1` with all of rdma-core's symbol versions, on SoftRDMA: exports that jump into the crate
//! `ofa`, and what `librdmacm.so.1` has of it.

extern crate ofa;

include!(concat!(env!("OUT_DIR"), "/trampolines.rs"));

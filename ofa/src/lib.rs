//! The application interface of rdma-core, libibverbs and librdmacm, on the access layer: unmodified verbs
//! programs run on SoftRDMA.

mod start;
mod unsupported;

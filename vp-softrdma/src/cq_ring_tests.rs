//! Tests of `cq_ring`.

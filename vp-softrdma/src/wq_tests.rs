//! Tests of `wq`.

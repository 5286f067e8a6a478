//! Tests of `srq`.

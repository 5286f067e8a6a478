//! Tests of `mw`.

//! Tests of `mr`.

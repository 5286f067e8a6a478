//! Tests of `stag_table`.

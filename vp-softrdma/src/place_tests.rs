//! Tests of `place`.

//! Tests of the preloaded library: a program's calls have the results that they have without it.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod ends;
mod hostile;
mod hosts;
mod lane;
mod lost;
mod many;
mod names;
mod nested;
mod oracle;
mod passed;
mod processes;
mod program;
mod programs;
mod record;
mod rings;
mod support;

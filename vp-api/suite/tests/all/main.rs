//! The provider suite over our own providers, and what crosses the provider interface.
#![allow(clippy::unwrap_used)] // a test fails loudly

mod build;
mod datagrams;
mod forms;
mod hardware;
mod keeps;
mod native;
mod paths;
mod play;
mod roce;
mod seeded;

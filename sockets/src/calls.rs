//! The functions, and what is done when the library is loaded and the process ends. No state.

mod begin;
mod descriptors;
mod direct;
mod messages;
mod octets;
mod programs;
mod settings;
mod waits;

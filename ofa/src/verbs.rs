//! The functions of libibverbs, for C: each reads its arguments and calls safe code.
//!
//! Every pointer is the caller's: NULL, or what the man page of the function asks for, live for the call. An
//! `unsafe` function here promises nothing beyond that, so one safety section, this one, holds for all.
#![allow(clippy::missing_safety_doc, missing_docs)] // the module's; man pages

pub mod ah;
pub mod async_event;
pub mod channel;
pub mod context;
pub mod cq;
mod cq_ex;
mod datagrams;
pub mod device;
pub mod mcast;
pub mod mr;
pub mod mw;
pub mod open;
pub mod pd;
mod poll;
mod post;
pub mod qp;
mod qp_ex;
pub mod query;
pub mod rates;
pub mod srq;
pub mod strings;
pub mod sysfs;

//! The functions of librdmacm, for C: each reads what the caller passes and calls safe code.
//!
//! Every pointer is the caller's: NULL, or what the man page of the function asks for, live for the call. An
//! `unsafe` function here promises nothing beyond that, so one safety section, this one, holds for all.
#![allow(clippy::missing_safety_doc, missing_docs)] // the module's; man pages

pub mod address;
pub mod addrinfo;
pub mod channel;
pub mod connect;
pub mod device;
pub mod endpoint;
pub mod id;
pub mod multicast;
pub mod option;
pub mod queue_pair;

//! Unreliable datagrams: endpoints, address handles, services. Where the transport has none, handles
//! are checked, and then the calls say so.
//!
//! | module | what it holds |
//! |---|---|
//! | `address` | address handles |
//! | `endpoint` | endpoints: creation, attributes, reset |
//! | `path` | paths of InfiniBand, which datagrams are sent along |
//! | `post` | sending, receiving, and what completions say |
//! | `service` | asking services for endpoints, and replying |
//!
//! The IP address of a path (`u.iwarp`) is enough to ask a service; address handles take InfiniBand's
//! (`u.ib`), which services and received datagrams give.

pub(crate) mod address;
pub(crate) mod endpoint;
pub(crate) mod path;
pub(crate) mod post;
pub(crate) mod service;

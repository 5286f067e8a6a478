//! Unreliable datagrams: endpoints, address handles, services. Where the transport has none, the calls
//! check their handles and return `IT_ERR_OP_NOT_SUPPORTED`.
//!
//! | module | content |
//! |---|---|
//! | `address` | address handles |
//! | `endpoint` | endpoints: creation, attributes, reset |
//! | `path` | InfiniBand paths for datagrams |
//! | `post` | sending, receiving, and completions |
//! | `service` | service requests for endpoints, and replies |
//!
//! The IP address of a path (`u.iwarp`) is enough for a service request; address handles take InfiniBand's
//! (`u.ib`), which service replies and received datagrams contain.

pub(crate) mod address;
pub(crate) mod endpoint;
pub(crate) mod path;
pub(crate) mod post;
pub(crate) mod service;

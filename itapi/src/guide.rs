#![doc = include_str!("../doc/from-sockets-to-rdma.md")]

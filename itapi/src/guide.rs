#![doc = include_str!("../../docs/from-sockets-to-rdma.md")]

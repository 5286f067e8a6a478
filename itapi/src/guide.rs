#![doc = include_str!("from-sockets-to-rdma.md")]

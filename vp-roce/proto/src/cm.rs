//! Connection management: messages and state machines of InfiniBand's communication manager, and rdma_cm's data
//! in them (InfiniBand volume 1, chapter 12).
//!
//! A message is a management datagram (MAD) of 256 octets, sent as an unreliable datagram to queue pair 1 with
//! the queue key [`QKEY`].

pub mod addresses;
pub mod connection;
pub mod mad;
pub mod message;
pub mod private;
pub mod reply;
pub mod sidr;

/// The queue pair that receives messages.
pub const QPN: u32 = 1;

/// Its queue key.
pub const QKEY: u32 = 0x8001_0000;

/// The service id of `port` in rdma_cm's TCP port space.
pub const fn tcp_service(port: u16) -> u64 {
    // [IBCM-08]
    0x0106_0000 | port as u64
}

/// The service id of `port` in rdma_cm's UDP port space.
pub const fn udp_service(port: u16) -> u64 {
    0x0111_0000 | port as u64
}

//! Interface of a queue pair to its caller: receives, registered memory, sinks of Reads.
//!
//! Owner of the state: the caller. Called only from within [`super::Qp::handle_packet`].

use crate::wire::extended::Reth;

/// How a request accesses remote memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Access {
    Read,
    Write,
    Atomic,
}

/// Memory that may not be accessed so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessError;

/// An atomic operation on eight octets in the byte order of this host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicOp {
    /// Stores `swap` if the value is `compare`.
    CompareSwap {
        /// The expected value.
        compare: u64,
        /// The value to store.
        swap: u64,
    },
    /// Adds a number.
    FetchAdd {
        /// The number to add, modulo 2^64.
        add: u64,
    },
}

/// A complete message that consumes a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivered {
    /// Octets; for a Write with immediate data those that were written.
    pub len: u32,
    /// The message is an RDMA Write: its octets are not in the receive.
    pub is_write: bool,
    /// Immediate data, in network order.
    pub immediate: Option<u32>,
    /// The key that the message invalidated.
    pub invalidated: Option<u32>,
    /// The sender asked for a solicited event.
    pub solicited: bool,
}

/// The caller of a queue pair.
pub trait Host {
    /// Takes the next receive for a message; returns its capacity in octets.
    fn take_receive(&mut self) -> Option<u64>;
    /// Places octets of the message at `offset` of the receive that was taken last.
    fn place_receive(&mut self, offset: u32, octets: &[u8]) -> Result<(), AccessError>;
    /// Completes the receive that was taken last.
    fn complete_receive(&mut self, delivered: Delivered);
    /// The receive that was taken last gets no message: it was refused or too long.
    fn fail_receive(&mut self);
    /// Whether the peer may use this access, here to the memory that `place` names, through the queue pair at all.
    fn allows(&mut self, access: Access, place: &Reth) -> bool;
    /// An atomic is refused because its address is no multiple of 8.
    fn refuse_unaligned(&mut self, _place: &Reth) {}
    /// Whether `rkey` grants `access` to `len` octets at `address`. Not asked for 0 octets.
    fn check(
        &mut self,
        rkey: u32,
        address: u64,
        len: u32,
        access: Access,
    ) -> Result<(), AccessError>;
    /// Writes to memory of a key, which is checked again.
    fn place(&mut self, rkey: u32, address: u64, octets: &[u8]) -> Result<(), AccessError>;
    /// Executes an atomic operation on memory of a key; returns the original value. `address` is a multiple of
    /// 8.
    fn atomic(&mut self, rkey: u32, address: u64, op: AtomicOp) -> Result<u64, AccessError>;
    /// Invalidates a key for the peer.
    fn invalidate(&mut self, rkey: u32) -> Result<(), AccessError>;
    /// Places octets of the response to the Read or atomic in `slot`; those of an atomic are eight, in the byte
    /// order of this host.
    fn place_response(&mut self, slot: u32, offset: u32, octets: &[u8]) -> Result<(), AccessError>;
}

//! What a queue pair asks of its surroundings: receives, memory behind keys, sinks of Reads.
//!
//! Owner of the state: the caller. Called only from within [`super::Qp::handle_packet`].

/// What a request wants of remote memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Access {
    Read,
    Write,
    Atomic,
}

/// Memory that may not be touched in this way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessError;

/// An atomic operation on eight octets in the byte order of this host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicOp {
    /// Stores `swap` if `compare` is there.
    CompareSwap {
        /// What must be there.
        compare: u64,
        /// What is stored.
        swap: u64,
    },
    /// Adds.
    FetchAdd {
        /// What is added, modulo 2^64.
        add: u64,
    },
}

/// A message that has arrived whole and uses up a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivered {
    /// Octets; for a Write with immediate data those that were written.
    pub len: u32,
    /// The message is an RDMA Write: its octets are not in the receive.
    pub is_write: bool,
    /// Immediate data, in network order.
    pub immediate: Option<u32>,
    /// The key that it invalidated.
    pub invalidated: Option<u32>,
    /// The sender asked for a solicited event.
    pub solicited: bool,
}

/// The surroundings of a queue pair.
pub trait Host {
    /// Takes the next receive for a message; returns the octets that it has room for.
    fn take_receive(&mut self) -> Option<u64>;
    /// Places octets of the message at `offset` of the receive that was taken last.
    fn place_receive(&mut self, offset: u32, octets: &[u8]) -> Result<(), AccessError>;
    /// The receive that was taken last is done.
    fn complete_receive(&mut self, delivered: Delivered);
    /// The message of the receive that was taken last does not come: it was refused or too long.
    fn fail_receive(&mut self);
    /// Whether `rkey` grants `access` to `len` octets at `address`. Not asked for 0 octets.
    fn check(
        &mut self,
        rkey: u32,
        address: u64,
        len: u32,
        access: Access,
    ) -> Result<(), AccessError>;
    /// Writes into memory behind a key; checks once more.
    fn place(&mut self, rkey: u32, address: u64, octets: &[u8]) -> Result<(), AccessError>;
    /// Executes an atomic operation behind a key; returns what was there. `address` is a multiple of 8.
    fn atomic(&mut self, rkey: u32, address: u64, op: AtomicOp) -> Result<u64, AccessError>;
    /// Invalidates a key that the peer names.
    fn invalidate(&mut self, rkey: u32) -> Result<(), AccessError>;
    /// Places octets of the response to the Read or atomic in `slot`; those of an atomic are eight, in the byte
    /// order of this host.
    fn place_response(&mut self, slot: u32, offset: u32, octets: &[u8]) -> Result<(), AccessError>;
}

//! Access rights of memory regions and windows.

use bitflags::bitflags;

bitflags! {
    /// Rights on a memory region or window (RDMAC Verbs 7.5, 9.2.6; RFC 7306 for atomics).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Access: u32 {
        /// Source of Sends and RDMA Writes.
        const LOCAL_READ = 0x08;
        /// Receive buffer, sink of RDMA Reads.
        const LOCAL_WRITE = 0x10;
        /// Source of the peer's RDMA Reads; needs `LOCAL_READ`.
        const REMOTE_READ = 0x20;
        /// Target of the peer's RDMA Writes; needs `LOCAL_WRITE`.
        const REMOTE_WRITE = 0x40;
        /// Windows may be bound to it.
        const BIND = 0x80;
        /// Target of the peer's atomics; needs `LOCAL_READ` and `LOCAL_WRITE`.
        const REMOTE_ATOMIC = 0x100;
    }
}

impl Access {
    /// Both local rights.
    pub const LOCAL: Self = Self::LOCAL_READ.union(Self::LOCAL_WRITE);
    /// All remote rights.
    pub const REMOTE: Self = Self::REMOTE_READ.union(Self::REMOTE_WRITE).union(Self::REMOTE_ATOMIC);

    /// Whether the combination is allowed for a region (RDMAC 7.5 [VERBS-24]): each remote right needs its local
    /// one, and at least one local right must be present.
    pub fn valid_for_region(self) -> bool {
        let needs = |remote: Self, local: Self| !self.intersects(remote) || self.contains(local);
        self.intersects(Self::LOCAL)
            && needs(Self::REMOTE_READ, Self::LOCAL_READ)
            && needs(Self::REMOTE_WRITE, Self::LOCAL_WRITE)
            && needs(Self::REMOTE_ATOMIC, Self::LOCAL)
    }
}

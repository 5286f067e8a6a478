//! Access rights of a valid STag, and the check that every access must pass.
//!
//! Plain values; checked for every segment (RFC 5041 section 7.1) by the thread that places it.

use vp_api::{Access, PdId, QpId, RefusedRegion};

use crate::memory::AccessError;

/// The purpose of an access; decides which right it needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// Source of a Send or RDMA Write of this end.
    LocalRead,
    /// Receive buffer, or sink of an atomic's original value.
    LocalWrite,
    /// Sink of an RDMA Read of this end: local write on a region, remote write on a window.
    ReadSink,
    /// Source of the peer's RDMA Read.
    RemoteRead,
    /// Target of the peer's RDMA Write.
    RemoteWrite,
    /// Target of the peer's atomic.
    RemoteAtomic,
}

impl Need {
    const fn is_local(self) -> bool {
        matches!(self, Self::LocalRead | Self::LocalWrite)
    }

    /// The memory will be written.
    pub(crate) const fn writes(self) -> bool {
        !matches!(self, Self::LocalRead | Self::RemoteRead)
    }

    /// The right that a grant must carry, and the right that the QP must allow to its peer.
    const fn rights(self, window: bool) -> (Access, Access) {
        match self {
            Self::LocalRead => (Access::LOCAL_READ, Access::empty()),
            Self::LocalWrite => (Access::LOCAL_WRITE, Access::empty()),
            // RDMAC 9.2.6 requires remote write of a sink; local write suffices here. [VERBS-24]
            Self::ReadSink if window => (Access::REMOTE_WRITE, Access::empty()),
            Self::ReadSink => (Access::LOCAL_WRITE, Access::empty()),
            Self::RemoteRead => (Access::REMOTE_READ, Access::REMOTE_READ),
            Self::RemoteWrite => (Access::REMOTE_WRITE, Access::REMOTE_WRITE),
            Self::RemoteAtomic => (Access::REMOTE_ATOMIC, Access::REMOTE_ATOMIC),
        }
    }
}

/// On whose behalf memory is accessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// PD of the QP; for receive buffers of an SRQ, the SRQ's. // [VERBS-26]
    pub pd: PdId,
    /// The QP.
    pub qp: QpId,
    /// Remote rights that the QP lets its peer use.
    pub allow: Access,
    /// STag 0 and fast registration allowed.
    pub privileged: bool,
}

impl Caller {
    /// Whether the QP serves such accesses at all, whatever a grant says.
    pub fn allows(&self, need: Need) -> bool {
        self.allow.contains(need.rights(false).1)
    }
}

/// The QPs that may use a grant (RFC 5041 section 8.2). // [DDP-20]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    /// A region: every QP of the PD.
    Region,
    /// A wide window: every QP of the PD, never as a local buffer.
    WideWindow,
    /// A narrow window: only the QP that bound it.
    NarrowWindow(QpId),
}

/// What a valid STag grants. Immutable while the STag is valid.
///
/// # Invariants
///
/// `len` octets at `addr` are live memory, writable if `access` has a write right; the code that
/// publishes the grant keeps the [`vp_api::MemRange`] until the STag is revoked. `base + len` does
/// not overflow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) addr: *mut u8,
    pub(crate) len: u64,
    /// TO of the first octet.
    pub(crate) base: u64,
    pub(crate) access: Access,
    pub(crate) pd: PdId,
    pub(crate) scope: Scope,
}

impl Grant {
    /// A grant of no memory, for a slot that was never valid.
    pub(crate) const NOTHING: Self = Self {
        addr: std::ptr::null_mut(),
        len: 0,
        base: 0,
        access: Access::empty(),
        pd: PdId(0),
        scope: Scope::Region,
    };

    /// Checks an access to `len` octets at `to`; returns the address of the first octet.
    // [SEC-01] [SEC-02] [SEC-03] [SEC-14] [DDP-21]
    #[inline(always)]
    pub(crate) fn check(
        &self,
        need: Need,
        caller: &Caller,
        to: u64,
        len: u32,
    ) -> Result<*mut u8, AccessError> {
        self.check_association(need, caller)?;
        let (right, allowed) = need.rights(self.scope != Scope::Region);
        if !self.access.contains(right) || !caller.allow.contains(allowed) {
            return Err(AccessError::Access);
        }
        let offset = self.offset(to, u64::from(len))?;
        let addr = self.addr.wrapping_add(offset);
        // RFC 7306 5.1: the address must be aligned, not the TO. [EXT-08]
        if need == Need::RemoteAtomic && !addr.addr().is_multiple_of(8) {
            return Err(AccessError::Unaligned);
        }
        Ok(addr)
    }

    /// Offset of `len` octets at `to` from the first octet of the grant, if all of them are inside.
    #[inline]
    pub(crate) fn offset(&self, to: u64, len: u64) -> Result<usize, AccessError> {
        let end = to.checked_add(len).ok_or(AccessError::Wrap)?;
        if to < self.base || end > self.base + self.len {
            return Err(AccessError::Bounds);
        }
        Ok((to - self.base) as usize)
    }

    /// Whether an address is in the memory.
    pub(crate) fn contains(&self, addr: usize) -> bool {
        addr.checked_sub(self.addr.addr()).is_some_and(|offset| (offset as u64) < self.len)
    }

    /// Describes the region in messages.
    pub(crate) fn describe(&self, caller: &Caller) -> RefusedRegion {
        RefusedRegion {
            octets: self.len,
            access: self.access,
            window: self.scope != Scope::Region,
            associated: self.is_associated(caller),
        }
    }

    #[inline]
    fn check_association(&self, need: Need, caller: &Caller) -> Result<(), AccessError> {
        let window = self.scope != Scope::Region;
        // RDMAC 7.10: a window's STag is no local buffer, except as an RDMA Read's sink.
        if window && need.is_local() {
            return Err(AccessError::InvalidStag);
        }
        self.is_associated(caller).then_some(()).ok_or(AccessError::NotAssociated)
    }

    #[inline]
    fn is_associated(&self, caller: &Caller) -> bool {
        match self.scope {
            Scope::NarrowWindow(qp) => qp == caller.qp,
            Scope::Region | Scope::WideWindow => self.pd == caller.pd,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PD: PdId = PdId(3);
    const CALLER: Caller = Caller { pd: PD, qp: QpId(9), allow: Access::REMOTE, privileged: false };

    fn grant(access: Access, scope: Scope) -> Grant {
        Grant {
            addr: std::ptr::without_provenance_mut(0x1000),
            len: 64,
            base: 100,
            access,
            pd: PD,
            scope,
        }
    }

    // [SEC-03] [DDP-21]: octet-exact bounds, and the wrap of RFC 5041 7.1.
    #[test]
    fn bounds_are_exact() {
        let g = grant(Access::LOCAL | Access::REMOTE, Scope::Region);
        let check = |to, len| g.check(Need::RemoteWrite, &CALLER, to, len).map(|a| a.addr());
        assert_eq!(check(100, 64), Ok(0x1000));
        assert_eq!(check(163, 1), Ok(0x103f));
        assert_eq!(check(99, 1), Err(AccessError::Bounds));
        assert_eq!(check(164, 1), Err(AccessError::Bounds));
        assert_eq!(check(163, 2), Err(AccessError::Bounds));
        assert_eq!(check(u64::MAX, 2), Err(AccessError::Wrap));
        assert_eq!(check(u64::MAX - 4, 4), Err(AccessError::Bounds));
    }

    // [SEC-14] [SEC-04] [VERBS-24]: each use needs exactly its right, on the STag and on the QP.
    #[test]
    fn each_use_needs_its_right() {
        use Need::*;
        let rights = [
            (LocalRead, Access::LOCAL_READ),
            (LocalWrite, Access::LOCAL_WRITE),
            (ReadSink, Access::LOCAL_WRITE),
            (RemoteRead, Access::REMOTE_READ),
            (RemoteWrite, Access::REMOTE_WRITE),
            (RemoteAtomic, Access::REMOTE_ATOMIC),
        ];
        for (need, right) in rights {
            assert!(grant(right, Scope::Region).check(need, &CALLER, 108, 8).is_ok(), "{need:?}");
            let others = Access::all() - right;
            let refused = grant(others, Scope::Region).check(need, &CALLER, 108, 8);
            assert_eq!(refused, Err(AccessError::Access), "{need:?}");
            let closed = Caller { allow: Access::empty(), ..CALLER };
            let through_closed_qp = grant(right, Scope::Region).check(need, &closed, 108, 8);
            assert_eq!(through_closed_qp.is_ok(), !right.intersects(Access::REMOTE), "{need:?}");
        }
    }

    // [SEC-01] [SEC-02] [DDP-20]: by PD, and by single stream.
    #[test]
    fn association_is_by_pd_or_by_stream() {
        let all = Access::LOCAL | Access::REMOTE;
        let other_pd = Caller { pd: PdId(4), ..CALLER };
        let other_qp = Caller { qp: QpId(8), ..CALLER };
        let write =
            |scope, caller| grant(all, scope).check(Need::RemoteWrite, caller, 100, 1).is_ok();
        assert!(write(Scope::Region, &other_qp));
        assert!(!write(Scope::Region, &other_pd));
        assert!(write(Scope::WideWindow, &other_qp));
        assert!(!write(Scope::WideWindow, &other_pd));
        assert!(write(Scope::NarrowWindow(CALLER.qp), &CALLER));
        assert!(!write(Scope::NarrowWindow(CALLER.qp), &other_qp));
    }

    // RDMAC 7.10, rnicpi 7: windows are no local buffers, except as a Read's sink.
    #[test]
    fn window_is_no_local_buffer() {
        let window = grant(Access::REMOTE, Scope::NarrowWindow(CALLER.qp));
        for need in [Need::LocalRead, Need::LocalWrite] {
            assert_eq!(window.check(need, &CALLER, 100, 1), Err(AccessError::InvalidStag));
        }
        assert!(window.check(Need::ReadSink, &CALLER, 100, 1).is_ok());
    }

    // [EXT-08]: alignment is of the address, not of the TO.
    #[test]
    fn atomic_alignment_is_of_the_address() {
        let mut g = grant(Access::REMOTE_ATOMIC, Scope::Region);
        assert!(g.check(Need::RemoteAtomic, &CALLER, 100, 8).is_ok());
        assert_eq!(g.check(Need::RemoteAtomic, &CALLER, 104, 8), Err(AccessError::Unaligned));
        g.addr = std::ptr::without_provenance_mut(0x1001);
        assert_eq!(g.check(Need::RemoteAtomic, &CALLER, 100, 8), Err(AccessError::Unaligned));
    }
}

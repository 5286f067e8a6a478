//! Registered memory, local and remote.
//!
//! An [`Lmr`] owns its memory and its registration. A peer with a right to it may read or write it at any time,
//! so it is never a slice: octets are copied in and out, and a copy that races with a peer's access may see
//! part of each. The memory is freed only after it is deregistered, so that no late RDMA Write reaches memory
//! that was reused.

mod adopted;
mod builder;
mod lent;

pub use adopted::Adopted;
pub use builder::{Fresh, Given, LmrBuilder};

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use ual::{Keys, LmrInit, Region};
use vp_api::{Access, Addressing, FastRegister, MrInfo, SendOp, Sge, Stag};

use crate::context::context;
use crate::error::{Error, Result};
use crate::ia::Pz;
use crate::remote::{RemoteRange, RmrContext};

/// Local memory region (IT-API `it_lmr_create`). Clones share it; dropping the last one deregisters. Made of
/// newly allocated memory ([`Pz::lmr`]), of a value's memory ([`Pz::adopt`]), or of borrowed memory
/// ([`Pz::lend`]).
///
/// ```
/// # fn main() -> itapi::Result<()> {
/// # let pz = itapi::Ia::open()?.pz()?;
/// let board = pz.lmr(4096).remote_read().register()?;
/// board.write_at(100, b"for peers to read")?;
/// let part = board.range(100..117)?;
/// let tell_the_peer = part.remote().to_octets(); // 20 octets: key, address, length
/// # drop(tell_the_peer);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Lmr(Arc<LmrInner>);

context!(Lmr, lmr => lmr.0.lmr.tag());

struct LmrInner {
    // Before the region: deregistration comes first.
    lmr: Arc<ual::Lmr>,
    region: Region,
    /// STag and [`ZERO_BASED`], which every post reads without a lock.
    name: AtomicU64,
    /// Rights that linking gives it.
    access: AtomicU32,
    /// The key's low octet in the next link, so that a peer's old context is invalid.
    keys: Keys,
}

/// Flag in [`LmrInner::name`]: peers address the region by offset.
const ZERO_BASED: u64 = 1 << 32;

fn name(stag: Stag, addressing: Addressing) -> u64 {
    let zero_based = addressing == Addressing::ZeroBased;
    u64::from(stag.0) | if zero_based { ZERO_BASED } else { 0 }
}

/// Refuses what IT-API has no addressing mode for (`it_addr_mode_t`).
fn check_addressing(addressing: Addressing) -> Result<()> {
    match addressing {
        Addressing::Absolute | Addressing::ZeroBased => Ok(()),
        Addressing::Based(base) => Err(Error::Argument(format!(
            "a region addressed from {base:#x} on: IT-API addresses by memory address or from zero"
        ))),
    }
}

/// Part of an [`Lmr`], for work requests and for granting rights.
///
/// ```
/// # fn main() -> itapi::Result<()> {
/// # let pz = itapi::Ia::open()?.pz()?;
/// let board = pz.lmr(4096).remote_write().register()?;
/// let line = board.range(80..160)?;
/// line.write_at(0, b"second line")?; // offset 80 of the region
/// assert_eq!(line.remote().addr, board.remote().addr + 80);
/// assert!(line.write_at(75, b"too long").is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LmrRange {
    lmr: Lmr,
    start: usize,
    len: usize,
}

impl Lmr {
    pub(crate) fn wrap(
        lmr: Arc<ual::Lmr>,
        region: Region,
        addressing: Addressing,
        access: Access,
        stag: Stag,
    ) -> Self {
        let (name, access) = (name(stag, addressing).into(), access.bits().into());
        Self(Arc::new(LmrInner { lmr, region, name, access, keys: Keys::after(stag.key()) }))
    }

    /// Octets.
    pub fn len(&self) -> usize {
        self.0.region.len()
    }

    /// True for a region of no octets.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies octets from `offset` on to `out`.
    pub fn read_at(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        let (len, size) = (out.len(), self.len());
        let outside = |_| Error::range("the region", offset, len, size);
        self.0.region.read_at(offset, out).map_err(outside)
    }

    /// Copies `octets` into the region, from `offset` on.
    pub fn write_at(&self, offset: usize, octets: &[u8]) -> Result<()> {
        let outside = |_| Error::range("the region", offset, octets.len(), self.len());
        self.0.region.write_at(offset, octets).map_err(outside)
    }

    /// All of it.
    pub fn whole(&self) -> LmrRange {
        LmrRange { lmr: self.clone(), start: 0, len: self.len() }
    }

    /// Part of it.
    pub fn range(&self, range: Range<usize>) -> Result<LmrRange> {
        if range.start > range.end || range.end > self.len() {
            let len = range.end.saturating_sub(range.start);
            return Err(Error::range("the region", range.start, len, self.len()));
        }
        Ok(LmrRange { lmr: self.clone(), start: range.start, len: range.len() })
    }

    /// Describes the whole region to a peer, which may access it within the region's rights.
    pub fn remote(&self) -> RemoteRange {
        self.whole().remote()
    }

    /// State of the region (`it_lmr_query`).
    pub fn info(&self) -> Result<MrInfo> {
        Ok(self.0.lmr.query()?)
    }

    /// Registers the same memory once more, with other rights or for another zone (`it_lmr_create` with
    /// `IT_LMR_FLAG_SHARED`). From now on neither region can be unlinked. The memory lives until both are
    /// dropped.
    pub fn share(&self, pz: &Pz, access: Access, addressing: Addressing) -> Result<Self> {
        check_addressing(addressing)?;
        self.not_lent("shared")?;
        let shared = self.0.lmr.share(pz.ual(), addressing, access, Keys::random())?;
        let stag = shared.stag();
        Ok(Self::wrap(shared, self.0.region.clone(), addressing, access, stag))
    }

    /// Changes zone, rights and addressing (`it_lmr_modify`). Peers can no longer use descriptions that they
    /// got before. Errors: while windows are linked to it nothing changes; any other error leaves the region
    /// unregistered, and only its content can still be used.
    pub fn modify(&self, pz: &Pz, access: Access, addressing: Addressing) -> Result<()> {
        check_addressing(addressing)?;
        self.not_lent("changed")?;
        let key = self.0.keys.next();
        let init = LmrInit { addressing, key, ..LmrInit::new(self.0.region.mem_range(), access) };
        self.0.lmr.modify(pz.ual(), init)?;
        self.0.name.store(name(self.0.lmr.stag(), addressing), Ordering::Release);
        self.0.access.store(access.bits(), Ordering::Release);
        Ok(())
    }

    /// Refuses what would register lent memory again or let it outlive the loan.
    pub(crate) fn not_lent(&self, what: &str) -> Result<()> {
        if self.0.region.is_lent() {
            return Err(Error::Argument(format!(
                "memory that is lent (`Pz::lend`) cannot be {what}"
            )));
        }
        Ok(())
    }

    /// The fast registration of a link, with the next key in its STag.
    pub(crate) fn link(&self) -> SendOp {
        SendOp::FastRegister(Box::new(FastRegister {
            stag: Stag::new(self.stag().index(), self.0.keys.upcoming()),
            range: self.0.region.mem_range(),
            addressing: self.addressing(),
            access: Access::from_bits_truncate(self.0.access.load(Ordering::Acquire)),
        }))
    }

    /// Records that the link is posted: later requests use the region's new key.
    pub(crate) fn linking(&self) {
        let next = Stag::new(self.stag().index(), self.0.keys.next());
        self.0.name.store(name(next, self.addressing()), Ordering::Release);
    }

    pub(crate) fn stag(&self) -> Stag {
        Stag(self.0.name.load(Ordering::Acquire) as u32)
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn addressing(&self) -> Addressing {
        match self.0.name.load(Ordering::Acquire) & ZERO_BASED {
            0 => Addressing::Absolute,
            _ => Addressing::ZeroBased,
        }
    }

    fn to_of(&self, offset: usize) -> u64 {
        self.addressing().base(self.0.region.addr()) + offset as u64
    }

    /// `len` octets from `start` on as a scatter/gather element; the caller has checked that they are inside.
    pub(crate) fn sge(&self, start: usize, len: usize) -> Result<Sge> {
        let len = u32::try_from(len).map_err(|_| {
            Error::Argument(format!("{len} octets in one piece; a message has at most 4294967295"))
        })?;
        Ok(Sge { stag: self.stag(), len, to: self.to_of(start) })
    }
}

impl std::fmt::Debug for Lmr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lmr({:#x}, {} octets)", self.stag().0, self.len())
    }
}

impl LmrRange {
    /// Octets.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True for a range of no octets.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The region that it is part of.
    pub fn lmr(&self) -> &Lmr {
        &self.lmr
    }

    /// Copies octets from `offset` of the range on to `out`.
    pub fn read_at(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        self.check(offset, out.len())?;
        self.lmr.read_at(self.start + offset, out)
    }

    /// Copies `octets` into the range, from `offset` on.
    pub fn write_at(&self, offset: usize, octets: &[u8]) -> Result<()> {
        self.check(offset, octets.len())?;
        self.lmr.write_at(self.start + offset, octets)
    }

    /// Describes this range to a peer. Its rights are those of the whole region; a window ([`crate::Rmr`]) can
    /// grant less.
    pub fn remote(&self) -> RemoteRange {
        let context = RmrContext(self.lmr.stag().0);
        RemoteRange { context, addr: self.to(), len: self.len as u64 }
    }

    /// Makes what was written with [`LmrRange::write_at`] visible to peers and to the provider
    /// (`it_lmr_flush_to_mem`). Posting does this anyway; it matters only to a peer that reads
    /// while nothing is posted.
    pub fn flush(&self) {
        fence(Ordering::SeqCst);
    }

    /// Makes what a peer wrote visible to the [`LmrRange::read_at`] that follows
    /// (`it_lmr_refresh_from_mem`). Taking a completion does this anyway.
    pub fn refresh(&self) {
        fence(Ordering::SeqCst);
    }

    fn check(&self, offset: usize, len: usize) -> Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(Error::range("the range", offset, len, self.len)),
        }
    }

    /// Tagged offset of the first octet.
    pub(crate) fn to(&self) -> u64 {
        self.lmr.to_of(self.start)
    }

    /// The first `len` octets, at most all, as a scatter/gather element.
    pub(crate) fn sge(&self, len: usize) -> Result<Sge> {
        self.lmr.sge(self.start, len.min(self.len))
    }
}

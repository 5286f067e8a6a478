//! Builder of registered regions. No state.

use ual::{LmrInit, Region};
use vp_api::{Access, Addressing, Stag};

use super::{Adopted, Lmr};
use crate::error::{Error, Refused, Result};
use crate::ia::Pz;

impl Pz {
    /// Registers zeroed memory of `octets` octets; the builder adds rights for peers.
    pub fn lmr(&self, octets: usize) -> LmrBuilder<'_> {
        LmrBuilder::new(self, Fresh { len: octets, huge: false })
    }

    /// Registers the octets of an existing value: a `Vec<u8>`, a `Box<[u8]>`, an array, a writable memory map.
    /// The region owns the value until it is deregistered, which returns it.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let pz = itapi::Ia::open()?.pz()?;
    /// let picture: Vec<u8> = std::iter::repeat_n(7, 1000).collect(); // from wherever it comes
    /// let region = pz.adopt(picture).remote_write().register()?; // no copy
    /// region.write_at(0, b"!")?; // a region like every other ...
    /// let picture = region.deregister()?; // ... until its memory is ours again
    /// assert_eq!((picture.len(), picture[0]), (1000, b'!'));
    /// # Ok(())
    /// # }
    /// ```
    pub fn adopt<T: AsMut<[u8]> + Send + 'static>(&self, memory: T) -> LmrBuilder<'_, Given<T>> {
        LmrBuilder::new(self, Given(memory))
    }
}

/// Source of an [`LmrBuilder`]: memory to allocate.
#[derive(Debug)]
pub struct Fresh {
    len: usize,
    huge: bool,
}

/// Source of an [`LmrBuilder`]: memory of an existing value.
#[derive(Debug)]
pub struct Given<T>(T);

/// Makes an [`Lmr`] of zeroed new memory or of existing memory, with local rights and those added here.
///
/// ```
/// # fn main() -> itapi::Result<()> {
/// # let pz = itapi::Ia::open()?.pz()?;
/// let log = pz.lmr(1 << 20).remote_write().zero_based().register()?;
/// assert_eq!(log.remote().addr, 0); // peers learn no address
/// let later = pz.lmr(4096).remote_read().unlinked()?; // see `Work::link_lmr`
/// assert!(!later.info()?.valid);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LmrBuilder<'a, M = Fresh> {
    pz: &'a Pz,
    memory: M,
    access: Access,
    addressing: Addressing,
    key: Option<u8>,
    pin: bool,
}

impl<'a, M> LmrBuilder<'a, M> {
    pub(super) fn new(pz: &'a Pz, memory: M) -> Self {
        let (access, addressing) = (Access::LOCAL, Addressing::Absolute);
        Self { pz, memory, access, addressing, key: None, pin: false }
    }

    /// Peers may read it by RDMA Read.
    pub fn remote_read(mut self) -> Self {
        self.access |= Access::REMOTE_READ;
        self
    }

    /// Peers may write it by RDMA Write.
    pub fn remote_write(mut self) -> Self {
        self.access |= Access::REMOTE_WRITE;
        self
    }

    /// Peers may use atomic operations on it.
    pub fn remote_atomic(mut self) -> Self {
        self.access |= Access::REMOTE_ATOMIC;
        self
    }

    /// Windows may be linked to it.
    pub fn bindable(mut self) -> Self {
        self.access |= Access::BIND;
        self
    }

    /// Peers address it by offset, so they do not learn where it lies. For atomics it begins at a multiple of 8, as that
    /// of [`Pz::lmr`] does.
    pub fn zero_based(mut self) -> Self {
        self.addressing = Addressing::ZeroBased;
        self
    }

    /// Low octet of the key; without it a random one. A chosen key leaves an attacker 8 bits less
    /// to guess.
    pub fn key(mut self, key: u8) -> Self {
        self.key = Some(key);
        self
    }

    /// Keeps its pages in memory, within the process's limit.
    pub fn pinned(mut self) -> Self {
        self.pin = true;
        self
    }

    fn build(&self, region: Region) -> Result<Lmr> {
        let mut init = LmrInit::new(region.mem_range(), self.access);
        (init.addressing, init.pin) = (self.addressing, self.pin);
        init.key = self.key.unwrap_or(init.key);
        let lmr = self.pz.ual().create_lmr(init)?;
        // Not every device lets the consumer choose the key.
        let stag = lmr.stag();
        Ok(Lmr::wrap(lmr, region, self.addressing, self.access, stag))
    }
}

impl<T: AsMut<[u8]> + Send + 'static> LmrBuilder<'_, Given<T>> {
    /// Registers. An error returns the memory, unless a faulty provider keeps it.
    pub fn register(self) -> std::result::Result<Adopted<T>, Box<Refused<Option<T>>>> {
        let Self { pz, memory: Given(memory), access, addressing, key, pin } = self;
        let builder = LmrBuilder { pz, memory: (), access, addressing, key, pin };
        let region = Region::adopt(memory);
        match builder.build(region.clone()) {
            Ok(lmr) => Ok(Adopted::new(lmr)),
            Err(error) => Err(Refused::new(error, region.give_back().ok())),
        }
    }
}

impl LmrBuilder<'_, &Region> {
    pub(super) fn rights(mut self, access: Access) -> Self {
        self.access |= access;
        self
    }

    /// Registers memory that the builder does not own.
    pub(super) fn register(self) -> Result<Lmr> {
        self.build(self.memory.clone())
    }
}

impl LmrBuilder<'_> {
    /// Uses huge pages where the system has them.
    pub fn huge_pages(mut self) -> Self {
        self.memory.huge = true;
        self
    }

    /// Allocates and registers.
    pub fn register(self) -> Result<Lmr> {
        let region = self.region()?;
        self.build(region)
    }

    /// Allocates memory and a key, but registers nothing: [`crate::Work::link_lmr`] does, on a
    /// privileged endpoint, and [`crate::Work::unlink_lmr`] or the peer
    /// ([`crate::Work::invalidate`]) takes it back; both can be repeated.
    pub fn unlinked(self) -> Result<Lmr> {
        if self.pin {
            return Err(Error::Argument(
                "the memory of an unlinked region cannot be pinned".into(),
            ));
        }
        let region = self.region()?;
        let remote = self.access.intersects(Access::REMOTE);
        let lmr = self.pz.ual().create_lmr_unlinked(remote)?;
        // It gets its key when it is linked.
        let key = self.key.unwrap_or(lmr.stag().key());
        let stag = Stag::new(lmr.stag().index(), key);
        Ok(Lmr::wrap(lmr, region, self.addressing, self.access, stag))
    }

    fn region(&self) -> Result<Region> {
        let Fresh { len, huge } = self.memory;
        let region = if huge { Region::huge(len) } else { Region::new(len) };
        region.map_err(|source| Error::Memory { octets: len, source })
    }
}

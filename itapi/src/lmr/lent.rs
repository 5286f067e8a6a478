//! Regions of borrowed memory. They last for one call, which deregisters before it returns.

use ual::lend;
use vp_api::Access;

use super::{Lmr, LmrBuilder};
use crate::error::{Error, Result};
use crate::ia::Pz;

/// Attempts to deregister. A provider gives up after about a second if a peer's access goes on so long.
const TRIES: usize = 30;

impl Pz {
    /// Registers borrowed memory while `with` runs; with local rights and those of `access`. When this returns,
    /// the octets are no longer accessed: work requests that still refer to them fail, and so do accesses of
    /// peers and of handles that `with` kept. Errors: the memory cannot be registered; windows
    /// ([`Access::BIND`]) cannot be linked to borrowed memory.
    ///
    /// ```
    /// # fn main() -> itapi::Result<()> {
    /// # let pz = itapi::Ia::open()?.pz()?;
    /// use itapi::Access;
    ///
    /// let mut board = [0; 64];
    /// let kept = pz.lend(&mut board, Access::REMOTE_WRITE, |region| {
    ///     let tell_the_peer = region.remote().to_octets(); // post, wait, ...
    /// #   let _ = tell_the_peer;
    ///     region.write_at(0, b"from us").map(|()| region.clone())
    /// })??;
    /// assert!(board.starts_with(b"from us")); // a slice again
    /// assert!(kept.write_at(0, b"too late").is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn lend<T>(
        &self,
        octets: &mut [u8],
        access: Access,
        with: impl FnOnce(&Lmr) -> T,
    ) -> Result<T> {
        if access.contains(Access::BIND) {
            return Err(Error::Argument("windows cannot be linked to borrowed memory".into()));
        }
        lend(octets, |region| {
            let lmr = LmrBuilder::new(self, region).rights(access).register()?;
            let end = End(&lmr);
            let result = with(&lmr);
            drop(end);
            Ok(result)
        })
    }
}

/// Deregisters when dropped, also if `with` panics.
struct End<'a>(&'a Lmr);

impl Drop for End<'_> {
    fn drop(&mut self) {
        for _ in 0..TRIES {
            // An error means that a peer's access goes on; after the last attempt the process is aborted.
            if matches!(self.0.0.lmr.close(), Ok(()) | Err(ual::Error::Closed(_))) {
                return;
            }
        }
    }
}

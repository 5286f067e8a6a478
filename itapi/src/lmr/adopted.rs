//! Regions of memory that the application already has. The region owns the value; deregistering returns it.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use super::{Lmr, LmrInner};
use crate::error::{Error, Refused};

/// A region of a value's memory ([`crate::Pz::adopt`]). The value is dropped once no handle, work request or
/// window keeps the region.
pub struct Adopted<T> {
    lmr: Lmr,
    value: PhantomData<fn() -> T>,
}

impl<T: 'static> Adopted<T> {
    pub(super) fn new(lmr: Lmr) -> Self {
        Self { lmr, value: PhantomData }
    }

    /// Deregisters and returns the value, with what peers wrote. Errors: other handles, ranges, windows or work
    /// requests use the region, or another region shares its memory.
    pub fn deregister(self) -> Result<T, Box<Refused<Self>>> {
        let core = match Arc::try_unwrap(self.lmr.0) {
            Ok(core) => core,
            Err(shared) => {
                let users = Arc::strong_count(&shared) - 1;
                let why = format!(
                    "{users} handles, ranges, windows or work requests use the region: drop them, or take their completions"
                );
                return Err(refused(Error::Argument(why), Lmr(shared)));
            }
        };
        match core.lmr.close() {
            // Closed by an earlier call, which found the memory shared.
            Ok(()) | Err(ual::Error::Closed(_)) => {}
            Err(error) => return Err(refused(error.into(), Lmr(Arc::new(core)))),
        }
        let LmrInner { lmr, region, name, access, keys } = core;
        region.give_back().map_err(|region| {
            let why = "another region shares the memory; deregister that one first";
            let core = LmrInner { lmr, region, name, access, keys };
            refused(Error::Argument(why.into()), Lmr(Arc::new(core)))
        })
    }
}

fn refused<T: 'static>(error: Error, lmr: Lmr) -> Box<Refused<Adopted<T>>> {
    Refused::new(error, Adopted::new(lmr))
}

impl<T> Deref for Adopted<T> {
    type Target = Lmr;
    fn deref(&self) -> &Lmr {
        &self.lmr
    }
}

impl<T> std::fmt::Debug for Adopted<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.lmr.fmt(f)
    }
}

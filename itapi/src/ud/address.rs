//! Address handles: the path of datagrams to a remote port. The access layer owns them; any thread.

use std::sync::Arc;

use vp_api::DatagramPath;

use crate::context::context;
use crate::error::Result;
use crate::ia::Pz;

/// The path of datagrams (IT-API `it_address_handle_create`); [`crate::Pz::address_handle`] makes one. Clones
/// share it.
///
/// ```
/// # fn main() -> itapi::Result<()> {
/// # let ia = itapi::Ia::open()?;
/// let path = itapi::DatagramPath { remote_gid: [0xfe; 16], ..Default::default() };
/// match ia.pz()?.address_handle(&path) {
///     Ok(there) => assert_eq!(there.path()?.remote_gid, [0xfe; 16]),
///     Err(refused) => println!("{refused}"), // iWARP: there are no datagrams
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AddressHandle(Arc<ual::AddressHandle>);

context!(AddressHandle, handle => handle.0.tag());

impl Pz {
    /// Creates an address handle for datagrams.
    pub fn address_handle(&self, path: &DatagramPath) -> Result<AddressHandle> {
        Ok(AddressHandle(self.ual().create_address_handle(path)?))
    }
}

impl AddressHandle {
    /// Its path, with what the provider filled in (`it_address_handle_query`).
    pub fn path(&self) -> Result<DatagramPath> {
        Ok(self.0.path()?)
    }

    /// Changes the path (`it_address_handle_modify`).
    pub fn modify(&self, path: &DatagramPath) -> Result<()> {
        Ok(self.0.modify(path)?)
    }

    pub(crate) fn ual(&self) -> &ual::AddressHandle {
        &self.0
    }
}

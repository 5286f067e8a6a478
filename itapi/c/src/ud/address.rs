//! Address handles. The object owns the access layer's. Any thread.

use std::sync::Arc;

use ual::{AddressHandle, Ia};

use super::path;
use crate::failure::Failure;
use crate::object::{CloseOrder, Kind, Object};
use crate::ptr::{self, Out};
use crate::pz::PzObject;
use crate::status::{self, Status};
use crate::types::*;
use crate::{boundary, check_bits, check_mask, object};

/// The object behind the handle of an address handle.
pub(crate) struct AddressObject {
    pub(crate) inner: Arc<AddressHandle>,
}

impl Object for AddressObject {
    fn kind() -> &'static Kind {
        &Kind {
            number: IT_HANDLE_TYPE_ADDR,
            name: "address handle",
            wrong: status::IT_ERR_INVALID_AH,
        }
    }

    fn ia(&self) -> Arc<Ia> {
        self.inner.pz().ia().clone()
    }

    fn close_order(&self) -> CloseOrder {
        CloseOrder::Endpoints
    }

    fn close(&self) -> ual::Result<()> {
        self.inner.close()
    }
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_address_handle_create(
    pz_handle: it_pz_handle_t,
    destination_path: *const it_path_t,
    ah_flags: it_ah_flags_t,
    addr_handle: *mut it_addr_handle_t,
) -> Status {
    boundary::create(|| {
        let pz = object::find::<PzObject>(pz_handle.cast())?;
        // SAFETY: contract of a C caller.
        let path = unsafe { ptr::read(destination_path, "destination_path") }?;
        // With or without it, what is zero is filled in.
        check_bits(ah_flags, IT_AH_PATH_COMPLETE, status::IT_ERR_INVALID_FLAGS, "ah_flags")?;
        // SAFETY: contract of a C caller.
        let out = unsafe { Out::new(addr_handle, "addr_handle") }?;
        let ia = pz.inner.ia();
        super::endpoint::check_datagrams(ia)?;
        let path = path::from_c(ia, &path)?;
        let inner = pz.inner.create_address_handle(&path);
        let inner = inner.map_err(Failure::by(status::IT_ERR_INVALID_ADDRESS))?;
        let raw = object::insert(|raw| {
            inner.tag().set(raw.number());
            AddressObject { inner }
        })?;
        out.write(object::handle(raw.number()));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn it_address_handle_free(addr_handle: it_addr_handle_t) -> Status {
    boundary::call(|| {
        let address = object::find::<AddressObject>(addr_handle.cast())?;
        address.inner.close().map_err(Failure::by(status::IT_ERR_INVALID_AH))?;
        object::forget(addr_handle.cast());
        Ok(())
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_address_handle_modify(
    addr_handle: it_addr_handle_t,
    mask: it_addr_param_mask_t,
    params: *const it_addr_param_t,
) -> Status {
    boundary::call(|| {
        let address = object::find::<AddressObject>(addr_handle.cast())?;
        check_mask(mask, IT_ADDR_PARAM_PATH)?;
        // SAFETY: contract of a C caller.
        let params = unsafe { ptr::read(params, "params") }?;
        if mask == 0 {
            return Ok(());
        }
        let path = path::from_c(address.inner.pz().ia(), &params.path)?;
        address.inner.modify(&path).map_err(Failure::by(status::IT_ERR_INVALID_ADDRESS))
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_address_handle_query(
    addr_handle: it_addr_handle_t,
    mask: it_addr_param_mask_t,
    params: *mut it_addr_param_t,
) -> Status {
    boundary::call(|| {
        let address = object::find::<AddressObject>(addr_handle.cast())?;
        check_mask(mask, (IT_ADDR_PARAM_PATH << 1) - 1)?;
        // SAFETY: contract of a C caller.
        let out = unsafe { Out::new(params, "params") }?;
        let pz = address.inner.pz();
        let path = address.inner.path().map_err(Failure::by(status::IT_ERR_INVALID_AH))?;
        out.write(it_addr_param_t {
            ia: object::handle(pz.ia().tag().get()),
            pz: object::handle(pz.tag().get()),
            path: path::to_c(&path),
        });
        Ok(())
    })
}

//! Protection zones. No state of its own; the caller's thread.

use std::sync::Arc;

use ual::Ia;

use super::boundary;
use super::failure::Failure;
use super::ia::IaObject;
use super::object::{self, CloseOrder, Kind, Object};
use super::ptr::Out;
use super::status::{self, Status};
use super::types::*;

/// The object behind the handle of a protection zone.
pub(crate) struct PzObject {
    pub(crate) inner: Arc<ual::Pz>,
}

impl Object for PzObject {
    fn kind() -> &'static Kind {
        &Kind {
            number: IT_HANDLE_TYPE_PZ,
            name: "protection zone",
            wrong: status::IT_ERR_INVALID_PZ,
        }
    }

    fn ia(&self) -> Arc<Ia> {
        self.inner.ia().clone()
    }

    fn close_order(&self) -> CloseOrder {
        CloseOrder::Zones
    }

    fn close(&self) -> ual::Result<()> {
        self.inner.close()
    }
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_pz_create(
    ia_handle: it_ia_handle_t,
    pz_handle: *mut it_pz_handle_t,
) -> Status {
    boundary::create(|| {
        let ia = object::find::<IaObject>(ia_handle.cast())?;
        // SAFETY: contract of a C caller.
        let out = unsafe { Out::new(pz_handle, "pz_handle") }?;
        let pz = ia.inner.create_pz().map_err(Failure::by(status::IT_ERR_RESOURCES))?;
        let raw = object::insert(|raw| {
            pz.tag().set(raw.number());
            PzObject { inner: pz }
        })?;
        out.write(object::handle(raw.number()));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn it_pz_free(pz_handle: it_pz_handle_t) -> Status {
    boundary::call(|| {
        let pz = object::find::<PzObject>(pz_handle.cast())?;
        pz.inner.close().map_err(Failure::by(status::IT_ERR_PZ_BUSY))?;
        object::forget(pz_handle.cast());
        Ok(())
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_pz_query(
    pz_handle: it_pz_handle_t,
    mask: it_pz_param_mask_t,
    params: *mut it_pz_param_t,
) -> Status {
    boundary::call(|| {
        let pz = object::find::<PzObject>(pz_handle.cast())?;
        super::check_mask(mask, IT_PZ_PARAM_ALL | IT_PZ_PARAM_IA)?;
        // SAFETY: contract of a C caller.
        let out = unsafe { Out::new(params, "params") }?;
        out.write(it_pz_param_t { ia: object::handle(pz.inner.ia().tag().get()) });
        Ok(())
    })
}

//! Memory windows: creation and queries; `link` links and unlinks them.
//!
//! The object owns the access layer's window and a copy of its last link. Any thread.

use std::sync::Arc;

use arc_swap::ArcSwap;
use ual::vp_api::{Addressing, Capabilities, MwKind, Sge, Stag};
use ual::{Ia, Keys};

use super::failure::{Failure, Outcome};
use super::lmr::too_long;
use super::object::{CloseOrder, Kind, Object};
use super::ptr::Out;
use super::pz::PzObject;
use super::status::{self, Status};
use super::types::*;
use super::{access, boundary, check_mask, object, stags};

/// The object behind the handle of a memory window.
pub(crate) struct RmrObject {
    pub(crate) inner: Arc<ual::Rmr>,
    pub(crate) handle: u64,
    /// The handle of its adapter.
    pub(crate) ia: u64,
    /// The type as requested.
    kind: it_rmr_type_t,
    /// A peer's old STag must not give access.
    keys: Keys,
    view: ArcSwap<View>,
}

impl Object for RmrObject {
    fn kind() -> &'static Kind {
        &Kind {
            number: IT_HANDLE_TYPE_RMR,
            name: "memory window",
            wrong: status::IT_ERR_INVALID_RMR,
        }
    }

    fn ia(&self) -> Arc<Ia> {
        self.inner.pz().ia().clone()
    }

    fn close_order(&self) -> CloseOrder {
        CloseOrder::Windows
    }

    fn close(&self) -> ual::Result<()> {
        self.inner.close()
    }
}

/// A window's last link, in tagged offsets of the window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) key: u8,
    pub(crate) first: u64,
    pub(crate) len: u64,
}

impl RmrObject {
    /// Its STag with the key of the last link.
    pub(crate) fn stag(&self) -> Stag {
        Stag::new(self.inner.id().0, self.view.load().key)
    }

    fn is_keyed_by_device(&self) -> bool {
        let attrs = self.inner.pz().ia().attrs();
        self.kind != IT_RMR_TYPE_NARROW && attrs.capabilities.contains(Capabilities::PICKS_WIDE_KEY)
    }

    /// The key of the next link.
    pub(crate) fn next_key(&self) -> u8 {
        self.keys.next()
    }

    /// A link was posted, with this key unless the device picks one.
    pub(crate) fn set_view(&self, key: u8, to: u64, len: u64, addressing: Addressing) {
        let first = if addressing == Addressing::Absolute { to } else { 0 };
        let key = if self.is_keyed_by_device() {
            self.inner.query().ok().and_then(|info| info.stag).map_or(key, Stag::key)
        } else {
            key
        };
        self.view.store(Arc::new(View { key, first, len }));
    }

    /// Part of what it is linked to, as the sink of an RDMA Read.
    pub(crate) fn sge(&self, to: u64, len: u64) -> Outcome<Sge> {
        let view = **self.view.load();
        let short = u32::try_from(len).map_err(|_| too_long(len))?;
        let end = to.checked_sub(view.first).and_then(|start| start.checked_add(len));
        if len != 0 && end.is_none_or(|end| end > view.len) {
            let text = format!(
                "{len} octets at {to:#x} are outside the memory window, which has {} at {:#x}",
                view.len, view.first
            );
            return Err(Failure::new(status::IT_ERR_RANGE, text));
        }
        Ok(Sge { stag: Stag::new(self.inner.id().0, view.key), len: short, to })
    }
}

impl Drop for RmrObject {
    fn drop(&mut self) {
        stags::remove(self.inner.pz().ia(), Stag::new(self.inner.id().0, 0), self.handle);
    }
}

fn create(
    pz_handle: it_pz_handle_t,
    kind: it_rmr_type_t,
    out: Outcome<Out<it_rmr_handle_t>>,
) -> Outcome {
    let pz = object::find::<PzObject>(pz_handle.cast())?;
    let out = out?;
    let (ia, pz) = (pz.inner.ia(), &pz.inner);
    let offers = |kind| ia.attrs().capabilities.contains(kind);
    let (verbs, needed) = match kind {
        IT_RMR_TYPE_NARROW => (MwKind::Narrow, Capabilities::NARROW_MW),
        // Windows of version 1.0 can be linked again without an unlink, as wide ones can.
        IT_RMR_TYPE_DEFAULT if !offers(Capabilities::WIDE_MW) => {
            (MwKind::Narrow, Capabilities::NARROW_MW)
        }
        IT_RMR_TYPE_DEFAULT | IT_RMR_TYPE_WIDE => (MwKind::Wide, Capabilities::WIDE_MW),
        _ => {
            let text = format!("rmr_type is {kind}, which is no type of RMR");
            return Err(Failure::new(status::IT_ERR_INVALID_RMR_TYPE, text));
        }
    };
    if !offers(needed) {
        let text = format!("{} has no memory windows of this type: {verbs:?}", ia.device());
        return Err(Failure::new(status::IT_ERR_OP_NOT_SUPPORTED, text));
    }
    let inner = pz.create_rmr(verbs).map_err(Failure::by(status::IT_ERR_RESOURCES))?;
    let stag = Stag::new(inner.id().0, 0);
    let raw = object::insert(|raw| {
        inner.tag().set(raw.number());
        RmrObject {
            inner,
            handle: raw.number(),
            ia: ia.tag().get(),
            kind,
            keys: Keys::default(),
            view: ArcSwap::from_pointee(View { key: 0, first: 0, len: 0 }),
        }
    })?;
    stags::add(ia, stag, raw.number());
    out.write(object::handle(raw.number()));
    Ok(())
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_rmr_create10(
    pz_handle: it_pz_handle_t,
    rmr_handle: *mut it_rmr_handle_t,
) -> Status {
    // SAFETY: same contract.
    unsafe { it_rmr_create20(pz_handle, IT_RMR_TYPE_DEFAULT, rmr_handle) }
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_rmr_create20(
    pz_handle: it_pz_handle_t,
    rmr_type: it_rmr_type_t,
    rmr_handle: *mut it_rmr_handle_t,
) -> Status {
    // SAFETY: contract of a C caller.
    boundary::create(|| create(pz_handle, rmr_type, unsafe { Out::new(rmr_handle, "rmr_handle") }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn it_rmr_free(rmr_handle: it_rmr_handle_t) -> Status {
    boundary::call(|| {
        let rmr = object::find::<RmrObject>(rmr_handle.cast())?;
        rmr.inner.close().map_err(Failure::by(status::IT_ERR_RESOURCES))?;
        object::forget(rmr_handle.cast());
        Ok(())
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_rmr_query(
    rmr_handle: it_rmr_handle_t,
    mask: it_rmr_param_mask_t,
    params: *mut it_rmr_param_t,
) -> Status {
    boundary::call(|| {
        let rmr = object::find::<RmrObject>(rmr_handle.cast())?;
        check_mask(mask, (IT_RMR_PARAM_ADDR_MODE << 1) - 1)?;
        // SAFETY: contract of a C caller.
        let out = unsafe { Out::new(params, "params") }?;
        let info = rmr.inner.query().map_err(Failure::by(status::IT_ERR_INVALID_RMR))?;
        let pz = rmr.inner.pz();
        let lmr = info.region.map_or(0, |region| stags::handle(pz.ia(), region));
        out.write(it_rmr_param_t {
            ia: object::handle(pz.ia().tag().get()),
            pz: object::handle(pz.tag().get()),
            linked: if info.stag.is_some() { IT_TRUE } else { IT_FALSE },
            lmr: object::handle(lmr),
            addr: object::handle(info.to),
            length: info.len,
            privs: access::to_c(info.access),
            rmr_context: info.stag.map_or(0, |stag| stag.0.into()),
            r#type: rmr.kind,
            addr_mode: access::mode(info.addressing),
        });
        Ok(())
    })
}

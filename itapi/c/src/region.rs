//! Memory regions: queries, changes, coherence. No state of its own; the caller's thread.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use kal_os::lock;
use ual::LmrInit;

use super::failure::{Failure, Outcome};
use super::lmr::{LmrObject, Memory, View, outside};
use super::ptr::{self, List, Out};
use super::pz::PzObject;
use super::status::{self, Status};
use super::types::*;
use super::{access, boundary, check_mask, object, stags};

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_lmr_query(
    lmr_handle: it_lmr_handle_t,
    mask: it_lmr_param_mask_t,
    params: *mut it_lmr_param_t,
) -> Status {
    boundary::call(|| {
        let lmr = object::find::<LmrObject>(lmr_handle.cast())?;
        check_mask(mask, (IT_LMR_PARAM_IOBL_TYPE << 1) - 1)?;
        // SAFETY: contract of a C caller.
        let out = unsafe { Out::new(params, "params") }?;
        let info = lmr.inner.query().map_err(Failure::by(status::IT_ERR_INVALID_LMR))?;
        let (pz, requested) = (lmr.inner.pz(), *lock(&lmr.requested));
        let addr = object::handle(info.addr);
        out.write(it_lmr_param_t {
            ia: object::handle(pz.ia().tag().get()),
            pz: object::handle(pz.tag().get()),
            addr,
            length: info.len,
            privs: access::to_c(info.access),
            flags: requested.flags,
            shared_id: requested.shared_id,
            rmr_context: if info.valid { info.stag.0.into() } else { 0 },
            actual_addr: addr,
            actual_length: info.len,
            addr_mode: access::mode(info.addressing),
            linked: if info.valid { IT_TRUE } else { IT_FALSE },
            iobl_num_elts: requested.elements,
            iobl_type: requested.list,
        });
        Ok(())
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_lmr_modify(
    lmr_handle: it_lmr_handle_t,
    mask: it_lmr_param_mask_t,
    params: *const it_lmr_param_t,
) -> Status {
    boundary::call(|| {
        let lmr = object::find::<LmrObject>(lmr_handle.cast())?;
        let known = IT_LMR_PARAM_PZ
            | IT_LMR_PARAM_ADDR
            | IT_LMR_PARAM_LENGTH
            | IT_LMR_PARAM_MEM_PRIV
            | IT_LMR_PARAM_ADDR_MODE;
        check_mask(mask, known)?;
        // SAFETY: contract of a C caller.
        let asked = unsafe { ptr::read(params, "params") }?;
        modify(&lmr, mask, &asked)
    })
}

/// Everything is checked before the verb: a region whose re-registration is refused is lost.
fn modify(lmr: &LmrObject, mask: it_lmr_param_mask_t, asked: &it_lmr_param_t) -> Outcome {
    let chosen = |bit| mask & bit != 0;
    let old = lmr.inner.query().map_err(Failure::by(status::IT_ERR_INVALID_LMR))?;
    let view = lmr.view();
    let pz = match chosen(IT_LMR_PARAM_PZ) {
        true => object::find::<PzObject>(asked.pz.cast())?.inner.clone(),
        false => lmr.inner.pz(),
    };
    if !Arc::ptr_eq(pz.ia(), lmr.inner.pz().ia()) {
        let text = "the protection zone is of another interface adapter";
        return Err(Failure::new(status::IT_ERR_INVALID_PZ, text));
    }
    let kept = view.range.as_ref().filter(|_| old.valid);
    let addr = match (chosen(IT_LMR_PARAM_ADDR), kept) {
        (true, _) => asked.addr.cast(),
        (false, Some(range)) => range.addr().as_ptr(),
        (false, None) => std::ptr::null_mut(),
    };
    let length = if chosen(IT_LMR_PARAM_LENGTH) { asked.length } else { old.len };
    let most = pz.ia().attrs();
    let addressing = match chosen(IT_LMR_PARAM_ADDR_MODE) {
        true => access::addressing(asked.addr_mode, most)?,
        false => old.addressing,
    };
    let privs = match chosen(IT_LMR_PARAM_MEM_PRIV) {
        true => asked.privs,
        false => access::to_c(old.access),
    };
    let access = access::of_region(privs, addressing)?;
    let range = Memory::at(addr, length).range(most.max_mr_octets)?;
    let key = lmr.keys.next();
    let init = LmrInit { addressing, key, ..LmrInit::new(range.clone(), access) };
    lmr.inner.modify(&pz, init).map_err(Failure::by(status::IT_ERR_ACCESS))?;
    let stag = lmr.inner.stag();
    stags::remove(pz.ia(), view.stag, lmr.handle);
    stags::add(pz.ia(), stag, lmr.handle);
    lmr.set_view(View { stag, range: Some(range), addressing }, None);
    Ok(())
}

/// Checks the segments; this machine's memory is coherent, so that a fence is all it takes.
///
/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
unsafe fn synchronise(segments: *const it_lmr_triplet_t, count: usize) -> Outcome {
    if count == 0 {
        let text = "num_segments is 0: there is nothing to synchronise";
        return Err(Failure::new(status::IT_ERR_INVALID_NUM_SEGMENTS, text));
    }
    // SAFETY: same contract.
    let segments = unsafe { List::new(segments, count, "local_segments") }?;
    for segment in segments.iter() {
        let lmr = object::find::<LmrObject>(segment.lmr.cast())?;
        // SAFETY: plain data: an address is a number, too.
        let to = unsafe { segment.addr.rel };
        let view = lmr.view();
        if !view.holds(to, segment.length) {
            return Err(outside(&view, to, segment.length));
        }
    }
    fence(Ordering::SeqCst);
    Ok(())
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_lmr_flush_to_mem(
    local_segments: *const it_lmr_triplet_t,
    num_segments: usize,
) -> Status {
    // SAFETY: contract of a C caller.
    boundary::call(|| unsafe { synchronise(local_segments, num_segments) })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_lmr_refresh_from_mem(
    local_segments: *const it_lmr_triplet_t,
    num_segments: usize,
) -> Status {
    // SAFETY: contract of a C caller.
    boundary::call(|| unsafe { synchronise(local_segments, num_segments) })
}

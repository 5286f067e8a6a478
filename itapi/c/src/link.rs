//! Linking and unlinking of regions and windows: work requests of a send queue. No state of its own;
//! the caller's thread.

use ual::vp_api::{Access, Addressing, BindMw, Capabilities, FastRegister, SendOp, Stag};

use super::access;
use super::ep::EpObject;
use super::failure::{Failure, Outcome};
use super::lmr::{self, LmrObject, Memory};
use super::object::{self, Ref};
use super::post::{Cookie, Posting, both, need};
use super::ptr::Out;
use super::rmr::RmrObject;
use super::sgl::elsewhere;
use super::status;
use super::types::*;

both! {
    it_lmr_link, it_lmr_link_zrl = lmr_link(
        lmr_handle: it_lmr_handle_t,
        addr: *const u8,
        iobl: *const it_iobl_t,
        length: it_length_t,
        addr_mode: it_addr_mode_t,
        privs: it_mem_priv_t,
        ep_handle: it_ep_handle_t;
        dto_flags: it_dto_flags_t,
        rmr_context: *mut it_rmr_context_t);
    it_lmr_unlink, it_lmr_unlink_zrl = lmr_unlink(
        lmr_handle: it_lmr_handle_t,
        ep_handle: it_ep_handle_t;
        dto_flags: it_dto_flags_t);
    it_rmr_link, it_rmr_link_zrl = rmr_link(
        rmr_handle: it_rmr_handle_t,
        lmr_handle: it_lmr_handle_t,
        addr: *mut u8,
        length: it_length_t,
        addr_mode: it_addr_mode_t,
        privs: it_mem_priv_t,
        ep_handle: it_ep_handle_t;
        dto_flags: it_dto_flags_t,
        rmr_context: *mut it_rmr_context_t);
    it_rmr_bind10, it_rmr_bind10_zrl = rmr_bind(
        rmr_handle: it_rmr_handle_t,
        lmr_handle: it_lmr_handle_t,
        addr: *mut u8,
        length: it_length_t,
        privs: it_mem_priv_t,
        ep_handle: it_ep_handle_t;
        dto_flags: it_dto_flags_t,
        rmr_context: *mut it_rmr_context_t);
    it_rmr_unlink, it_rmr_unlink_zrl = rmr_unlink(
        rmr_handle: it_rmr_handle_t,
        ep_handle: it_ep_handle_t;
        dto_flags: it_dto_flags_t);
}

/// A region and the endpoint that is to link or unlink it.
fn region(
    lmr_handle: it_lmr_handle_t,
    ep_handle: it_ep_handle_t,
) -> Outcome<(Ref<LmrObject>, Ref<EpObject>)> {
    let lmr = object::find::<LmrObject>(lmr_handle.cast())?;
    let ep = object::find::<EpObject>(ep_handle.cast())?;
    if lmr.ia != ep.ia {
        return Err(elsewhere(status::IT_ERR_INVALID_LMR, "region"));
    }
    Ok((lmr, ep))
}

/// A window and the endpoint that is to link or unlink it.
fn window(
    rmr_handle: it_rmr_handle_t,
    ep_handle: it_ep_handle_t,
) -> Outcome<(Ref<RmrObject>, Ref<EpObject>)> {
    let rmr = object::find::<RmrObject>(rmr_handle.cast())?;
    let ep = object::find::<EpObject>(ep_handle.cast())?;
    if rmr.ia != ep.ia {
        return Err(elsewhere(status::IT_ERR_INVALID_RMR, "window"));
    }
    Ok((rmr, ep))
}

/// # Safety
/// As the entry point.
#[allow(clippy::too_many_arguments)] // the C function's
unsafe fn lmr_link(
    lmr_handle: it_lmr_handle_t,
    addr: *const u8,
    iobl: *const it_iobl_t,
    length: it_length_t,
    addr_mode: it_addr_mode_t,
    privs: it_mem_priv_t,
    ep_handle: it_ep_handle_t,
    cookie: Cookie,
    dto_flags: it_dto_flags_t,
    rmr_context: *mut it_rmr_context_t,
) -> Outcome {
    let (lmr, ep) = region(lmr_handle, ep_handle)?;
    need(&ep, Capabilities::FAST_REGISTER, "link memory regions")?;
    if !ep.is_privileged() {
        let text = "the endpoint was created without priv_ops_enable";
        return Err(Failure::new(status::IT_ERR_PRIV_OPS_UNAVAILABLE, text));
    }
    let posting = Posting::new(cookie, dto_flags, IT_LMR_LINK_CMPL_EVENT)?;
    // SAFETY: same contract.
    let context = unsafe { Out::optional(rmr_context) };
    let most = ep.inner.ia().attrs();
    let addressing = access::addressing(addr_mode, most)?;
    let access = access::of_region(privs, addressing)?;
    // SAFETY: same contract.
    let memory = unsafe { Memory::read(addr.cast_mut(), iobl, length, addr_mode) }?;
    let range = memory.range(most.max_mr_octets)?;
    let old = lmr.view().stag;
    // A peer's old STag must not give access.
    let stag = Stag::new(old.index(), lmr.keys.next());
    let request = FastRegister { stag, range: range.clone(), addressing, access };
    posting.run(&ep, SendOp::FastRegister(Box::new(request)), &[])?;
    lmr.set_view(lmr::View { stag, range: Some(range), addressing }, memory.list());
    if let Some(context) = context {
        context.write(stag.0.into());
    }
    Ok(())
}

/// # Safety
/// As the entry point.
unsafe fn lmr_unlink(
    lmr_handle: it_lmr_handle_t,
    ep_handle: it_ep_handle_t,
    cookie: Cookie,
    dto_flags: it_dto_flags_t,
) -> Outcome {
    let (lmr, ep) = region(lmr_handle, ep_handle)?;
    need(&ep, Capabilities::INVALIDATE, "unlink memory regions")?;
    let posting = Posting::new(cookie, dto_flags, IT_LMR_LINK_CMPL_EVENT)?;
    posting.run(&ep, SendOp::InvalidateLocal { stag: lmr.view().stag }, &[])
}

/// # Safety
/// As the entry point.
#[allow(clippy::too_many_arguments)] // the C function's
unsafe fn rmr_bind(
    rmr_handle: it_rmr_handle_t,
    lmr_handle: it_lmr_handle_t,
    addr: *mut u8,
    length: it_length_t,
    privs: it_mem_priv_t,
    ep_handle: it_ep_handle_t,
    cookie: Cookie,
    dto_flags: it_dto_flags_t,
    rmr_context: *mut it_rmr_context_t,
) -> Outcome {
    let mode = IT_ADDR_MODE_ABSOLUTE;
    let (rmr, lmr, ep) = (rmr_handle, lmr_handle, ep_handle);
    // SAFETY: same contract.
    unsafe { rmr_link(rmr, lmr, addr, length, mode, privs, ep, cookie, dto_flags, rmr_context) }
}

/// # Safety
/// As the entry point.
#[allow(clippy::too_many_arguments)] // the C function's
unsafe fn rmr_link(
    rmr_handle: it_rmr_handle_t,
    lmr_handle: it_lmr_handle_t,
    addr: *mut u8,
    length: it_length_t,
    addr_mode: it_addr_mode_t,
    privs: it_mem_priv_t,
    ep_handle: it_ep_handle_t,
    cookie: Cookie,
    dto_flags: it_dto_flags_t,
    rmr_context: *mut it_rmr_context_t,
) -> Outcome {
    let (rmr, ep) = window(rmr_handle, ep_handle)?;
    let posting = Posting::new(cookie, dto_flags, IT_RMR_LINK_CMPL_EVENT)?;
    // SAFETY: same contract.
    let context = unsafe { Out::optional(rmr_context) };
    let addressing = access::addressing(addr_mode, ep.inner.ia().attrs())?;
    let (key, to) = (rmr.next_key(), addr.addr() as u64);
    let mut bind = BindMw {
        window: rmr.inner.id(),
        key,
        region: Stag::default(),
        to,
        len: length,
        addressing,
        access: Access::empty(),
    };
    // Of length 0 it unlinks (version 1.0), and needs no region.
    if length != 0 {
        let (lmr, _) = region(lmr_handle, ep_handle)?;
        (bind.region, bind.access) = (part_of(&lmr, to, length)?, access::of_window(privs)?);
    }
    posting.run(&ep, SendOp::BindMw(bind), &[])?;
    rmr.set_view(key, to, length, addressing);
    if let Some(context) = context {
        context.write(rmr.stag().0.into());
    }
    Ok(())
}

/// The region's STag, if a window can be linked to this part of it.
fn part_of(lmr: &LmrObject, to: u64, length: u64) -> Outcome<Stag> {
    let view = lmr.view();
    // RDMAC 7.10: no window on a zero-based region.
    if view.addressing == Addressing::ZeroBased {
        let text =
            "the memory region has relative addresses; a window needs one with absolute ones";
        return Err(Failure::new(status::IT_ERR_INVALID_ADDR_MODE, text));
    }
    if !view.holds(to, length) {
        return Err(lmr::outside(&view, to, length));
    }
    Ok(view.stag)
}

/// # Safety
/// As the entry point.
unsafe fn rmr_unlink(
    rmr_handle: it_rmr_handle_t,
    ep_handle: it_ep_handle_t,
    cookie: Cookie,
    dto_flags: it_dto_flags_t,
) -> Outcome {
    let (rmr, ep) = window(rmr_handle, ep_handle)?;
    need(&ep, Capabilities::INVALIDATE, "unlink memory windows")?;
    let posting = Posting::new(cookie, dto_flags, IT_RMR_LINK_CMPL_EVENT)?;
    posting.run(&ep, SendOp::InvalidateLocal { stag: rmr.stag() }, &[])
}

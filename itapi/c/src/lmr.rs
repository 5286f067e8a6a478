//! Memory regions: registration, and the view of them that posting needs.
//!
//! The object owns the access layer's region and a view of it that posting reads without a lock. The memory is
//! the caller's, which keeps it mapped while it is registered. Any thread.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use kal_os::lock;
use ual::vp_api::{Addressing, Capabilities, MemRange, Sge, Stag};
use ual::{Ia, Keys, LmrInit};

use super::failure::{Failure, Outcome};
use super::iobl::{self, Buffer};
use super::object::{CloseOrder, Kind, Object};
use super::ptr::{self, Out};
use super::pz::PzObject;
use super::status::{self, Status};
use super::types::*;
use super::{access, boundary, check_bits, object, share, stags};

/// The object behind the handle of a memory region.
pub(crate) struct LmrObject {
    pub(crate) inner: Arc<ual::Lmr>,
    pub(crate) handle: u64,
    /// The handle of its adapter.
    pub(crate) ia: u64,
    /// A peer's old STag must not give access.
    pub(crate) keys: Keys,
    view: ArcSwap<View>,
    pub(crate) requested: Mutex<Requested>,
}

impl Object for LmrObject {
    fn kind() -> &'static Kind {
        &Kind {
            number: IT_HANDLE_TYPE_LMR,
            name: "memory region",
            wrong: status::IT_ERR_INVALID_LMR,
        }
    }

    fn ia(&self) -> Arc<Ia> {
        self.inner.pz().ia().clone()
    }

    fn close_order(&self) -> CloseOrder {
        CloseOrder::Regions
    }

    fn close(&self) -> ual::Result<()> {
        self.inner.close()
    }
}

/// Where the region is, for posting: a request outside it is refused at once. The check that protects memory
/// is the provider's.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) stag: Stag,
    /// `None` until it is linked for the first time.
    pub(crate) range: Option<MemRange>,
    pub(crate) addressing: Addressing,
}

/// Arguments of the caller that only queries return.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Requested {
    pub(crate) flags: it_lmr_flag_t,
    pub(crate) shared_id: u32,
    pub(crate) elements: usize,
    pub(crate) list: it_iobl_type_t,
}

impl View {
    fn first(&self) -> u64 {
        let addr = |range: &MemRange| range.addr().as_ptr().addr() as u64;
        self.range.as_ref().map_or(0, |range| self.addressing.base(addr(range)))
    }

    fn len(&self) -> u64 {
        self.range.as_ref().map_or(0, |range| range.len() as u64)
    }

    /// True if `len` octets at tagged offset `to` are inside.
    pub(crate) fn holds(&self, to: u64, len: u64) -> bool {
        let end = to.checked_sub(self.first()).and_then(|start| start.checked_add(len));
        end.is_some_and(|end| end <= self.len())
    }
}

impl LmrObject {
    /// Part of the region, for a work request. Nothing is checked if it has no octets (RDMAC 8.1.3.2).
    #[inline]
    pub(crate) fn sge(&self, to: u64, len: u64) -> Outcome<Sge> {
        let view = self.view.load();
        let short = u32::try_from(len).map_err(|_| too_long(len))?;
        if len != 0 && !view.holds(to, len) {
            return Err(outside(&view, to, len));
        }
        Ok(Sge { stag: view.stag, len: short, to })
    }

    pub(crate) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// The region gets other memory or another key.
    pub(crate) fn set_view(&self, view: View, list: Option<Buffer>) {
        self.view.store(Arc::new(view));
        let mut requested = lock(&self.requested);
        requested.elements = list.map_or(0, |list| list.elements);
        requested.list = list.map_or(0, |list| list.kind);
    }
}

impl Drop for LmrObject {
    fn drop(&mut self) {
        stags::remove(self.inner.pz().ia(), self.inner.stag(), self.handle);
    }
}

/// The refusal of a segment longer than a message.
#[cold]
pub(crate) fn too_long(len: u64) -> Failure {
    let text = format!("{len} octets at once; a message has at most {}", u32::MAX);
    Failure::new(status::IT_ERR_PAYLOAD_SIZE, text)
}

/// The refusal of octets outside a region.
#[cold]
pub(crate) fn outside(view: &View, to: u64, len: u64) -> Failure {
    let text = match view.range {
        None => "the memory region is not linked to memory".into(),
        Some(_) => format!(
            "{len} octets at {to:#x} are outside the memory region, which has {} at {:#x}",
            view.len(),
            view.first()
        ),
    };
    Failure::new(status::IT_ERR_RANGE, text)
}

/// What to register, or to link.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    addr: *mut u8,
    list: Option<Buffer>,
    length: u64,
}

impl Memory {
    /// `length` octets at `addr`.
    pub(crate) fn at(addr: *mut u8, length: u64) -> Self {
        Self { addr, list: None, length }
    }

    /// `length` octets at `addr`, or of a list, if there is one.
    ///
    /// # Safety
    /// Pointers obey the contract of a C caller (see `ptr`).
    pub(crate) unsafe fn read(
        addr: *mut u8,
        iobl: *const it_iobl_t,
        length: it_length_t,
        mode: it_addr_mode_t,
    ) -> Outcome<Self> {
        if iobl.is_null() {
            return Ok(Self::at(addr, length));
        }
        // SAFETY: same contract.
        let list = unsafe { iobl::read(iobl) }?;
        if length > list.room {
            let text = format!("the list has {} octets, not {length}", list.room);
            return Err(Failure::new(status::IT_ERR_INVALID_IOBL, text));
        }
        // The list has no other address than that of its memory.
        if mode == IT_ADDR_MODE_ABSOLUTE && !addr.is_null() && addr != list.first {
            let text = format!("addr is {addr:?}, but the list begins at {:?}", list.first);
            return Err(Failure::new(status::IT_ERR_INVALID_IOBL, text));
        }
        Ok(Self { addr: list.first, list: Some(list), length })
    }

    pub(crate) fn list(&self) -> Option<Buffer> {
        self.list
    }

    /// As a range that the caller keeps mapped.
    pub(crate) fn range(&self, most: u64) -> Outcome<MemRange> {
        let addr = NonNull::new(self.addr).ok_or_else(|| ptr::null("addr"))?;
        if self.length == 0 {
            return Err(Failure::new(status::IT_ERR_INVALID_LENGTH, "length is 0"));
        }
        if self.length > most {
            let text = format!("length is {}; at most {most} are possible", self.length);
            return Err(Failure::new(status::IT_ERR_RESOURCE_LMR_LENGTH, text));
        }
        if (self.addr.addr() as u64).checked_add(self.length).is_none() {
            let text = format!("{} octets at {addr:?} reach beyond memory", self.length);
            return Err(Failure::new(status::IT_ERR_FAULT, text));
        }
        // SAFETY: the header makes every caller promise it: the memory stays mapped until the region
        // is freed or unlinked. The provider refuses memory that is not mapped now.
        Ok(unsafe { MemRange::unowned(addr, self.length as usize) })
    }
}

const FLAGS: it_lmr_flag_t =
    IT_LMR_FLAG_NONE | IT_LMR_FLAG_SHARED | IT_LMR_FLAG_NONCOHERENT | IT_LMR_FLAG_NON_SHAREABLE;

/// The arguments of the three versions of `it_lmr_create`.
struct Create {
    pz_handle: it_pz_handle_t,
    memory: Memory,
    addr_mode: it_addr_mode_t,
    privs: it_mem_priv_t,
    flags: it_lmr_flag_t,
    shared_id: u32,
}

impl Create {
    /// # Safety
    /// Pointers obey the contract of a C caller (see `ptr`).
    unsafe fn run(
        self,
        lmr_handle: *mut it_lmr_handle_t,
        rmr_context: *mut it_rmr_context_t,
    ) -> Outcome {
        let pz = object::find::<PzObject>(self.pz_handle.cast())?;
        // SAFETY: same contract.
        let out = unsafe { Out::new(lmr_handle, "lmr_handle") }?;
        // SAFETY: same contract.
        let context = unsafe { Out::optional(rmr_context) };
        check_bits(self.flags, FLAGS, status::IT_ERR_INVALID_FLAGS, "flags")?;
        let most = pz.inner.ia().attrs();
        let addressing = access::addressing(self.addr_mode, most)?;
        let access = access::of_region(self.privs, addressing)?;
        let range = self.memory.range(most.max_mr_octets)?;
        let init = LmrInit { addressing, ..LmrInit::new(range.clone(), access) };
        let shared = self.flags & IT_LMR_FLAG_SHARED != 0;
        let inner = match shared {
            true => share::register(&pz.inner, self.shared_id, init),
            false => pz.inner.create_lmr(init),
        };
        let inner = inner.map_err(Failure::by(status::IT_ERR_ACCESS))?;
        let stag = inner.stag();
        let list = self.memory.list();
        let requested = Requested {
            flags: self.flags,
            shared_id: self.shared_id,
            elements: list.map_or(0, |list| list.elements),
            list: list.map_or(0, |list| list.kind),
        };
        let handle = store(inner, View { stag, range: Some(range), addressing }, requested)?;
        if let Some(context) = context {
            context.write(stag.0.into());
        }
        out.write(object::handle(handle));
        Ok(())
    }
}

fn store(inner: Arc<ual::Lmr>, view: View, requested: Requested) -> Outcome<u64> {
    let (pz, stag) = (inner.pz(), inner.stag());
    let raw = object::insert(|raw| {
        inner.tag().set(raw.number());
        let (view, requested) = (ArcSwap::from_pointee(view), Mutex::new(requested));
        let (handle, ia, keys) = (raw.number(), pz.ia().tag().get(), Keys::after(stag.key()));
        LmrObject { inner, handle, ia, keys, view, requested }
    })?;
    stags::add(pz.ia(), stag, raw.number());
    Ok(raw.number())
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_lmr_create10(
    pz_handle: it_pz_handle_t,
    addr: *mut u8,
    length: it_length_t,
    privs: it_mem_priv_t,
    flags: it_lmr_flag_t,
    shared_id: u32,
    lmr_handle: *mut it_lmr_handle_t,
    rmr_context: *mut it_rmr_context_t,
) -> Status {
    boundary::create(|| {
        let memory = Memory::at(addr, length);
        let addr_mode = IT_ADDR_MODE_ABSOLUTE;
        let create = Create { pz_handle, memory, addr_mode, privs, flags, shared_id };
        // SAFETY: contract of a C caller.
        unsafe { create.run(lmr_handle, rmr_context) }
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_lmr_create20(
    pz_handle: it_pz_handle_t,
    addr: *mut u8,
    length: it_length_t,
    addr_mode: it_addr_mode_t,
    privs: it_mem_priv_t,
    flags: it_lmr_flag_t,
    shared_id: u32,
    lmr_handle: *mut it_lmr_handle_t,
    rmr_context: *mut it_rmr_context_t,
) -> Status {
    boundary::create(|| {
        let memory = Memory::at(addr, length);
        let create = Create { pz_handle, memory, addr_mode, privs, flags, shared_id };
        // SAFETY: contract of a C caller.
        unsafe { create.run(lmr_handle, rmr_context) }
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_lmr_create21(
    pz_handle: it_pz_handle_t,
    addr: *mut u8,
    iobl: *mut it_iobl_t,
    length: it_length_t,
    addr_mode: it_addr_mode_t,
    privs: it_mem_priv_t,
    flags: it_lmr_flag_t,
    shared_id: u32,
    lmr_handle: *mut it_lmr_handle_t,
    rmr_context: *mut it_rmr_context_t,
) -> Status {
    boundary::create(|| {
        // SAFETY: contract of a C caller.
        let memory = unsafe { Memory::read(addr, iobl, length, addr_mode) }?;
        let create = Create { pz_handle, memory, addr_mode, privs, flags, shared_id };
        // SAFETY: contract of a C caller.
        unsafe { create.run(lmr_handle, rmr_context) }
    })
}

/// # Safety
/// Pointers obey the contract of a C caller (see `ptr`).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn it_lmr_create_unlinked(
    pz_handle: it_pz_handle_t,
    iobl_num_elts: usize,
    flags: it_lmr_flag_t,
    shared_id: u32,
    lmr_handle: *mut it_lmr_handle_t,
) -> Status {
    boundary::create(|| {
        let pz = object::find::<PzObject>(pz_handle.cast())?;
        // SAFETY: contract of a C caller.
        let out = unsafe { Out::new(lmr_handle, "lmr_handle") }?;
        // A shared region can never be unlinked.
        let known = FLAGS & !IT_LMR_FLAG_SHARED;
        check_bits(flags, known, status::IT_ERR_INVALID_FLAGS, "flags")?;
        if !pz.inner.ia().attrs().capabilities.contains(Capabilities::FAST_REGISTER) {
            let text = format!("{} cannot link memory regions", pz.inner.ia().device());
            return Err(Failure::new(status::IT_ERR_OP_NOT_SUPPORTED, text));
        }
        let inner = pz.inner.create_lmr_unlinked(true);
        let inner = inner.map_err(Failure::by(status::IT_ERR_RESOURCES))?;
        let view = View { stag: inner.stag(), range: None, addressing: Addressing::Absolute };
        let requested = Requested { flags, shared_id, elements: iobl_num_elts, list: 0 };
        out.write(object::handle(store(inner, view, requested)?));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn it_lmr_free(lmr_handle: it_lmr_handle_t) -> Status {
    boundary::call(|| {
        let lmr = object::find::<LmrObject>(lmr_handle.cast())?;
        lmr.inner.close().map_err(Failure::by(status::IT_ERR_LMR_BUSY))?;
        object::forget(lmr_handle.cast());
        Ok(())
    })
}

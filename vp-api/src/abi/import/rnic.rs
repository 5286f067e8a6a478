//! Imported RNIC: calls it through its function table.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use super::super::memory::{self, Lent};
use super::super::types::Sized32;
use super::super::{codes, events, grow, keep, net, qp, text, types as c};
use super::calls::{defect, lacks, quick};
use super::{cm, path, queues, table_of, ud, verb};
use crate::vendor::no_vendor_calls;
use crate::*;

/// The handle; closed when no object of the RNIC is left.
pub(super) struct Handle {
    pub(super) rnic: *mut c_void,
    pub(super) ops: c::RnicOps,
    /// Octets of the longest message that the device declares: a limit for completions.
    pub(super) max_octets: u32,
    /// Whether the device has [`Capabilities::BASED`]. A device without it may take the number for another.
    pub(super) based: bool,
    /// Where defects are reported that are not the result of a call.
    pub(super) services: Arc<dyn Services>,
}

// SAFETY: the header lets every function be called from any thread.
unsafe impl Send for Handle {}
// SAFETY: as for `Send`.
unsafe impl Sync for Handle {}

impl Handle {
    fn check(&self, addressing: Addressing) -> VpResult<()> {
        if self.based || !matches!(addressing, Addressing::Based(_)) {
            return Ok(());
        }
        let detail = "this device addresses memory by its address or from zero, not from a base of \
                      the application's choice (RI_CAP_BASED)";
        Err(VpError::new(VpStatus::Unsupported, detail))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(close) = self.ops.close {
            // SAFETY: every object holds its RNIC, so all handles are released; last use of this.
            unsafe { close(self.rnic) };
        }
    }
}

struct ImportedRnic {
    handle: Arc<Handle>,
    attrs: RnicAttrs,
    cm: Option<Arc<dyn NativeCm>>,
    datagrams: Option<Arc<dyn Datagrams>>,
    paths: Option<Arc<dyn Paths>>,
}

/// Checks the RNIC that `open` returned; `minor` and `most` are from the descriptor. Its connection manager, its
/// datagrams and its bring-up by path are requested here, once, so that `open` fails if they are incomplete.
pub(super) fn take(
    made: &c::RnicMade,
    minor: u16,
    most: Capabilities,
    services: Arc<dyn Services>,
) -> VpResult<Arc<dyn Rnic>> {
    let ops = table_of!(made, rnic, "ri_rnic_ops": close attrs ports alloc_pd dealloc_pd create_cq
        destroy_cq create_qp destroy_qp register_mr dealloc_stag)?;
    let mut handle = Handle { rnic: made.rnic, ops, max_octets: u32::MAX, based: false, services };
    let mut out = c::RnicAttrs::blank();
    if let Some(attrs) = handle.ops.attrs {
        keeps_to_its_room(handle.rnic, attrs)?;
        // SAFETY: the handle is alive, and there is room.
        unsafe { attrs(handle.rnic, &raw mut out) };
    }
    // SAFETY: strings as the header demands, good until the RNIC is closed.
    let attrs = unsafe { net::attrs_from(&out, minor) };
    let attrs = attrs.ok_or_else(|| {
        defect("ri_rnic_attrs.connection_model is neither RI_MODEL_LLP_STREAM nor RI_MODEL_NATIVE")
    })?;
    let beyond = attrs.capabilities.difference(most);
    if !beyond.is_empty() {
        return Err(defect(format!("the device offers {beyond:?}, the descriptor does not")));
    }
    if attrs.connection_model == ConnectionModel::Native && handle.ops.native_cm.is_none() {
        return Err(lacks("ri_rnic_ops", "native_cm"));
    }
    if attrs.capabilities.contains(Capabilities::UD) && handle.ops.datagrams.is_none() {
        return Err(lacks("ri_rnic_ops", "datagrams"));
    }
    handle.based = attrs.capabilities.contains(Capabilities::BASED);
    let header = if attrs.capabilities.contains(Capabilities::UD) { GRH_OCTETS as u32 } else { 0 };
    if attrs.max_message != 0 {
        handle.max_octets = attrs.max_message.saturating_add(header);
    }
    let handle = Arc::new(handle);
    let cm = match attrs.connection_model {
        ConnectionModel::LlpStream => None,
        ConnectionModel::Native => Some(native_cm(&handle, &attrs)?),
    };
    let datagrams = match attrs.capabilities.contains(Capabilities::UD) {
        false => None,
        true => Some(datagrams(&handle)?),
    };
    let paths = paths(&handle)?;
    Ok(Arc::new(ImportedRnic { handle, attrs, cm, datagrams, paths }))
}

type Attrs = unsafe extern "C" fn(*mut c_void, *mut c::RnicAttrs);

/// Passes a struct smaller than this header's, as an older host does. The octets after it must stay unchanged.
fn keeps_to_its_room(rnic: *mut c_void, attrs: Attrs) -> VpResult<()> {
    // As in versions before 1.2.
    const ROOM: u32 = std::mem::offset_of!(c::RnicAttrs, max_private_connect) as u32;
    const BEHIND: u32 = 0x5eed_5eed;
    let mut older = c::RnicAttrs { size: ROOM, ..c::RnicAttrs::blank() };
    let behind = |a: &mut c::RnicAttrs| {
        [
            &raw mut a.max_private_connect,
            &raw mut a.max_private_accept,
            &raw mut a.max_private_reject,
            &raw mut a.reserved_private,
        ]
    };
    // SAFETY: fields of a struct on the stack.
    behind(&mut older).into_iter().for_each(|field| unsafe { field.write(BEHIND) });
    // SAFETY: the handle is alive, and there is more room than is said.
    unsafe { attrs(rnic, &raw mut older) };
    // SAFETY: as above.
    let stays = behind(&mut older).into_iter().all(|field| unsafe { field.read() } == BEHIND);
    if !stays || older.size > ROOM {
        let size = size_of::<c::RnicAttrs>();
        return Err(defect(format!(
            "attrs wrote more than the {ROOM} octets that the ri_rnic_attrs of an older host has; \
             this header's has {size}: copy no more than the size that is set in it"
        )));
    }
    Ok(())
}

fn native_cm(handle: &Arc<Handle>, attrs: &RnicAttrs) -> VpResult<Arc<dyn NativeCm>> {
    let mut made = c::CmMade::blank();
    verb!(handle.ops.native_cm, "native_cm", handle.rnic, &raw mut made)?;
    cm::take(&made, handle, attrs)
}

fn datagrams(handle: &Arc<Handle>) -> VpResult<Arc<dyn Datagrams>> {
    let mut made = c::UdMade::blank();
    verb!(handle.ops.datagrams, "datagrams", handle.rnic, &raw mut made)?;
    ud::take(&made, handle)
}

/// Without a capability: a provider has them, or refuses.
fn paths(handle: &Arc<Handle>) -> VpResult<Option<Arc<dyn Paths>>> {
    let mut made = c::PathsMade::blank();
    match verb!(handle.ops.paths, "paths", handle.rnic, &raw mut made) {
        Ok(()) => path::take(&made, handle.clone()).map(Some),
        Err(why) if why.status == VpStatus::Unsupported => Ok(None),
        Err(why) => Err(why),
    }
}

/// The host's handlers, in the form that a C provider calls.
struct OnEvent(Arc<dyn AsyncHandler>);
struct OnCompletion(Arc<dyn CqHandler>);

unsafe extern "C" fn on_event(context: *mut c_void, event: *const c::AsyncEvent) {
    _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the provider passes what it was given and keeps.
        let handler = unsafe { &*context.cast::<OnEvent>() };
        // SAFETY: an event as the header demands.
        let event = unsafe { grow::read(event) };
        if let Some((source, event)) = events::from(&event) {
            handler.0.on_event(source, event);
        }
    }));
}

unsafe extern "C" fn on_completion(context: *mut c_void, cq: u32) {
    _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the provider passes what it was given and keeps.
        let handler = unsafe { &*context.cast::<OnCompletion>() };
        handler.0.on_completion(CqId(cq));
    }));
}

macro_rules! ask {
    ($this:ident.$entry:ident $(, $arg:expr)*) => {
        verb!($this.handle.ops.$entry, stringify!($entry), $this.handle.rnic $(, $arg)*)
    };
}

impl Rnic for ImportedRnic {
    fn attrs(&self) -> &RnicAttrs {
        &self.attrs
    }

    /// The table's entry cannot fail.
    fn ports(&self) -> VpResult<Vec<PortInfo>> {
        let mut ports = Vec::new();
        if let Some(list) = self.handle.ops.ports {
            let receiver = (&raw mut ports).cast();
            // SAFETY: the handle is alive; the receiver is a list of ports.
            unsafe { list(self.handle.rnic, receiver, Some(net::take_port)) };
        }
        Ok(ports)
    }

    fn set_async_handler(&self, handler: Option<Arc<dyn AsyncHandler>>) {
        let Some(set) = self.handle.ops.set_async_handler else { return };
        let handler = handler.map(|h| Arc::new(OnEvent(h)));
        let lent = c::AsyncHandler {
            keep: handler.as_ref().map_or(keep::NOTHING, keep::lend),
            call: handler.as_ref().map(|_| on_event as _),
            ..c::AsyncHandler::blank()
        };
        // SAFETY: the handle is alive; the keeper of the handler has retained it.
        unsafe { set(self.handle.rnic, &raw const lent) };
    }

    fn alloc_pd(&self) -> VpResult<PdId> {
        let mut pd = 0;
        ask!(self.alloc_pd, &raw mut pd)?;
        Ok(PdId(pd))
    }

    fn dealloc_pd(&self, pd: PdId) -> VpResult<()> {
        ask!(self.dealloc_pd, pd.0)
    }

    fn create_cq(&self, init: &CqInit) -> VpResult<Arc<dyn Cq>> {
        let handler = init.handler.clone().map(|h| Arc::new(OnCompletion(h)));
        let lent = c::CqInit {
            depth: init.depth,
            keep: handler.as_ref().map_or(keep::NOTHING, keep::lend),
            call: handler.as_ref().map(|_| on_completion as _),
            ..c::CqInit::blank()
        };
        let mut made = c::CqMade::blank();
        ask!(self.create_cq, &raw const lent, &raw mut made)?;
        queues::take(&made, &self.handle)
    }

    fn destroy_cq(&self, cq: CqId) -> VpResult<()> {
        ask!(self.destroy_cq, cq.0)
    }

    fn create_srq(&self, init: &SrqInit) -> VpResult<Arc<dyn Srq>> {
        let lent = qp::srq_init_to(init);
        let mut made = c::SrqMade::blank();
        ask!(self.create_srq, &raw const lent, &raw mut made)?;
        queues::take_srq(&made, &self.handle)
    }

    fn destroy_srq(&self, srq: SrqId) -> VpResult<()> {
        ask!(self.destroy_srq, srq.0)
    }

    fn create_qp(&self, init: &QpInit) -> VpResult<Arc<dyn Qp>> {
        // An older provider would ignore the field.
        let offers = self.attrs.capabilities.contains(Capabilities::HOLD);
        if init.unready != Unready::Terminate && !offers {
            return Err(init.unready.unsupported());
        }
        let lent = qp::init_to(init);
        let mut made = c::QpMade::blank();
        ask!(self.create_qp, &raw const lent, &raw mut made)?;
        queues::take_qp(&made, &self.handle)
    }

    fn destroy_qp(&self, qp: QpId) -> VpResult<()> {
        ask!(self.destroy_qp, qp.0)
    }

    fn register_mr(&self, init: &MrInit) -> VpResult<Stag> {
        self.handle.check(init.addressing)?;
        let range = Lent::new(&init.range);
        let (lent, mut stag) = (memory::init_to(init, &range), 0);
        ask!(self.register_mr, &raw const lent, &raw mut stag)?;
        Ok(Stag(stag))
    }

    fn reregister_mr(&self, stag: Stag, init: &MrInit) -> VpResult<Stag> {
        self.handle.check(init.addressing)?;
        let range = Lent::new(&init.range);
        let (lent, mut actual) = (memory::init_to(init, &range), 0);
        ask!(self.reregister_mr, stag.0, &raw const lent, &raw mut actual)?;
        Ok(Stag(actual))
    }

    fn register_shared_mr(
        &self,
        original: Stag,
        pd: PdId,
        addressing: Addressing,
        access: Access,
        key: u8,
    ) -> VpResult<Stag> {
        self.handle.check(addressing)?;
        let (addressing, base) = codes::addressing_code(addressing);
        let lent = c::SharedMrInit {
            original: original.0,
            pd: pd.0,
            addressing,
            base,
            access: access.bits(),
            key: key.into(),
            ..c::SharedMrInit::blank()
        };
        let mut stag = 0;
        ask!(self.register_shared_mr, &raw const lent, &raw mut stag)?;
        Ok(Stag(stag))
    }

    fn alloc_stag(&self, pd: PdId, remote: bool) -> VpResult<Stag> {
        let mut stag = 0;
        ask!(self.alloc_stag, pd.0, remote.into(), &raw mut stag)?;
        Ok(Stag(stag))
    }

    fn query_mr(&self, stag: Stag) -> VpResult<MrInfo> {
        let mut info = c::MrInfo::blank();
        ask!(self.query_mr, stag.0, &raw mut info)?;
        memory::info_from(&info).ok_or_else(|| defect("ri_mr_info.addressing is unknown"))
    }

    fn dealloc_stag(&self, stag: Stag) -> VpResult<()> {
        ask!(self.dealloc_stag, stag.0)
    }

    fn alloc_mw(&self, pd: PdId, kind: MwKind) -> VpResult<MwId> {
        let mut mw = 0;
        ask!(self.alloc_mw, pd.0, codes::kind_code(kind), &raw mut mw)?;
        Ok(MwId(mw))
    }

    fn query_mw(&self, mw: MwId) -> VpResult<MwInfo> {
        let mut info = c::MwInfo::blank();
        ask!(self.query_mw, mw.0, &raw mut info)?;
        memory::window_from(&info).ok_or_else(|| defect("ri_mw_info.kind is unknown"))
    }

    fn dealloc_mw(&self, mw: MwId) -> VpResult<()> {
        ask!(self.dealloc_mw, mw.0)
    }

    fn native_cm(&self) -> Option<Arc<dyn NativeCm>> {
        self.cm.clone()
    }

    fn datagrams(&self) -> Option<Arc<dyn Datagrams>> {
        self.datagrams.clone()
    }

    fn paths(&self) -> Option<Arc<dyn Paths>> {
        self.paths.clone()
    }

    fn vendor_calls(&self, name: &str) -> VpResult<VendorCalls> {
        if self.handle.ops.vendor_calls.is_none() {
            return Err(no_vendor_calls());
        }
        let mut calls = c::VendorCalls::blank();
        ask!(self.vendor_calls, text::lend(name), &raw mut calls)?;
        let table = NonNull::new(calls.table.cast_mut());
        let none = || defect(format!("vendor_calls returned no table for `{name}`, and no error"));
        Ok(VendorCalls { table: table.ok_or_else(none)?, context: calls.context })
    }

    fn lead(&self, until: BorrowedFd<'_>, timeout: Option<Duration>) -> Result<bool, VpStatus> {
        let (mut ready, timeout) = (0, timeout.map_or(u64::MAX, qp::ns));
        let Handle { rnic, ops, .. } = &*self.handle;
        quick!(ops.lead, *rnic, until.as_raw_fd(), timeout, &raw mut ready)?;
        Ok(ready != 0)
    }
}

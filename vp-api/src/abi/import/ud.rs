//! Imported datagrams and their queue pairs: calls them through their function tables.

use std::ffi::c_void;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::super::types::{Plain, Sized32};
use super::super::{codes, keep, net, types as c, ud};
use super::calls::{defect, quick};
use super::queues::{imported, in_batches, post_receives};
use super::rnic::Handle;
use super::{table_of, verb};
use crate::{
    AhId, AhInfo, DatagramAttrs, DatagramPath, Datagrams, PdId, PostFailure, QpId, RecvWr,
    ServiceHandler, ServiceRefusal, UdAddress, UdQp, UdQpInfo, UdQpInit, UdSendWr, UdState,
    VpError, VpResult, VpStatus,
};

/// Requests that are converted at a time, on the stack.
const BATCH: usize = 8;

imported! { ImportedUdQp UdQpOps take_qp UdQpMade qp UdQp QpId "ri_ud_qp_ops": address post_send
post_recv modify query }

struct ImportedUd {
    handle: *mut c_void,
    ops: c::UdOps,
    attrs: DatagramAttrs,
    // Dropped after the handle is released.
    rnic: Arc<Handle>,
}

// SAFETY: the header lets every function be called from any thread.
unsafe impl Send for ImportedUd {}
// SAFETY: as for `Send`.
unsafe impl Sync for ImportedUd {}

impl Drop for ImportedUd {
    fn drop(&mut self) {
        if let Some(release) = self.ops.release {
            // SAFETY: the last use of the handle, before the RNIC is closed.
            unsafe { release(self.handle) };
        }
    }
}

/// Checks the datagrams that the provider returned.
pub(super) fn take(made: &c::UdMade, rnic: &Arc<Handle>) -> VpResult<Arc<dyn Datagrams>> {
    let ops = table_of!(made, ud, "ri_ud_ops": release attrs max_payload create_qp destroy_qp
        create_ah query_ah destroy_ah set_service_handler listen unlisten resolve cancel accept
        reject)?;
    let mut out = c::UdAttrs::blank();
    if let Some(attrs) = ops.attrs {
        // SAFETY: the handle is alive, and there is room.
        unsafe { attrs(made.ud, &raw mut out) };
    }
    let attrs = ud::attrs_from(&out);
    Ok(Arc::new(ImportedUd { handle: made.ud, ops, attrs, rnic: rnic.clone() }))
}

/// The host's handler, in the form that a C provider calls.
struct OnService {
    handler: Arc<dyn ServiceHandler>,
    most: DatagramAttrs,
}

unsafe extern "C" fn on_service(context: *mut c_void, event: *const c::ServiceEvent) {
    _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the provider passes what it was given and keeps.
        let handler = unsafe { &*context.cast::<OnService>() };
        // SAFETY: an event as the header demands.
        if let Some(event) = unsafe { ud::event_from(event, &handler.most) } {
            handler.handler.on_service(event);
        }
    }));
}

macro_rules! ask {
    ($this:ident.$entry:ident $(, $arg:expr)*) => {
        verb!($this.ops.$entry, stringify!($entry), $this.handle $(, $arg)*)
    };
}

impl Datagrams for ImportedUd {
    fn attrs(&self) -> &DatagramAttrs {
        &self.attrs
    }

    fn max_payload(&self, port: u32) -> VpResult<u32> {
        let mut octets = 0;
        ask!(self.max_payload, port, &raw mut octets)?;
        Ok(octets)
    }

    fn create_qp(&self, init: &UdQpInit) -> VpResult<Arc<dyn UdQp>> {
        // `rnicpi.h` has no field for one.
        if init.srq.is_some() {
            let detail =
                "this provider's queue pairs for datagrams have receive queues of their own";
            return Err(VpError::new(VpStatus::Unsupported, detail));
        }
        let lent = ud::init_to(init);
        let mut made = c::UdQpMade::blank();
        ask!(self.create_qp, &raw const lent, &raw mut made)?;
        take_qp(&made, &self.rnic)
    }

    fn destroy_qp(&self, qp: QpId) -> VpResult<()> {
        ask!(self.destroy_qp, qp.0)
    }

    fn create_ah(&self, pd: PdId, path: &DatagramPath) -> VpResult<AhId> {
        let (lent, mut ah) = (ud::path_to(path), 0);
        ask!(self.create_ah, pd.0, &raw const lent, &raw mut ah)?;
        Ok(AhId(ah))
    }

    fn query_ah(&self, ah: AhId) -> VpResult<AhInfo> {
        let mut info = c::AhInfo::blank();
        ask!(self.query_ah, ah.0, &raw mut info)?;
        Ok(ud::ah_info_from(&info))
    }

    fn destroy_ah(&self, ah: AhId) -> VpResult<()> {
        ask!(self.destroy_ah, ah.0)
    }

    fn set_service_handler(&self, handler: Option<Arc<dyn ServiceHandler>>) {
        let Some(set) = self.ops.set_service_handler else { return };
        let most = &self.attrs;
        let handler = handler.map(|handler| Arc::new(OnService { handler, most: *most }));
        let lent = c::ServiceHandler {
            keep: handler.as_ref().map_or(keep::NOTHING, keep::lend),
            call: handler.as_ref().map(|_| on_service as _),
            ..c::ServiceHandler::blank()
        };
        // SAFETY: the handle is alive; the keeper of the handler has retained it.
        unsafe { set(self.handle, &raw const lent) };
    }

    fn listen(&self, token: u64, address: SocketAddr, backlog: u32) -> VpResult<SocketAddr> {
        let (wanted, mut bound) = (net::address_to(Some(address)), c::Address::zeroed());
        ask!(self.listen, token, &raw const wanted, backlog, &raw mut bound)?;
        net::address_from(&bound).ok_or_else(|| defect("listen returned no address"))
    }

    fn unlisten(&self, token: u64) -> VpResult<()> {
        ask!(self.unlisten, token)
    }

    fn resolve(&self, token: u64, peer: SocketAddr, private_data: &[u8]) -> VpResult<()> {
        let peer = net::address_to(Some(peer));
        let (data, len) = (private_data.as_ptr(), private_data.len() as u32);
        ask!(self.resolve, token, &raw const peer, data, len)
    }

    fn cancel(&self, token: u64) -> VpResult<()> {
        ask!(self.cancel, token)
    }

    fn accept(&self, request: u64, answer: UdAddress, private_data: &[u8]) -> VpResult<()> {
        let answer = ud::address_to(answer);
        let (data, len) = (private_data.as_ptr(), private_data.len() as u32);
        ask!(self.accept, request, &raw const answer, data, len)
    }

    fn reject(&self, request: u64, why: ServiceRefusal, private_data: &[u8]) -> VpResult<()> {
        let (data, len) = (private_data.as_ptr(), private_data.len() as u32);
        ask!(self.reject, request, codes::refusal_code(why), data, len)
    }
}

impl UdQp for ImportedUdQp {
    fn id(&self) -> QpId {
        self.id
    }

    fn address(&self) -> UdAddress {
        let mut out = c::UdAddress::zeroed();
        if let Some(address) = self.ops.address {
            // SAFETY: the handle is alive, and there is room.
            unsafe { address(self.handle, &raw mut out) };
        }
        ud::address_from(&out)
    }

    fn post_send(&self, wrs: &[UdSendWr<'_>]) -> Result<(), PostFailure> {
        in_batches(wrs, BATCH, |some, posted| {
            let mut lent = [c::UdSendWr::zeroed(); BATCH];
            for (to, wr) in lent.iter_mut().zip(some) {
                *to = ud::send_to(wr);
            }
            let (first, count) = (lent.as_ptr(), some.len() as u32);
            quick!(self.ops.post_send, self.handle, first, count, &raw mut *posted)
        })
    }

    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        post_receives(self.ops.post_recv, self.handle, wrs)
    }

    fn modify(&self, to: UdState) -> VpResult<()> {
        verb!(self.ops.modify, "modify of a QP", self.handle, codes::ud_state_code(to))
    }

    fn set_qkey(&self, qkey: u32) -> VpResult<()> {
        verb!(self.ops.set_qkey, "set_qkey of a QP", self.handle, qkey)
    }

    fn reset(&self) -> VpResult<()> {
        verb!(self.ops.reset, "reset of a QP", self.handle)
    }

    fn query(&self) -> VpResult<UdQpInfo> {
        let mut info = c::UdQpInfo::blank();
        verb!(self.ops.query, "query of a QP", self.handle, &raw mut info)?;
        ud::info_from(&info).ok_or_else(|| defect("ri_ud_qp_info.state is not a known state"))
    }
}

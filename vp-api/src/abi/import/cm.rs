//! Imported native connection manager: calls it through its function table.

use std::ffi::c_void;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::super::cm::{Broken, Most};
use super::super::types::Plain;
use super::super::{cm, net, qp, types as c};
use super::calls::defect;
use super::rnic::Handle;
use super::{table_of, verb};
use crate::{LogLevel, NativeCm, NativeEvent, NativeParams, QpId, RnicAttrs, VpResult};

struct ImportedCm {
    handle: *mut c_void,
    ops: c::CmOps,
    most: Most,
    // Dropped after the handle is released.
    rnic: Arc<Handle>,
}

// SAFETY: the header lets every function be called from any thread.
unsafe impl Send for ImportedCm {}
// SAFETY: as for `Send`.
unsafe impl Sync for ImportedCm {}

impl Drop for ImportedCm {
    fn drop(&mut self) {
        if let Some(release) = self.ops.release {
            // SAFETY: the last use of the handle, before the RNIC is closed.
            unsafe { release(self.handle) };
        }
    }
}

/// Checks the connection manager that the provider returned.
pub(super) fn take(
    made: &c::CmMade,
    rnic: &Arc<Handle>,
    attrs: &RnicAttrs,
) -> VpResult<Arc<dyn NativeCm>> {
    let ops = table_of!(made, cm, "ri_cm_ops": release listen unlisten connect accept reject
        disconnect poll_event wait_event)?;
    Ok(Arc::new(ImportedCm { handle: made.cm, ops, most: Most::of(attrs), rnic: rnic.clone() }))
}

/// Receives an event from the provider.
struct Receiver<'a> {
    most: &'a Most,
    called: bool,
    event: Result<Option<NativeEvent>, Broken>,
}

unsafe extern "C" fn take_event(receiver: *mut c_void, event: *const c::CmEvent) {
    _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the provider passes on the receiver that it was called with, during that call.
        let receiver = unsafe { &mut *receiver.cast::<Receiver<'_>>() };
        receiver.called = true;
        // SAFETY: an event as the header demands.
        receiver.event = unsafe { cm::event_from(event, receiver.most) };
    }));
}

impl NativeCm for ImportedCm {
    fn listen(&self, address: SocketAddr, backlog: u32) -> VpResult<(u64, SocketAddr)> {
        let (wanted, mut bound) = (net::address_to(Some(address)), c::Address::zeroed());
        let mut id = 0;
        let (at, out, real) = (&raw const wanted, &raw mut id, &raw mut bound);
        verb!(self.ops.listen, "listen", self.handle, at, backlog, out, real)?;
        let bound = net::address_from(&bound);
        Ok((id, bound.ok_or_else(|| defect("listen returned no address"))?))
    }

    fn unlisten(&self, listener: u64) -> VpResult<()> {
        verb!(self.ops.unlisten, "unlisten", self.handle, listener)
    }

    fn connect(&self, qp: QpId, peer: SocketAddr, params: NativeParams) -> VpResult<()> {
        let (peer, params) = (net::address_to(Some(peer)), cm::params_to(&params));
        let (peer, params) = (&raw const peer, &raw const params);
        verb!(self.ops.connect, "connect", self.handle, qp.0, peer, params)
    }

    fn accept(&self, request: u64, qp: QpId, params: NativeParams) -> VpResult<()> {
        let lent = cm::params_to(&params);
        verb!(self.ops.accept, "accept", self.handle, request, qp.0, &raw const lent)
    }

    fn reject(&self, request: u64, private_data: &[u8]) -> VpResult<()> {
        let (data, len) = (private_data.as_ptr(), private_data.len() as u32);
        verb!(self.ops.reject, "reject", self.handle, request, data, len)
    }

    fn disconnect(&self, qp: QpId) -> VpResult<()> {
        verb!(self.ops.disconnect, "disconnect", self.handle, qp.0)
    }

    fn poll_event(&self) -> Option<NativeEvent> {
        let poll = self.ops.poll_event?;
        loop {
            let mut receiver = Receiver { most: &self.most, called: false, event: Ok(None) };
            let to = (&raw mut receiver).cast();
            // SAFETY: the handle is alive; the receiver is one.
            unsafe { poll(self.handle, to, Some(take_event)) };
            match receiver.event {
                // Events that this version does not know are skipped.
                Ok(None) if receiver.called => {}
                Ok(event) => return event,
                Err(Broken { request: true, id, why }) => {
                    self.rnic.services.log(LogLevel::Error, "vp_api", &why);
                    // If this fails, no other code replies to the peer; the provider may not know the request,
                    // either.
                    let _ = self.reject(id, &[]);
                }
                Err(Broken { id, why, .. }) => {
                    let qp = QpId(id as u32);
                    // The connection may have ended in the meantime.
                    let _ = self.disconnect(qp);
                    return Some(NativeEvent::Failed { qp, reason: why });
                }
            }
        }
    }

    fn wait_event(&self, timeout: Option<Duration>) -> VpResult<bool> {
        let (mut ready, timeout) = (0, timeout.map_or(u64::MAX, qp::ns));
        verb!(self.ops.wait_event, "wait_event", self.handle, timeout, &raw mut ready)?;
        Ok(ready != 0)
    }
}

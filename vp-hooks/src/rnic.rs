//! Hooked RNIC: passes each privileged verb through the hook. Owns the wrapped RNIC and returns wrapped queues. Any
//! thread.

use std::convert::Infallible;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use vp_api::*;

use crate::cm::HookedCm;
use crate::datagrams::HookedDatagrams;
use crate::hook::{Call, Hook};
use crate::paths::HookedPaths;
use crate::queues::{HookedCq, HookedQp, HookedSrq};
use crate::value::{Failure, Value};
use crate::verb::{Kind, Object, Verb};

/// An RNIC behind a hook.
pub(crate) struct HookedRnic<H: Hook> {
    hook: Arc<H>,
    inner: Arc<dyn Rnic>,
    attrs: RnicAttrs,
    cm: Option<Arc<dyn NativeCm>>,
    datagrams: Option<Arc<dyn Datagrams>>,
    paths: Option<Arc<dyn Paths>>,
    /// Dropped last.
    per_object: H::PerObject,
}

impl<H: Hook> Drop for HookedRnic<H> {
    fn drop(&mut self) {
        self.hook.lets_go(Object::RNIC);
    }
}

impl<H: Hook> HookedRnic<H> {
    pub(crate) fn create(
        hook: Arc<H>,
        per_object: H::PerObject,
        inner: Arc<dyn Rnic>,
    ) -> Arc<dyn Rnic> {
        let mut attrs = inner.attrs().clone();
        hook.adapt(&mut attrs);
        let cm = inner.native_cm().map(|cm| HookedCm::create(hook.clone(), cm));
        let datagrams = inner.datagrams().map(|ud| HookedDatagrams::create(hook.clone(), ud));
        let paths = inner.paths().map(|paths| HookedPaths::create(hook.clone(), paths));
        Arc::new(Self { hook, inner, attrs, cm, datagrams, paths, per_object })
    }

    fn call<T: Value, E: Failure>(
        &self,
        verb: Verb,
        object: Object,
        arguments: fmt::Arguments<'_>,
        run: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.hook.call(&self.per_object, &Call::new(verb, object, arguments), run)
    }

    /// A verb that creates an object.
    fn make<T: Value>(
        &self,
        verb: Verb,
        arguments: fmt::Arguments<'_>,
        run: impl FnOnce() -> VpResult<T>,
    ) -> VpResult<T> {
        self.call(verb, Object::RNIC, arguments, run)
    }

    /// A verb on one object, without further arguments.
    fn about<T: Value>(
        &self,
        verb: Verb,
        id: u32,
        run: impl FnOnce() -> VpResult<T>,
    ) -> VpResult<T> {
        self.call(verb, Object::new(verb.target(), id), format_args!(""), run)
    }
}

/// Passes events to the hook, and then to the application.
pub(crate) struct Tap<H, A: ?Sized> {
    pub(crate) hook: Arc<H>,
    pub(crate) handler: Arc<A>,
}

impl<H: Hook> AsyncHandler for Tap<H, dyn AsyncHandler> {
    fn on_event(&self, source: EventSource, event: AsyncEvent) {
        self.hook.on_event(source, event);
        self.handler.on_event(source, event);
    }
}

impl<H: Hook> CqHandler for Tap<H, dyn CqHandler> {
    fn on_completion(&self, cq: CqId) {
        self.hook.on_completion(cq);
        self.handler.on_completion(cq);
    }
}

impl<H: Hook> Rnic for HookedRnic<H> {
    fn attrs(&self) -> &RnicAttrs {
        &self.attrs
    }

    fn ports(&self) -> VpResult<Vec<PortInfo>> {
        self.inner.ports()
    }

    fn set_async_handler(&self, handler: Option<Arc<dyn AsyncHandler>>) {
        let what = if handler.is_some() { "set" } else { "clear" };
        let handler = handler.map(|handler| -> Arc<dyn AsyncHandler> {
            Arc::new(Tap { hook: self.hook.clone(), handler })
        });
        let Ok(()) = self.call(Verb::SetAsyncHandler, Object::RNIC, format_args!("{what}"), || {
            self.inner.set_async_handler(handler);
            Ok::<_, Infallible>(())
        });
    }

    fn alloc_pd(&self) -> VpResult<PdId> {
        self.make(Verb::AllocPd, format_args!(""), || self.inner.alloc_pd())
    }

    fn dealloc_pd(&self, pd: PdId) -> VpResult<()> {
        self.about(Verb::DeallocPd, pd.0, || self.inner.dealloc_pd(pd))
    }

    fn create_cq(&self, init: &CqInit) -> VpResult<Arc<dyn Cq>> {
        let (depth, notified) = (init.depth, init.handler.is_some());
        let handler = init.handler.clone().map(|handler| -> Arc<dyn CqHandler> {
            Arc::new(Tap { hook: self.hook.clone(), handler })
        });
        let init = CqInit { depth, handler };
        let create = || self.inner.create_cq(&init);
        let cq =
            self.make(Verb::CreateCq, format_args!("depth {depth} handler {notified}"), create)?;
        Ok(HookedCq::create(self.hook.clone(), cq))
    }

    fn destroy_cq(&self, cq: CqId) -> VpResult<()> {
        self.about(Verb::DestroyCq, cq.0, || self.inner.destroy_cq(cq))
    }

    fn create_srq(&self, init: &SrqInit) -> VpResult<Arc<dyn Srq>> {
        let create = || self.inner.create_srq(init);
        let srq = self.make(Verb::CreateSrq, format_args!("{init:?}"), create)?;
        Ok(HookedSrq::create(self.hook.clone(), srq))
    }

    fn destroy_srq(&self, srq: SrqId) -> VpResult<()> {
        self.about(Verb::DestroySrq, srq.0, || self.inner.destroy_srq(srq))
    }

    fn create_qp(&self, init: &QpInit) -> VpResult<Arc<dyn Qp>> {
        let create = || self.inner.create_qp(init);
        let qp = self.make(Verb::CreateQp, format_args!("{init:?}"), create)?;
        Ok(HookedQp::create(self.hook.clone(), qp))
    }

    fn destroy_qp(&self, qp: QpId) -> VpResult<()> {
        self.about(Verb::DestroyQp, qp.0, || self.inner.destroy_qp(qp))
    }

    fn register_mr(&self, init: &MrInit) -> VpResult<Stag> {
        let register = || self.inner.register_mr(init);
        self.make(Verb::RegisterMr, format_args!("{init:?}"), register)
    }

    fn reregister_mr(&self, stag: Stag, init: &MrInit) -> VpResult<Stag> {
        let object = Object::new(Kind::Mr, stag.index());
        let reregister = || self.inner.reregister_mr(stag, init);
        self.call(Verb::ReregisterMr, object, format_args!("{init:?}"), reregister)
    }

    fn register_shared_mr(
        &self,
        original: Stag,
        pd: PdId,
        addressing: Addressing,
        access: Access,
        key: u8,
    ) -> VpResult<Stag> {
        let of = original.0;
        self.make(
            Verb::RegisterSharedMr,
            format_args!("of {of:#010x} {pd:?} {addressing:?} {access:?} key {key}"),
            || self.inner.register_shared_mr(original, pd, addressing, access, key),
        )
    }

    fn alloc_stag(&self, pd: PdId, remote: bool) -> VpResult<Stag> {
        let alloc = || self.inner.alloc_stag(pd, remote);
        self.make(Verb::AllocStag, format_args!("{pd:?} remote {remote}"), alloc)
    }

    fn query_mr(&self, stag: Stag) -> VpResult<MrInfo> {
        self.about(Verb::QueryMr, stag.index(), || self.inner.query_mr(stag))
    }

    fn dealloc_stag(&self, stag: Stag) -> VpResult<()> {
        self.about(Verb::DeallocStag, stag.index(), || self.inner.dealloc_stag(stag))
    }

    fn alloc_mw(&self, pd: PdId, kind: MwKind) -> VpResult<MwId> {
        let alloc = || self.inner.alloc_mw(pd, kind);
        self.make(Verb::AllocMw, format_args!("{pd:?} {kind:?}"), alloc)
    }

    fn query_mw(&self, mw: MwId) -> VpResult<MwInfo> {
        self.about(Verb::QueryMw, mw.0, || self.inner.query_mw(mw))
    }

    fn dealloc_mw(&self, mw: MwId) -> VpResult<()> {
        self.about(Verb::DeallocMw, mw.0, || self.inner.dealloc_mw(mw))
    }

    fn native_cm(&self) -> Option<Arc<dyn NativeCm>> {
        self.cm.clone()
    }

    /// Called rarely, and never by IT-API: no hook sees them.
    fn cm_messages(&self) -> Option<Arc<dyn CmMessages>> {
        self.inner.cm_messages()
    }

    fn paths(&self) -> Option<Arc<dyn Paths>> {
        self.paths.clone()
    }

    fn datagrams(&self) -> Option<Arc<dyn Datagrams>> {
        self.datagrams.clone()
    }

    /// Calls through the table go directly from the application to the vendor: no hook sees them.
    fn vendor_calls(&self, name: &str) -> VpResult<VendorCalls> {
        let ask = || self.inner.vendor_calls(name);
        self.make(Verb::VendorCalls, format_args!("{name:?}"), ask)
    }

    fn lead(&self, until: BorrowedFd<'_>, timeout: Option<Duration>) -> Result<bool, VpStatus> {
        let lead = || self.inner.lead(until, timeout);
        self.call(Verb::Lead, Object::RNIC, format_args!("timeout {timeout:?}"), lead)
    }

    fn publish(&self, record: DeviceRef) {
        self.inner.publish(record);
    }

    fn capture(&self, to: BorrowedFd<'_>, payload: u32) -> VpResult<u32> {
        self.inner.capture(to, payload)
    }

    fn end_capture(&self, number: u32) -> VpResult<u64> {
        self.inner.end_capture(number)
    }
}

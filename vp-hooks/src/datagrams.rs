//! Hooked datagrams: passes each verb through the hook. Owns the wrapped object. Any thread.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use vp_api::*;

use crate::hook::{Call, Hook};
use crate::queues::HookedUdQp;
use crate::rnic::Tap;
use crate::value::{Failure, Value};
use crate::verb::{Object, Verb};

/// The datagrams of an RNIC behind a hook.
pub(crate) struct HookedDatagrams<H: Hook> {
    hook: Arc<H>,
    per_object: H::PerObject,
    inner: Arc<dyn Datagrams>,
    attrs: DatagramAttrs,
}

impl<H: Hook> HookedDatagrams<H> {
    pub(crate) fn create(hook: Arc<H>, inner: Arc<dyn Datagrams>) -> Arc<dyn Datagrams> {
        let per_object = hook.per_object(Object::UD);
        let mut attrs = *inner.attrs();
        hook.adapt_datagrams(&mut attrs);
        Arc::new(Self { hook, per_object, inner, attrs })
    }

    fn call<T: Value, E: Failure>(
        &self,
        verb: Verb,
        arguments: fmt::Arguments<'_>,
        run: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.hook.call(&self.per_object, &Call::new(verb, Object::UD, arguments), run)
    }

    /// A verb on one object, without further arguments.
    fn about<T: Value>(
        &self,
        verb: Verb,
        id: u32,
        run: impl FnOnce() -> VpResult<T>,
    ) -> VpResult<T> {
        let call = Call::new(verb, Object::new(verb.target(), id), format_args!(""));
        self.hook.call(&self.per_object, &call, run)
    }
}

impl<H: Hook> ServiceHandler for Tap<H, dyn ServiceHandler> {
    fn on_service(&self, event: ServiceEvent) {
        self.hook.on_service(&event);
        self.handler.on_service(event);
    }
}

impl<H: Hook> Datagrams for HookedDatagrams<H> {
    fn attrs(&self) -> &DatagramAttrs {
        &self.attrs
    }

    fn max_payload(&self, port: u32) -> VpResult<u32> {
        let max = || self.inner.max_payload(port);
        self.call(Verb::MaxPayload, format_args!("port {port}"), max)
    }

    fn create_qp(&self, init: &UdQpInit) -> VpResult<Arc<dyn UdQp>> {
        let create = || self.inner.create_qp(init);
        let qp = self.call(Verb::CreateUdQp, format_args!("{init:?}"), create)?;
        Ok(HookedUdQp::create(self.hook.clone(), qp))
    }

    fn destroy_qp(&self, qp: QpId) -> VpResult<()> {
        self.about(Verb::DestroyUdQp, qp.0, || self.inner.destroy_qp(qp))
    }

    fn create_ah(&self, pd: PdId, path: &DatagramPath) -> VpResult<AhId> {
        let create = || self.inner.create_ah(pd, path);
        self.call(Verb::CreateAh, format_args!("{pd:?} {path:?}"), create)
    }

    fn query_ah(&self, ah: AhId) -> VpResult<AhInfo> {
        self.about(Verb::QueryAh, ah.0, || self.inner.query_ah(ah))
    }

    fn destroy_ah(&self, ah: AhId) -> VpResult<()> {
        self.about(Verb::DestroyAh, ah.0, || self.inner.destroy_ah(ah))
    }

    fn set_service_handler(&self, handler: Option<Arc<dyn ServiceHandler>>) {
        let what = if handler.is_some() { "set" } else { "clear" };
        let handler = handler.map(|handler| -> Arc<dyn ServiceHandler> {
            Arc::new(Tap { hook: self.hook.clone(), handler })
        });
        let Ok(()) = self.call(Verb::SetServiceHandler, format_args!("{what}"), || {
            self.inner.set_service_handler(handler);
            Ok::<_, Infallible>(())
        });
    }

    fn listen(&self, token: u64, address: SocketAddr, backlog: u32) -> VpResult<SocketAddr> {
        let listen = || self.inner.listen(token, address, backlog);
        let arguments = format_args!("{address} backlog {backlog} token {token}");
        self.call(Verb::ListenService, arguments, listen)
    }

    fn unlisten(&self, token: u64) -> VpResult<()> {
        let unlisten = || self.inner.unlisten(token);
        self.call(Verb::UnlistenService, format_args!("token {token}"), unlisten)
    }

    fn resolve(&self, token: u64, peer: SocketAddr, private_data: &[u8]) -> VpResult<()> {
        let octets = private_data.len();
        self.call(
            Verb::ResolveService,
            format_args!("{peer} token {token}, {octets} octets of private data"),
            || self.inner.resolve(token, peer, private_data),
        )
    }

    fn cancel(&self, token: u64) -> VpResult<()> {
        let cancel = || self.inner.cancel(token);
        self.call(Verb::CancelService, format_args!("token {token}"), cancel)
    }

    fn accept(&self, request: u64, answer: UdAddress, private_data: &[u8]) -> VpResult<()> {
        let (qpn, octets) = (answer.qpn, private_data.len());
        self.call(
            Verb::AcceptService,
            format_args!("request {request} qpn {qpn}, {octets} octets of private data"),
            || self.inner.accept(request, answer, private_data),
        )
    }

    fn reject(&self, request: u64, why: ServiceRefusal, private_data: &[u8]) -> VpResult<()> {
        let octets = private_data.len();
        self.call(
            Verb::RejectService,
            format_args!("request {request} {why:?}, {octets} octets of private data"),
            || self.inner.reject(request, why, private_data),
        )
    }
}

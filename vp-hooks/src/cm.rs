//! Hooked connection manager: passes each verb of a provider's own one through the hook. Any thread.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use vp_api::{NativeCm, NativeEvent, NativeParams, QpId, VpResult};

use crate::hook::{Call, Hook};
use crate::show;
use crate::value::{Failure, Value};
use crate::verb::{Kind, Object, Verb};

/// A native CM behind a hook.
pub(crate) struct HookedCm<H: Hook> {
    hook: Arc<H>,
    per_object: H::PerObject,
    inner: Arc<dyn NativeCm>,
}

impl<H: Hook> HookedCm<H> {
    pub(crate) fn create(hook: Arc<H>, inner: Arc<dyn NativeCm>) -> Arc<dyn NativeCm> {
        let per_object = hook.per_object(Object::CM);
        Arc::new(Self { hook, per_object, inner })
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
}

fn qp(id: QpId) -> Object {
    Object::new(Kind::Qp, id.0)
}

impl<H: Hook> NativeCm for HookedCm<H> {
    fn listen(&self, address: SocketAddr, backlog: u32) -> VpResult<(u64, SocketAddr)> {
        let listen = || self.inner.listen(address, backlog);
        self.call(Verb::Listen, Object::CM, format_args!("{address} backlog {backlog}"), listen)
    }

    fn listen_aside(&self, address: SocketAddr, backlog: u32) -> VpResult<(u64, SocketAddr)> {
        let listen = || self.inner.listen_aside(address, backlog);
        let arguments = format_args!("{address} backlog {backlog}, aside");
        self.call(Verb::Listen, Object::CM, arguments, listen)
    }

    fn unlisten(&self, listener: u64) -> VpResult<()> {
        let unlisten = || self.inner.unlisten(listener);
        self.call(Verb::Unlisten, Object::CM, format_args!("listener {listener}"), unlisten)
    }

    fn connect(&self, id: QpId, peer: SocketAddr, params: NativeParams) -> VpResult<()> {
        let shown = show::params(&params);
        let connect = || self.inner.connect(id, peer, params);
        self.call(Verb::NativeConnect, qp(id), format_args!("{peer} {shown}"), connect)
    }

    fn accept(&self, request: u64, id: QpId, params: NativeParams) -> VpResult<()> {
        let shown = show::params(&params);
        let accept = || self.inner.accept(request, id, params);
        self.call(Verb::Accept, qp(id), format_args!("request {request} {shown}"), accept)
    }

    fn reject(&self, request: u64, private_data: &[u8]) -> VpResult<()> {
        let octets = private_data.len();
        self.call(
            Verb::Reject,
            Object::CM,
            format_args!("request {request}, {octets} octets of private data"),
            || self.inner.reject(request, private_data),
        )
    }

    fn disconnect(&self, id: QpId) -> VpResult<()> {
        self.call(Verb::Disconnect, qp(id), format_args!(""), || self.inner.disconnect(id))
    }

    fn poll_event(&self) -> Option<NativeEvent> {
        self.hook.poll_event(&self.per_object, &*self.inner)
    }

    fn wait_event(&self, timeout: Option<Duration>) -> VpResult<bool> {
        let wait = || match self.hook.holds_event() {
            true => Ok(true),
            false => self.inner.wait_event(timeout),
        };
        self.call(Verb::WaitEvent, Object::CM, format_args!("timeout {timeout:?}"), wait)
    }
}

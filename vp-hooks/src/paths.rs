//! Hooked bring-up by path: passes each verb through the hook. Owns the wrapped object. Any thread.

use std::fmt;
use std::net::Ipv6Addr;
use std::sync::Arc;

use vp_api::{PathSender, Paths, PeerPath, QpId, VpResult};

use crate::hook::{Call, Hook};
use crate::value::Value;
use crate::verb::{Kind, Object, Verb};

/// The bring-up by path of an RNIC behind a hook.
pub(crate) struct HookedPaths<H: Hook> {
    hook: Arc<H>,
    per_object: H::PerObject,
    inner: Arc<dyn Paths>,
}

impl<H: Hook> HookedPaths<H> {
    pub(crate) fn create(hook: Arc<H>, inner: Arc<dyn Paths>) -> Arc<dyn Paths> {
        let per_object = hook.per_object(Object::PATHS);
        Arc::new(Self { hook, per_object, inner })
    }

    fn call<T: Value>(
        &self,
        verb: Verb,
        qp: QpId,
        arguments: fmt::Arguments<'_>,
        run: impl FnOnce() -> VpResult<T>,
    ) -> VpResult<T> {
        let call = Call::new(verb, Object::new(Kind::Qp, qp.0), arguments);
        self.hook.call(&self.per_object, &call, run)
    }
}

impl<H: Hook> Paths for HookedPaths<H> {
    fn number(&self, qp: QpId) -> VpResult<u32> {
        self.call(Verb::PathNumber, qp, format_args!(""), || self.inner.number(qp))
    }

    fn set_unreliable(&self, qp: QpId) -> VpResult<()> {
        let set = || self.inner.set_unreliable(qp);
        self.call(Verb::PathUnreliable, qp, format_args!(""), set)
    }

    fn receive(&self, qp: QpId, peer: &PeerPath) -> VpResult<()> {
        let PeerPath { local_gid, remote_gid, qpn, psn, mtu_code, ird, min_rnr_timer } = *peer;
        let [from, to] = [local_gid, remote_gid].map(Ipv6Addr::from);
        self.call(
            Verb::PathReceive,
            qp,
            format_args!(
                "qpn {qpn:#x} at {to}, local {from}, psn {psn:#x}, MTU code {mtu_code}, IRD {ird}, RNR timer \
                 {min_rnr_timer}"
            ),
            || self.inner.receive(qp, peer),
        )
    }

    fn send(&self, qp: QpId, sender: &PathSender) -> VpResult<()> {
        let PathSender { psn, ack_timeout, retry_count, rnr_retry, ord } = *sender;
        self.call(
            Verb::PathSend,
            qp,
            format_args!(
                "psn {psn:#x}, ACK timeout {ack_timeout}, retries {retry_count}, RNR retries {rnr_retry}, ORD {ord}"
            ),
            || self.inner.send(qp, sender),
        )
    }
}

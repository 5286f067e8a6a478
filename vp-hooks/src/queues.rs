//! Hooked CQ, SRQ and QP: each passes its verbs through the hook, and owns the wrapped queue. Any thread.

use std::convert::Infallible;
use std::fmt;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use vp_api::*;

use crate::hook::{Call, Hook, Polled};
use crate::show;
use crate::value::{Failure, Value};
use crate::verb::{Kind, Object, Verb};

macro_rules! posts {
    ($name:ident) => {
        impl<H: Hook> $name<H> {
            fn post(
                &self,
                verb: Verb,
                requests: usize,
                arguments: fmt::Arguments<'_>,
                run: impl FnOnce() -> Result<(), PostFailure>,
            ) -> Result<(), PostFailure> {
                let call = Call::new(verb, self.object, arguments).items(requests);
                self.hook.call(&self.per_object, &call, run)
            }
        }
    };
}

macro_rules! hooked {
    ($(#[$doc:meta])* $name:ident $queue:ident $kind:ident) => {
        $(#[$doc])*
        pub(crate) struct $name<H: Hook> {
            hook: Arc<H>,
            object: Object,
            inner: Arc<dyn $queue>,
            /// Dropped last.
            per_object: H::PerObject,
        }

        impl<H: Hook> Drop for $name<H> {
            fn drop(&mut self) {
                self.hook.lets_go(self.object);
            }
        }

        impl<H: Hook> $name<H> {
            pub(crate) fn create(hook: Arc<H>, inner: Arc<dyn $queue>) -> Arc<dyn $queue> {
                let object = Object::new(Kind::$kind, inner.id().0);
                let per_object = hook.per_object(object);
                Arc::new(Self { hook, object, inner, per_object })
            }

            fn call<T: Value, E: Failure>(
                &self,
                verb: Verb,
                arguments: fmt::Arguments<'_>,
                run: impl FnOnce() -> Result<T, E>,
            ) -> Result<T, E> {
                self.hook.call(&self.per_object, &Call::new(verb, self.object, arguments), run)
            }
        }
    };
}

hooked! {
    /// A completion queue behind a hook.
    HookedCq Cq Cq
}
hooked! {
    /// A shared receive queue behind a hook.
    HookedSrq Srq Srq
}
hooked! {
    /// A queue pair behind a hook.
    HookedQp Qp Qp
}

hooked! {
    /// A queue pair for datagrams behind a hook. The hook treats it like other queue pairs.
    HookedUdQp UdQp Qp
}

posts!(HookedSrq);
posts!(HookedQp);
posts!(HookedUdQp);

impl<H: Hook> Cq for HookedCq<H> {
    fn id(&self) -> CqId {
        self.inner.id()
    }

    fn depth(&self) -> u32 {
        self.inner.depth()
    }

    fn queued(&self) -> usize {
        self.inner.queued() + self.hook.held(&self.per_object)
    }

    fn poll(&self, out: &mut [WorkCompletion]) -> Result<usize, VpStatus> {
        self.hook.poll(&self.per_object, &*self.inner, Polled { out, from: None })
    }

    fn poll_from(
        &self,
        out: &mut [WorkCompletion],
        from: &mut [Option<DatagramSource>],
    ) -> Result<usize, VpStatus> {
        let most = out.len().min(from.len());
        let (out, from) = (&mut out[..most], Some(from));
        self.hook.poll(&self.per_object, &*self.inner, Polled { out, from })
    }

    fn arm(&self, solicited_only: bool) -> Result<(), VpStatus> {
        let arm = || self.inner.arm(solicited_only);
        self.call(Verb::Arm, format_args!("solicited_only {solicited_only}"), arm)?;
        self.hook.armed(&self.per_object);
        Ok(())
    }

    fn wait(&self, spin: Duration, timeout: Option<Duration>) -> Result<bool, VpStatus> {
        // Polls return the completions that are held back, so the waiter must not sleep.
        let held = self.hook.held(&self.per_object) != 0;
        let wait = || if held { Ok(true) } else { self.inner.wait(spin, timeout) };
        self.call(Verb::Wait, format_args!("spin {spin:?} timeout {timeout:?}"), wait)
    }

    fn interrupt(&self) {
        let Ok(()) = self.call(Verb::Interrupt, format_args!(""), || {
            self.inner.interrupt();
            Ok::<_, Infallible>(())
        });
    }

    fn resize(&self, depth: u32) -> VpResult<u32> {
        self.call(Verb::ResizeCq, format_args!("depth {depth}"), || self.inner.resize(depth))
    }
}

impl<H: Hook> Srq for HookedSrq<H> {
    fn id(&self) -> SrqId {
        self.inner.id()
    }

    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        let post = || self.inner.post_recv(wrs);
        self.post(Verb::PostSrq, wrs.len(), format_args!("{}", show::Receives(wrs)), post)
    }

    fn modify(&self, depth: Option<u32>, limit: Option<u32>) -> VpResult<SrqInfo> {
        self.call(Verb::ModifySrq, format_args!("depth {depth:?} limit {limit:?}"), || {
            self.inner.modify(depth, limit)
        })
    }

    fn query(&self) -> VpResult<SrqInfo> {
        self.call(Verb::QuerySrq, format_args!(""), || self.inner.query())
    }
}

impl<H: Hook> Qp for HookedQp<H> {
    fn id(&self) -> QpId {
        self.inner.id()
    }

    fn post_send(&self, wrs: &[SendWr<'_>]) -> Result<(), PostFailure> {
        let post = || self.inner.post_send(wrs);
        self.post(Verb::PostSend, wrs.len(), format_args!("{}", show::Sends(wrs)), post)
    }

    fn post_send_whole(&self, wrs: &[SendWr<'_>]) -> Result<(), PostFailure> {
        let post = || self.inner.post_send_whole(wrs);
        self.post(Verb::PostSend, wrs.len(), format_args!("{}", show::Sends(wrs)), post)
    }

    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        let post = || self.inner.post_recv(wrs);
        self.post(Verb::PostRecv, wrs.len(), format_args!("{}", show::Receives(wrs)), post)
    }

    fn modify(&self, change: QpChange) -> VpResult<()> {
        let is_rts = matches!(change, QpChange::Rts(_));
        let verb = if is_rts { Verb::Connect } else { Verb::ModifyQp };
        // The change is moved into the verb, so its text is made first.
        let shown = show::change(&change);
        self.call(verb, format_args!("{shown}"), || self.inner.modify(change))
    }

    fn query(&self) -> VpResult<QpInfo> {
        self.call(Verb::QueryQp, format_args!(""), || self.inner.query())
    }

    fn publish(&self, record: SlotRef) {
        self.inner.publish(record);
    }
}

impl<H: Hook> UdQp for HookedUdQp<H> {
    fn id(&self) -> QpId {
        self.inner.id()
    }

    fn address(&self) -> UdAddress {
        self.inner.address()
    }

    fn post_send(&self, wrs: &[UdSendWr<'_>]) -> Result<(), PostFailure> {
        let post = || self.inner.post_send(wrs);
        self.post(Verb::PostSend, wrs.len(), format_args!("{}", show::Datagrams(wrs)), post)
    }

    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        let post = || self.inner.post_recv(wrs);
        self.post(Verb::PostRecv, wrs.len(), format_args!("{}", show::Receives(wrs)), post)
    }

    fn set_qkey(&self, qkey: u32) -> VpResult<()> {
        let set = || self.inner.set_qkey(qkey);
        self.call(Verb::SetQkey, format_args!("{qkey:#x}"), set)
    }

    fn reset(&self) -> VpResult<()> {
        self.call(Verb::ResetUdQp, format_args!(""), || self.inner.reset())
    }

    fn attach(&self, group: [u8; 16]) -> VpResult<()> {
        let to = Ipv6Addr::from(group);
        self.call(Verb::Attach, format_args!("{to}"), || self.inner.attach(group))
    }

    fn detach(&self, group: [u8; 16]) -> VpResult<()> {
        let from = Ipv6Addr::from(group);
        self.call(Verb::Detach, format_args!("{from}"), || self.inner.detach(group))
    }

    fn modify(&self, to: UdState) -> VpResult<()> {
        self.call(Verb::ModifyQp, format_args!("{to:?}"), || self.inner.modify(to))
    }

    fn query(&self) -> VpResult<UdQpInfo> {
        self.call(Verb::QueryQp, format_args!(""), || self.inner.query())
    }
}

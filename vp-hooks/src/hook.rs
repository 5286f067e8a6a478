//! The hook interface: every verb of an RNIC is passed through a hook.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use vp_api::{
    AsyncEvent, Cq, CqId, DatagramAttrs, DatagramSource, EventSource, NativeCm, NativeEvent,
    RnicAttrs, ServiceEvent, Services, VpResult, VpStatus, WorkCompletion,
};

use crate::value::{Failure, Value};
use crate::verb::{Object, Verb};

/// One call of a verb.
pub(crate) struct Call<'a> {
    pub(crate) verb: Verb,
    /// The object that it is about.
    pub(crate) object: Object,
    /// The other arguments, formatted only on demand.
    pub(crate) arguments: fmt::Arguments<'a>,
    /// Number of work requests of a post, else 1.
    pub(crate) items: usize,
}

impl<'a> Call<'a> {
    pub(crate) fn new(verb: Verb, object: Object, arguments: fmt::Arguments<'a>) -> Self {
        Self { verb, object, arguments, items: 1 }
    }

    pub(crate) fn items(self, items: usize) -> Self {
        Self { items, ..self }
    }
}

/// Where polled completions are stored.
pub(crate) struct Polled<'a> {
    pub(crate) out: &'a mut [WorkCompletion],
    /// Where the sources of datagrams are stored, if the consumer asks for them: at least as long.
    pub(crate) from: Option<&'a mut [Option<DatagramSource>]>,
}

impl Polled<'_> {
    /// Polls a CQ.
    pub(crate) fn fill(&mut self, cq: &dyn Cq) -> Result<usize, VpStatus> {
        match &mut self.from {
            Some(from) => cq.poll_from(self.out, from),
            None => cq.poll(self.out),
        }
    }
}

/// Makes hooks: one for each RNIC that is opened.
pub(crate) trait Layer: Send + Sync + 'static {
    type Hook: Hook;

    /// The hook of a new RNIC, or the reason why that RNIC cannot be opened.
    fn hook(&self, names: Names<'_>, services: Arc<dyn Services>) -> VpResult<Self::Hook>;
}

/// The provider and the device that are opened.
#[derive(Clone, Copy)]
pub(crate) struct Names<'a> {
    pub(crate) provider: &'a str,
    pub(crate) device: &'a str,
}

/// A hook is called between an application and the verbs of one RNIC. Any thread, at any time.
pub(crate) trait Hook: Send + Sync + 'static {
    /// The data that the hook keeps for each object that has verbs.
    type PerObject: Send + Sync + 'static;

    /// Called for an object after its creation.
    fn per_object(&self, object: Object) -> Self::PerObject;

    /// Called before an object's handle is released, or the RNIC is closed, which goes on until its `PerObject` is dropped.
    fn lets_go(&self, _: Object) {}

    /// Runs a verb, or refuses it.
    fn call<T: Value, E: Failure>(
        &self,
        per_object: &Self::PerObject,
        call: &Call<'_>,
        verb: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E>;

    /// Polls a CQ.
    fn poll(
        &self,
        per_object: &Self::PerObject,
        cq: &dyn Cq,
        polled: Polled<'_>,
    ) -> Result<usize, VpStatus>;

    /// Polls a connection manager.
    fn poll_event(&self, per_object: &Self::PerObject, cm: &dyn NativeCm) -> Option<NativeEvent> {
        let call = Call::new(Verb::PollEvent, Object::CM, format_args!(""));
        let Ok(event) = self.call(per_object, &call, || Ok::<_, Infallible>(cm.poll_event()));
        event
    }

    /// Whether the hook holds an event of the connection manager back.
    fn holds_event(&self) -> bool {
        false
    }

    /// Changes the limits that the application sees.
    fn adapt(&self, _: &mut RnicAttrs) {}

    /// Changes the limits of datagrams that the application sees.
    fn adapt_datagrams(&self, _: &mut DatagramAttrs) {}

    /// The number of completions of a CQ that the hook holds back.
    fn held(&self, _: &Self::PerObject) -> usize {
        0
    }

    /// Called when the CQ was armed.
    fn armed(&self, _: &Self::PerObject) {}

    /// Called before an asynchronous event is delivered to the application.
    fn on_event(&self, _: EventSource, _: AsyncEvent) {}

    /// Called before an event of a datagram service is delivered to the application.
    fn on_service(&self, _: &ServiceEvent) {}

    /// Called before a notification is delivered to the application.
    fn on_completion(&self, _: CqId) {}
}

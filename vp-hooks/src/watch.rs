//! `watch`: reports each call of a verb as it begins and as it ends. For those who find out in which verb a process
//! ended: unlike [`crate::trace`], which logs a verb when it has returned. Not for configuration files.

use std::sync::Arc;

use vp_api::{Cq, Provider, Services, VpResult, VpStatus};

use crate::hook::{Call, Hook, Layer, Names, Polled};
use crate::provider::Wrapped;
use crate::value::{Failure, Value};
use crate::verb::{Kind, Object, Verb};

/// Gets the calls. Any thread, also several at a time.
pub trait Watcher: Send + Sync + 'static {
    /// The calling thread enters a verb, which has this name in the traits of [`vp_api`], or a release or close.
    fn begins(&self, verb: &'static str);
    /// It has left it.
    fn ends(&self);
}

/// Wraps `provider`, so that `watcher` gets the calls of its verbs.
pub fn watch(provider: Arc<dyn Provider>, watcher: Arc<dyn Watcher>) -> Arc<dyn Provider> {
    Wrapped::create(provider, Watched(watcher))
}

struct Watched(Arc<dyn Watcher>);

impl Watched {
    fn run<R>(&self, verb: Verb, run: impl FnOnce() -> R) -> R {
        self.0.begins(verb.name());
        let result = run();
        self.0.ends();
        result
    }
}

/// What the end of a handle of this kind is called.
fn release(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Rnic => Some("close"),
        Kind::Cq => Some("release of a CQ"),
        Kind::Srq => Some("release of an SRQ"),
        Kind::Qp => Some("release of a QP"),
        _ => None,
    }
}

/// Ends the release of its object.
struct Released(Option<Arc<dyn Watcher>>);

impl Drop for Released {
    fn drop(&mut self) {
        if let Some(watcher) = &self.0 {
            watcher.ends();
        }
    }
}

impl Layer for Watched {
    type Hook = Self;

    fn hook(&self, _: Names<'_>, _: Arc<dyn Services>) -> VpResult<Self> {
        Ok(Self(self.0.clone()))
    }
}

impl Hook for Watched {
    type PerObject = Released;

    fn per_object(&self, object: Object) -> Released {
        Released(release(object.kind).map(|_| self.0.clone()))
    }

    fn lets_go(&self, object: Object) {
        if let Some(name) = release(object.kind) {
            self.0.begins(name);
        }
    }

    fn call<T: Value, E: Failure>(
        &self,
        _: &Released,
        call: &Call<'_>,
        verb: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.run(call.verb, verb)
    }

    fn poll(&self, _: &Released, cq: &dyn Cq, mut polled: Polled<'_>) -> Result<usize, VpStatus> {
        self.run(Verb::Poll, || polled.fill(cq))
    }
}

//! `trace`: logs every verb with its arguments and its result.
//!
//! ```text
//! trace[:every=N][,empty]
//! ```
//!
//! - `every=N`: on the data path (post, poll, arm) only every N-th call of each object is logged, beginning with
//!   the first; 0 means none. Default 1. Refused calls and failed completions are always logged; the times of those
//!   that are not the N-th are not measured.
//! - `empty`: logs empty polls, and waits that time out, too; without it they are not counted.
//!
//! Lines go to [`Services::log`]: verbs of the data path at [`LogLevel::Trace`], all others, and asynchronous
//! events, at [`LogLevel::Debug`]. Payload and private data are never logged. Listing devices is not logged,
//! because there are no services before an RNIC is opened.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use vp_api::{
    AsyncEvent, Cq, CqId, EventSource, LogLevel, ServiceEvent, Services, VpResult, VpStatus,
    WcStatus,
};

use crate::hook::{Call, Hook, Layer, Names, Polled};
use crate::show::{Completions, Service};
use crate::value::{Failure, Value};
use crate::verb::{Kind, Object, Verb};

/// Target of the log lines.
pub const TARGET: &str = "vp_hooks::trace";

/// Which calls are logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Options {
    every: u32,
    empty: bool,
}

impl Options {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut options = Self { every: 1, empty: false };
        for option in crate::options(text) {
            match option {
                ("every", Some(value)) => options.every = crate::number(value)?,
                ("empty", None) => options.empty = true,
                (key, _) => {
                    return Err(format!(
                        "there is no option `{key}`; there are `every=N`, `empty`"
                    ));
                }
            }
        }
        Ok(options)
    }
}

/// Makes the hooks of traced RNICs.
pub(crate) struct TraceLayer(pub(crate) Options);

impl Layer for TraceLayer {
    type Hook = Trace;

    fn hook(&self, names: Names<'_>, services: Arc<dyn Services>) -> VpResult<Trace> {
        Ok(Trace { options: self.0, device: names.device.to_owned(), services })
    }
}

/// Logs the verbs of one RNIC.
pub(crate) struct Trace {
    options: Options,
    device: String,
    services: Arc<dyn Services>,
}

/// A result as text.
struct Shown<'a, T, E>(&'a Result<T, E>);

impl<T: Value, E: Failure> Display for Shown<'_, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Ok(value) => value.show(f),
            Err(failure) => write!(f, "error: {failure}"),
        }
    }
}

impl Trace {
    /// Whether this call of the data path is to be logged.
    fn is_sampled(&self, calls: &AtomicU32) -> bool {
        match self.options.every {
            0 => false,
            1 => true,
            every => calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(every),
        }
    }

    fn log(&self, call: &Call<'_>, result: &dyn Display, elapsed_ns: Option<u64>) {
        let level = if call.verb.is_data() { LogLevel::Trace } else { LogLevel::Debug };
        let mut line = format!("{}: {}: {}", self.device, call.object, call.verb.name());
        if call.arguments.as_str() != Some("") {
            line += &format!(" {}", call.arguments);
        }
        line += &format!(" -> {result}");
        if let Some(ns) = elapsed_ns {
            line += &format!(" ({ns} ns)");
        }
        self.services.log(level, TARGET, &line);
    }

    /// Runs a verb; also returns how long it took, if `timed`.
    fn run<R>(&self, timed: bool, verb: impl FnOnce() -> R) -> (R, Option<u64>) {
        let begin = timed.then(|| self.services.now_ns());
        let result = verb();
        (result, begin.map(|begin| self.services.now_ns().saturating_sub(begin)))
    }
}

impl Hook for Trace {
    /// Number of calls of the data path so far.
    type PerObject = AtomicU32;

    fn per_object(&self, _: Object) -> AtomicU32 {
        AtomicU32::new(0)
    }

    fn call<T: Value, E: Failure>(
        &self,
        calls: &AtomicU32,
        call: &Call<'_>,
        verb: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let sampled = !call.verb.is_data() || self.is_sampled(calls);
        let (result, elapsed_ns) = self.run(sampled, verb);
        let idle = result.as_ref().is_ok_and(Value::is_nothing) && !self.options.empty;
        if result.is_err() || (sampled && !idle) {
            self.log(call, &Shown(&result), elapsed_ns);
        }
        result
    }

    fn poll(
        &self,
        calls: &AtomicU32,
        cq: &dyn Cq,
        mut polled: Polled<'_>,
    ) -> Result<usize, VpStatus> {
        let room = polled.out.len();
        let sampled = self.options.every != 0;
        let (result, elapsed_ns) = self.run(sampled, || polled.fill(cq));
        let cq = Object::new(Kind::Cq, cq.id().0);
        let log = |result: &dyn Display| {
            self.log(&Call::new(Verb::Poll, cq, format_args!("up to {room}")), result, elapsed_ns);
        };
        match &result {
            Ok(0) if !self.options.empty => {}
            Ok(count) => {
                let polled = polled.out.get(..*count).unwrap_or_default();
                let failed = polled.iter().any(|c| c.status != WcStatus::Success);
                if self.is_sampled(calls) || failed {
                    log(&Completions(polled));
                }
            }
            Err(_) => log(&Shown(&result)),
        }
        result
    }

    fn on_event(&self, source: EventSource, event: AsyncEvent) {
        let line = format!("{}: event: {source:?}: {event:?}", self.device);
        self.services.log(LogLevel::Debug, TARGET, &line);
    }

    fn on_service(&self, event: &ServiceEvent) {
        let line = format!("{}: ud: event: {}", self.device, Service(event));
        self.services.log(LogLevel::Debug, TARGET, &line);
    }

    fn on_completion(&self, cq: CqId) {
        let line = format!("{}: cq {}: notification", self.device, cq.0);
        self.services.log(LogLevel::Trace, TARGET, &line);
    }
}

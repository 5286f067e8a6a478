//! Wrappers around providers. They observe every verb or inject faults, and can be stacked.
//!
//! | wrapper | what it does |
//! |---|---|
//! | [`trace`] | logs verbs with arguments and result |
//! | [`stats`] | counts and times verbs, per object |
//! | [`fault`] | fault injection: refuses calls, loses, repeats or delays completions, makes resources scarce |
//! | [`layer`] | a wrapper in a library of its own |
//! | [`watch`] | reports each verb as it begins and as it ends, to code of the host only |
//!
//! [`wrap`] makes any of them from a line of text, as in a configuration file. A wrapper has the name of the
//! provider that it wraps. The wrappers of this crate pass every id through. They own only their counters and the
//! completions that they hold back, separately for each RNIC that is opened through them. Verbs run in the calling
//! thread. If a peer dies, a wrapper sees the completions and events of the wrapped provider.
//!
//! `vp-hooks` puts hooks around any provider, with the same traits: `trace` logs verbs with arguments
//! and result, `stats` counts and times them per object, `fault` injects faults, `layer` is a library of
//! a third party. `[providers] wrap = ["trace", "layer:/usr/lib/libaudit.so",
//! "fault:post_send@3=QueueFull"]` stacks them, the first next to the application. A provider whose
//! layer cannot be used is not used. One generic wrapper sends every verb through a hook; the three
//! differ only in the hook, and each costs one more virtual call. What a fault does depends on its text
//! and the order of calls, never on time; the order of a QP's completions never changes, and a consumer
//! that polls, arms and polls again is always notified.

#![forbid(unsafe_code)]

mod cm;
mod datagrams;
pub mod fault;
mod hook;
pub mod layer;
mod paths;
mod provider;
mod queues;
mod rnic;
mod show;
pub mod stats;
pub mod trace;
mod value;
mod verb;
pub mod watch;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;
use vp_api::Provider;

use provider::Wrapped;

/// Why no wrapper can be made from a text.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("wrapper `{text}`: {what}")]
pub struct WrapError {
    /// The whole text.
    pub text: String,
    /// What is wrong with it, and what is allowed.
    pub what: String,
}

/// The parsed form of `NAME` or `NAME:OPTIONS`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrapper {
    text: String,
    kind: Kind,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Kind {
    Trace(trace::Options),
    Stats(stats::Options),
    Fault(Arc<fault::Spec>),
    Layer(layer::Spec),
}

impl Wrapper {
    /// The wrapper around `provider`.
    pub fn around(&self, provider: Arc<dyn Provider>) -> Arc<dyn Provider> {
        match &self.kind {
            Kind::Trace(options) => Wrapped::create(provider, trace::TraceLayer(*options)),
            Kind::Stats(options) => Wrapped::create(provider, stats::StatsLayer(*options)),
            Kind::Fault(spec) => Wrapped::create(provider, fault::FaultLayer::new(spec.clone())),
            Kind::Layer(spec) => layer::Layered::create(provider, spec.clone()),
        }
    }
}

impl FromStr for Wrapper {
    type Err = WrapError;

    fn from_str(text: &str) -> Result<Self, WrapError> {
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        let kind = match name.trim() {
            "trace" => trace::Options::parse(options).map(Kind::Trace),
            "stats" => stats::Options::parse(options).map(Kind::Stats),
            "fault" => fault::Spec::parse(options).map(|spec| Kind::Fault(Arc::new(spec))),
            "layer" => layer::Spec::parse(options).map(Kind::Layer),
            name => {
                Err(format!("there is no `{name}`; there are `trace`, `stats`, `fault`, `layer`"))
            }
        };
        let text = text.to_owned();
        match kind {
            Ok(kind) => Ok(Self { text, kind }),
            Err(what) => Err(WrapError { text, what }),
        }
    }
}

impl fmt::Display for Wrapper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Wraps a provider, e.g. in `fault:post_send@3=TooManyWrs`.
///
/// # Errors
///
/// The text names no wrapper, or its options are not those of the wrapper's module.
pub fn wrap(provider: Arc<dyn Provider>, text: &str) -> Result<Arc<dyn Provider>, WrapError> {
    Ok(text.parse::<Wrapper>()?.around(provider))
}

/// Wraps a provider several times; the first wrapper is the outermost, next to the application.
pub fn stack(provider: Arc<dyn Provider>, wrappers: &[Wrapper]) -> Arc<dyn Provider> {
    wrappers.iter().rev().fold(provider, |inner, wrapper| wrapper.around(inner))
}

/// Splits `KEY=VALUE,KEY,...` into pairs; empty entries are skipped.
fn options(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(|part| {
        match part.split_once('=') {
            Some((key, value)) => (key.trim(), Some(value.trim())),
            None => (part, None),
        }
    })
}

/// Parses a number; the error says what is wrong with it.
fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is not a number in range"))
}

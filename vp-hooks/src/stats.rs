//! `stats`: counts and times verbs, for each object.
//!
//! ```text
//! stats[:every=N]
//! ```
//!
//! - `every=N`: on the data path (post, poll, arm) only every N-th call of each object is timed;
//!   rounded up to a power of two. Default 16. Other verbs are always timed.
//!
//! [`snapshots`] reads the counters of every open RNIC of this process that was opened through such a
//! wrapper. When an RNIC is closed, its totals go to [`Services::log`] at [`LogLevel::Info`].

mod counters;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use kal_os::fork::{Descriptors, Owner, PerProcess};
use vp_api::{Cq, LogLevel, Services, VpResult, VpStatus, WcStatus, room};

use crate::hook::{Call, Hook, Layer, Names, Polled};
use crate::value::{Failure, Value};
pub use crate::verb::{Kind as ObjectKind, Object};
use crate::verb::{Kind, Object as Name, Verb};
use counters::{Counters, Registry};

/// Target of the log lines.
pub const TARGET: &str = "vp_hooks::stats";

/// Which calls are timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Options {
    /// A call is timed if its number has none of these bits.
    mask: u32,
}

impl Options {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut every: u32 = 16;
        for option in crate::options(text) {
            match option {
                ("every", Some(value)) => every = crate::number(value)?,
                (key, _) => return Err(format!("there is no option `{key}`; there is `every=N`")),
            }
        }
        match every.checked_next_power_of_two() {
            Some(every) if every > 0 => Ok(Self { mask: every - 1 }),
            _ => Err(format!("every={every} is too large")),
        }
    }
}

/// Counters of one verb.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VerbStats {
    /// Its name, as in the traits.
    pub verb: &'static str,
    /// Number of calls.
    pub calls: u64,
    /// Calls that returned an error.
    pub refused: u64,
    /// Work requests accepted by posts, completions returned by polls; for other verbs, calls that
    /// succeeded.
    pub items: u64,
    /// Unsuccessful completions returned by polls.
    pub failed: u64,
    /// Calls that were timed.
    pub timed: u64,
    /// The total time of these calls, in nanoseconds.
    pub total_ns: u64,
    /// The time of the longest of them, in nanoseconds.
    pub max_ns: u64,
}

impl VerbStats {
    /// Nanoseconds per call, averaged over the timed calls.
    pub fn mean_ns(&self) -> u64 {
        self.total_ns.checked_div(self.timed).unwrap_or(0)
    }

    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.refused += other.refused;
        self.items += other.items;
        self.failed += other.failed;
        self.timed += other.timed;
        self.total_ns += other.total_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

impl fmt::Display for VerbStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, calls, refused, items, failed, timed, max_ns, .. } = self;
        write!(f, "{verb}: {calls} calls, {refused} refused, {items} items, {failed} failed")?;
        write!(f, "; {} ns on average, {max_ns} at most, {timed} timed", self.mean_ns())
    }
}

/// The counters of one object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectStats {
    /// The object.
    pub object: Object,
    /// The verbs of the object that were called.
    pub verbs: Vec<VerbStats>,
}

/// The counters of one RNIC at one moment. Calls in progress may be counted in part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// Name of the provider.
    pub provider: String,
    /// Name of the device.
    pub device: String,
    /// Every verb that was called, summed over all objects, including destroyed ones.
    pub verbs: Vec<VerbStats>,
    /// The present objects; empty if there is no memory for the list.
    pub objects: Vec<ObjectStats>,
}

impl Snapshot {
    /// The totals of a verb; `None` if it was not called.
    pub fn verb(&self, name: &str) -> Option<&VerbStats> {
        self.verbs.iter().find(|stats| stats.verb == name)
    }

    /// The counters of an object.
    pub fn object(&self, kind: ObjectKind, id: u32) -> Option<&ObjectStats> {
        self.objects.iter().find(|stats| stats.object == Name::new(kind, id))
    }
}

impl ObjectStats {
    /// The counters of one of its verbs; `None` if it was not called.
    pub fn verb(&self, name: &str) -> Option<&VerbStats> {
        self.verbs.iter().find(|stats| stats.verb == name)
    }
}

/// Those of this process. A child made by fork(2) begins without any.
fn registries() -> MutexGuard<'static, Vec<Weak<Registry>>> {
    static REGISTRIES: PerProcess<Mutex<Vec<Weak<Registry>>>> = PerProcess::new();
    REGISTRIES.get::<Here>().lock().unwrap_or_else(PoisonError::into_inner)
}

/// The owner of this crate's table of descriptors, which counts forks; the crate makes none.
struct Here;

impl Owner for Here {
    fn table() -> &'static Descriptors {
        static TABLE: Descriptors = Descriptors::new();
        &TABLE
    }
}

/// The counters of all open RNICs, oldest first; of fewer RNICs if there is no memory for the list. For RNICs in
/// several `stats` wrappers, the innermost comes first.
pub fn snapshots() -> Vec<Snapshot> {
    let registries = {
        let registries = registries();
        as_many(registries.len(), registries.iter().filter_map(Weak::upgrade))
    };
    as_many(registries.len(), registries.iter().map(|registry| registry.snapshot()))
}

/// A list of at most `most` values, or an empty one if there is no memory for that many.
fn as_many<T>(most: usize, values: impl Iterator<Item = T>) -> Vec<T> {
    let mut list = room::try_list(most).unwrap_or_default();
    let room = list.capacity();
    list.extend(values.take(room));
    list
}

/// Makes the hooks of counted RNICs.
pub(crate) struct StatsLayer(pub(crate) Options);

impl Layer for StatsLayer {
    type Hook = Stats;

    fn hook(&self, names: Names<'_>, services: Arc<dyn Services>) -> VpResult<Stats> {
        let registry = Arc::new(Registry::new(names));
        let mut registries = registries();
        registries.retain(|registry| registry.strong_count() > 0);
        room::push(&mut registries, "counters of adapters", Arc::downgrade(&registry))?;
        drop(registries);
        Ok(Stats { mask: self.0.mask, registry, services })
    }
}

/// Counts the verbs of one RNIC.
pub(crate) struct Stats {
    mask: u32,
    registry: Arc<Registry>,
    services: Arc<dyn Services>,
}

impl Hook for Stats {
    type PerObject = Arc<Counters>;

    fn per_object(&self, object: Name) -> Arc<Counters> {
        Registry::open(&self.registry, object)
    }

    fn call<T: Value, E: Failure>(
        &self,
        counters: &Arc<Counters>,
        call: &Call<'_>,
        verb: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let tally = counters.tally(call.verb);
        let number = tally.call();
        let result = if call.verb.is_data() && number & u64::from(self.mask) != 0 {
            verb()
        } else {
            let begin = self.services.now_ns();
            let result = verb();
            tally.time(self.services.now_ns().saturating_sub(begin));
            result
        };
        match &result {
            Ok(_) => tally.items(call.items),
            Err(failure) => tally.refuse(failure.posted()),
        }
        result
    }

    fn poll(
        &self,
        counters: &Arc<Counters>,
        cq: &dyn Cq,
        mut polled: Polled<'_>,
    ) -> Result<usize, VpStatus> {
        let name = Name::new(Kind::Cq, cq.id().0);
        let call = Call::new(Verb::Poll, name, format_args!("")).items(0);
        let count = self.call(counters, &call, || polled.fill(cq))?;
        let failed =
            polled.out.iter().take(count).filter(|c| c.status != WcStatus::Success).count();
        counters.tally(Verb::Poll).complete(count, failed);
        Ok(count)
    }
}

impl Drop for Stats {
    fn drop(&mut self) {
        let Snapshot { device, verbs, .. } = self.registry.snapshot();
        for stats in verbs {
            self.services.log(LogLevel::Info, TARGET, &format!("{device}: {stats}"));
        }
    }
}

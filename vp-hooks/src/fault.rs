//! `fault`: fault injection. Refuses calls; loses, repeats and delays completions and connection events;
//! makes resources scarce.
//!
//! ```text
//! fault:RULE;RULE;...
//! ```
//!
//! | rule | what it does |
//! |---|---|
//! | `VERB[#OBJECT]@WHEN=STATUS` | the call is refused and does not reach the provider |
//! | `drop-completion[#QP]@WHEN` | the completion is lost |
//! | `duplicate-completion[#QP]@WHEN` | the completion is returned twice |
//! | `delay-completion[#QP]@WHEN=POLLS` | it is returned this many polls of its CQ later |
//! | `drop-event@WHEN` | the event of the provider's connection manager is lost |
//! | `duplicate-event@WHEN` | the event is returned twice |
//! | `delay-event@WHEN=POLLS` | it, and those after it, are returned this many polls later |
//! | `max_KIND=COUNT` | no more such objects at once; the RNIC's attributes have this limit |
//! | `seed=NUMBER` | for random rules; default 0 |
//!
//! - `VERB`: named as in the traits of [`vp_api`]. `resize_cq`, `post_srq`, `modify_srq`, `query_srq`, `modify_qp`
//!   and `query_qp` include the object's name. Those of bring-up by path are `path_number`, `path_receive` and
//!   `path_send`. The verbs of datagram services are `listen_service`, `resolve_service`
//!   and so on; their events are not changed. `connect` is both Modify QP to RTS with a stream (at either end of a
//!   connection) and the native connect.
//! - `STATUS`: a name of [`VpStatus`], e.g. `InvalidStream`; `QueueFull` is `TooManyWrs`.
//! - `KIND`: `pd`, `cq`, `srq`, `qp` (of both kinds), `mr`, `mw`, `ah`.
//! - `WHEN`: `3` the third time, `3..` from then on, `3..5` the third to the fifth time, `*4` every
//!   fourth time, `?10` at random, one time in ten.
//! - `#2`: only the second object that this RNIC created, of the kind that the verb is about; for completions, the
//!   second QP. Only calls or completions of that object count.
//!
//! Each rule has its own count, which begins anew for each RNIC that is opened; only `open` is counted for the
//! whole wrapper. What happens depends on the text and the order of calls, not on time; random numbers are a
//! function of the seed. A post is one call, however many work requests it has, and is refused as a whole.
//!
//! The order of a QP's completions never changes: those after a delayed one wait with it. Those of other QPs may
//! overtake. Nothing is delayed beyond the next `arm` of the CQ, nor is what the CQ holds at that time, because a
//! consumer may sleep after it; nor beyond a wait: `wait` returns at once while a completion is held back.
//!
//! Every fault is logged to [`Services::log`] at [`LogLevel::Info`]. Uses no thread and no clock.

mod counts;
mod delay_queue;
mod events;
mod names;
mod objects;
mod spec;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use kal_os::lock;
use vp_api::{
    Cq, DatagramAttrs, LogLevel, NativeCm, NativeEvent, QpId, RnicAttrs, Services, VpError,
    VpResult, VpStatus, WorkCompletion,
};

use crate::hook::{Call, Hook, Layer, Names, Polled};
use crate::value::{Failure, Value};
use crate::verb::{Kind, Object, Verb};
use counts::Counts;
use delay_queue::DelayQueue;
use events::Events;
use objects::Objects;
pub(crate) use spec::Spec;
use spec::{Effect, Fate, Rule};

/// Target of the log lines.
pub const TARGET: &str = "vp_hooks::fault";

/// Makes the hooks of RNICs with fault injection.
pub(crate) struct FaultLayer {
    spec: Arc<Spec>,
    opens: Counts,
}

impl FaultLayer {
    pub(crate) fn new(spec: Arc<Spec>) -> Self {
        Self { opens: Counts::new(&spec), spec }
    }
}

impl Layer for FaultLayer {
    type Hook = Fault;

    fn hook(&self, _: Names<'_>, services: Arc<dyn Services>) -> VpResult<Fault> {
        let fault = Fault {
            counts: Counts::new(&self.spec),
            spec: self.spec.clone(),
            services,
            objects: Mutex::default(),
            making: Mutex::new(()),
            queues: Mutex::default(),
            events: Events::default(),
        };
        let is_open = |rule: &Rule| matches!(rule.effect, Effect::Refuse("open", _));
        match self.opens.first(&self.spec, is_open) {
            Some(rule) => Err(fault.refusal(rule)),
            None => Ok(fault),
        }
    }
}

/// Fault injection into the verbs of one RNIC.
pub(crate) struct Fault {
    spec: Arc<Spec>,
    counts: Counts,
    services: Arc<dyn Services>,
    objects: Mutex<Objects>,
    /// Held while an object with a limit is created.
    making: Mutex<()>,
    /// One delay queue for each CQ.
    queues: Mutex<BTreeMap<u32, Weak<Mutex<DelayQueue>>>>,
    events: Events,
}

impl Fault {
    fn log(&self, what: &str) {
        self.services.log(LogLevel::Info, TARGET, what);
    }

    fn refusal(&self, rule: &Rule) -> VpError {
        let Effect::Refuse(verb, status) = rule.effect else {
            return VpError::new(VpStatus::Defect, "the rule refuses nothing");
        };
        self.log(&format!("{verb} refused: {status}, by `{}`", rule.text));
        VpError::new(status, format!("injected by the rule `{}`", rule.text))
    }

    /// Whether a rule applies to this object.
    fn concerns(&self, rule: &Rule, object: Object) -> bool {
        rule.number.is_none_or(|number| lock(&self.objects).number(object) == Some(number))
    }

    /// The error of a call, if a rule refuses it.
    fn refused<E: Failure>(&self, call: &Call<'_>) -> Option<E> {
        let concerns = |rule: &Rule| {
            matches!(rule.effect, Effect::Refuse(verb, _) if verb == call.verb.name())
                && self.concerns(rule, call.object)
        };
        let rule = self.counts.first(&self.spec, concerns)?;
        let VpError { status, detail } = self.refusal(rule);
        E::new(status, || detail)
    }

    /// The error for an object beyond the limit.
    fn exhausted<E: Failure>(&self, kind: Kind, limit: u32) -> Option<E> {
        if lock(&self.objects).count(kind) < limit {
            return None;
        }
        let name = names::of_kind(kind);
        self.log(&format!("no further {name}: there are {limit}, by `max_{name}={limit}`"));
        E::new(VpStatus::InsufficientResources, || {
            format!("injected by the rule `max_{name}={limit}`")
        })
    }

    /// Records what a verb created or destroyed.
    fn record(&self, call: &Call<'_>, made: Option<u32>) {
        if let (Some(kind), Some(id)) = (call.verb.creates(), made) {
            lock(&self.objects).add(Object::new(kind, id));
        }
        if let (Verb::ReregisterMr, Some(id)) = (call.verb, made) {
            lock(&self.objects).rename(call.object, Object::new(Kind::Mr, id));
        }
        if call.verb.destroys() {
            lock(&self.objects).remove(call.object);
        }
        if matches!(call.verb, Verb::DestroyQp | Verb::DestroyUdQp) {
            self.clear(QpId(call.object.id));
        }
    }

    /// Drops the completions of a destroyed QP, so that none is returned afterwards.
    fn clear(&self, qp: QpId) {
        let queues = lock(&self.queues);
        queues.values().filter_map(Weak::upgrade).for_each(|queue| lock(&queue).clear(qp));
    }

    /// What to do with a completion.
    fn fate(&self, completion: &WorkCompletion) -> Fate {
        let qp = Object::new(Kind::Qp, completion.qp.0);
        let concerns =
            |rule: &Rule| matches!(rule.effect, Effect::Complete(_)) && self.concerns(rule, qp);
        let Some(rule) = self.counts.first(&self.spec, concerns) else { return Fate::Pass };
        // Completions of a QP that was destroyed since they were polled must not be kept.
        if lock(&self.objects).number(qp).is_none() {
            return Fate::Pass;
        }
        self.log(&format!("{qp}: wr {}: completion, by `{}`", completion.wr_id, rule.text));
        match rule.effect {
            Effect::Complete(fate) => fate,
            _ => Fate::Pass,
        }
    }

    /// What to do with an event.
    fn fate_of_event(&self, event: &NativeEvent) -> Fate {
        let is_event = |rule: &Rule| matches!(rule.effect, Effect::Event(_));
        match self.counts.first(&self.spec, is_event) {
            Some(Rule { effect: Effect::Event(fate), text, .. }) => {
                self.log(&format!("cm: {event:?}, by `{text}`"));
                *fate
            }
            _ => Fate::Pass,
        }
    }

    fn poll_past(
        &self,
        queue: &Mutex<DelayQueue>,
        cq: &dyn Cq,
        out: &mut Polled<'_>,
    ) -> Result<usize, VpStatus> {
        let mut filled = lock(queue).poll(out);
        while filled < out.out.len() {
            // Polled with sources, too: a completion that is kept may be returned later to a caller that asks for
            // its source.
            let (mut completions, mut from) = ([WorkCompletion::BLANK; CHUNK], [None; CHUNK]);
            let room = CHUNK.min(out.out.len() - filled);
            let mut kept = lock(queue);
            let (arms, made) = (kept.arms(), kept.make_room(room));
            drop(kept);
            match made {
                Err(status) if filled == 0 => return Err(status),
                Err(_) => break,
                Ok(()) => {}
            }
            // Not under the lock: handlers run in here, and they may poll.
            let polled = match cq.poll_from(&mut completions[..room], &mut from[..room]) {
                Ok(polled) => polled,
                Err(status) if filled == 0 => return Err(status),
                Err(_) => break,
            };
            let mut queue = lock(queue);
            for (completion, from) in completions.iter().zip(from).take(polled) {
                queue.put((completion, from), self.fate(completion));
            }
            filled += queue.take(out, filled);
            if polled < room {
                queue.drained(arms);
            }
            // An empty result tells the consumer that there is nothing, so a lost completion must not cause one.
            if polled == 0 || polled < room && (filled > 0 || !queue.is_empty()) {
                break;
            }
        }
        Ok(filled)
    }
}

/// Completions polled in one call.
const CHUNK: usize = 16;

impl Hook for Fault {
    /// The delay queue of a CQ; nothing for other objects.
    type PerObject = Option<Arc<Mutex<DelayQueue>>>;

    fn per_object(&self, object: Object) -> Self::PerObject {
        let disturbs = |rule: &Rule| matches!(rule.effect, Effect::Complete(_));
        if object.kind != Kind::Cq || !self.spec.rules.iter().any(disturbs) {
            return None;
        }
        let queue = Arc::new(Mutex::new(DelayQueue::default()));
        let mut queues = lock(&self.queues);
        queues.retain(|_, queue| queue.strong_count() > 0);
        queues.insert(object.id, Arc::downgrade(&queue));
        Some(queue)
    }

    fn call<T: Value, E: Failure>(
        &self,
        _: &Self::PerObject,
        call: &Call<'_>,
        verb: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        if call.verb != Verb::Open
            && let Some(failure) = self.refused(call)
        {
            return Err(failure);
        }
        let limit = call.verb.creates().and_then(|kind| Some((kind, self.spec.limit(kind)?)));
        let _making = limit.map(|_| lock(&self.making));
        if let Some(failure) = limit.and_then(|(kind, limit)| self.exhausted(kind, limit)) {
            return Err(failure);
        }
        let result = verb();
        match &result {
            Ok(value) => self.record(call, value.made()),
            // If windows are bound, the region stays; any other failure of this verb destroys it (RDMAC 9.2.6).
            Err(failure) if call.verb == Verb::ReregisterMr => {
                if failure.status() != Some(VpStatus::StagInUse) {
                    lock(&self.objects).remove(call.object);
                }
            }
            Err(_) => {}
        }
        result
    }

    fn poll(
        &self,
        queue: &Self::PerObject,
        cq: &dyn Cq,
        mut polled: Polled<'_>,
    ) -> Result<usize, VpStatus> {
        let name = Object::new(Kind::Cq, cq.id().0);
        self.call(queue, &Call::new(Verb::Poll, name, format_args!("")), || match queue {
            Some(queue) if !polled.out.is_empty() => self.poll_past(queue, cq, &mut polled),
            _ => polled.fill(cq),
        })
    }

    fn poll_event(&self, _: &Self::PerObject, cm: &dyn NativeCm) -> Option<NativeEvent> {
        self.events.next(|| cm.poll_event(), |event| self.fate_of_event(event))
    }

    fn holds_event(&self) -> bool {
        !self.events.is_empty()
    }

    fn adapt(&self, attrs: &mut RnicAttrs) {
        let limits = [
            (Kind::Pd, &mut attrs.max_pd),
            (Kind::Cq, &mut attrs.max_cq),
            (Kind::Srq, &mut attrs.max_srq),
            (Kind::Qp, &mut attrs.max_qp),
            (Kind::Mr, &mut attrs.max_mr),
            (Kind::Mw, &mut attrs.max_mw),
        ];
        for (kind, attr) in limits {
            *attr = self.spec.limit(kind).map_or(*attr, |limit| limit.min(*attr));
        }
    }

    fn adapt_datagrams(&self, attrs: &mut DatagramAttrs) {
        let limit = self.spec.limit(Kind::Ah);
        attrs.max_ah = limit.map_or(attrs.max_ah, |limit| limit.min(attrs.max_ah));
    }

    fn held(&self, queue: &Self::PerObject) -> usize {
        queue.as_ref().map_or(0, |queue| lock(queue).len())
    }

    fn armed(&self, queue: &Self::PerObject) {
        if let Some(queue) = queue {
            lock(queue).armed();
        }
    }
}

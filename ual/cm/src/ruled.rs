//! Rules at one adapter: which rule a connection meets, whether it is admitted, and the number of connections
//! that a rule has.
//!
//! The numbers are the process's, one for each rule, by its place in the configuration: several adapters, and
//! several copies of a configuration, share them; a child made by fork(2) begins at none. A connection has its
//! [`Admission`] from the call that connects, or from the whole request, until its end: a start-up's entry
//! holds it, then the endpoint's link, which releases it with each end that a connection can have.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use kal_os::fork::PerProcess;
use kal_shim::fork::Host;

use crate::policy::{Policy, Program, Question, Rule, RuleRole, Rules};

/// The rules, and what they are compared with: this program and this adapter.
#[derive(Clone, Debug, Default)]
pub struct AdapterRules {
    /// The rules.
    pub rules: Rules,
    /// This program.
    pub program: Program,
    /// Name of the adapter's device.
    pub device: String,
    /// Name of its provider.
    pub provider: String,
}

impl AdapterRules {
    /// Applies the rule that matches a connection to a policy, and returns the rule.
    pub(crate) fn apply(
        &self,
        policy: &mut Policy,
        peer: IpAddr,
        port: u16,
        role: RuleRole,
    ) -> Option<Arc<Rule>> {
        let peer = peer.to_canonical();
        let rule = self.rules.of(&Question { peer, port, role, program: &self.program })?;
        rule.action.apply(policy);
        Some(rule.clone())
    }

    /// Admits a connection that meets a rule. `native`: the provider makes its connections itself.
    pub(crate) fn admit(
        &self,
        rule: Option<&Rule>,
        native: bool,
    ) -> Result<Option<Admission>, Denied> {
        let Some(Rule { place, action, .. }) = rule else { return Ok(None) };
        let denied = |why: String| Denied { place: place.clone(), why };
        if let Some(why) = &action.deny {
            return Err(denied(why.clone()));
        }
        let Self { device, provider, .. } = self;
        let allows = |names: &Vec<String>| names.iter().any(|n| n == device || n == provider);
        if let Some(names) = action.device.as_ref().filter(|names| !allows(names)) {
            let names = names.join(", ");
            return Err(denied(format!("`device` allows {names}; this is {device} of {provider}")));
        }
        if let Some(key) = action.beyond_native().filter(|_| native) {
            return Err(denied(format!(
                "`{key}` cannot be kept: {device} of {provider} makes its connections itself"
            )));
        }
        let Some(most) = action.connections else { return Ok(None) };
        Admission::take(place, most).map(Some).ok_or_else(|| {
            denied(format!(
                "`connections` allows {most} at once in a process, and there are {most}"
            ))
        })
    }
}

/// A rule refuses a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Denied {
    /// `FILE:LINE` of the rule.
    pub place: String,
    /// Which of its keys, or its own reason.
    pub why: String,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the rule at {} refuses the connection: {}", self.place, self.why)
    }
}

impl std::error::Error for Denied {}

/// Connections that rules have, by the rules' places.
#[derive(Default)]
struct Numbers(Mutex<BTreeMap<String, Arc<AtomicU32>>>);

static NUMBERS: PerProcess<Numbers> = PerProcess::new();

/// The right to one of the connections that a rule allows.
#[derive(Debug)]
pub(crate) struct Admission(Arc<AtomicU32>);

impl Admission {
    fn take(place: &str, most: u32) -> Option<Self> {
        let number = {
            // Nothing panics while the lock is held.
            let mut all = NUMBERS.get::<Host>().0.lock().unwrap_or_else(PoisonError::into_inner);
            all.entry(place.to_owned()).or_default().clone()
        };
        let one_more = |now: u32| (now < most).then(|| now + 1);
        number.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Self(number))
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Action, Match};

    fn at(place: &str, action: Action) -> Rule {
        Rule { place: place.into(), matching: Match::default(), action }
    }

    fn adapter() -> AdapterRules {
        AdapterRules {
            device: "softrdma0".into(),
            provider: "vp_softrdma".into(),
            ..AdapterRules::default()
        }
    }

    #[test]
    fn of_many_threads_as_many_are_admitted_as_the_rule_says() {
        let limit = at("limit:1", Action { connections: Some(64), ..Action::default() });
        let admitted: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    let once = || adapter().admit(Some(&limit), false).ok();
                    scope.spawn(move || (0..125).filter_map(|_| once()).collect::<Vec<_>>())
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(admitted.len(), 64);
        let denied = adapter().admit(Some(&limit), false).unwrap_err();
        assert!(denied.to_string().contains("limit:1"), "{denied}");
        drop(admitted);
        assert!(adapter().admit(Some(&limit), false).unwrap().is_some());
    }

    #[test]
    fn a_refusal_names_the_key() {
        let refused = |action: Action, native| {
            adapter().admit(Some(&at("w.toml:3", action)), native).err().map(|e| e.why)
        };
        let deny = Action { deny: Some("not today".into()), ..Action::default() };
        assert_eq!(refused(deny, false).unwrap(), "not today");
        let only = |name: &str| Action { device: Some(vec![name.into()]), ..Action::default() };
        assert_eq!(refused(only("softrdma0"), false), None);
        assert_eq!(refused(only("vp_softrdma"), false), None);
        assert!(refused(only("vp_verbs"), false).unwrap().contains("`device` allows vp_verbs"));
        let rate = || Action { rate: Some(1), ..Action::default() };
        assert_eq!(refused(rate(), false), None);
        assert!(refused(rate(), true).unwrap().contains("`rate`"));
        assert!(adapter().admit(None, true).unwrap().is_none());
    }
}

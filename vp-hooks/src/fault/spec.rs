//! Parses the rules of `fault`. Plain data.

use vp_api::VpStatus;

use super::names;
use crate::number;
use crate::verb::{Kind, Verb};

/// All rules.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Spec {
    pub(super) rules: Vec<Rule>,
    pub(super) seed: u64,
    limits: Vec<(Kind, u32)>,
}

/// One rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Rule {
    pub(super) text: String,
    /// The rule applies only to the object with this number.
    pub(super) number: Option<u32>,
    pub(super) when: When,
    pub(super) effect: Effect,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    Refuse(&'static str, VpStatus),
    Complete(Fate),
    Event(Fate),
}

/// What to do with a completion, or with an event of the connection manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Pass,
    Drop,
    Twice,
    /// It is returned this many polls later.
    Later(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum When {
    /// Effective from the first to the last of these times.
    Between(u64, u64),
    Every(u64),
    OneIn(u64),
}

impl When {
    /// Whether the rule takes effect at the `count`-th time; `chance` is a random number.
    pub(super) fn has_come(self, count: u64, chance: u64) -> bool {
        match self {
            Self::Between(first, last) => (first..=last).contains(&count),
            Self::Every(n) => count.is_multiple_of(n),
            Self::OneIn(n) => chance.is_multiple_of(n),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let positive = |text: &str| match number(text)? {
            0 => Err(format!("`{text}` must not be 0; the first time is 1")),
            n => Ok(n),
        };
        if let Some(n) = text.strip_prefix('*') {
            return positive(n).map(Self::Every);
        }
        if let Some(n) = text.strip_prefix('?') {
            return positive(n).map(Self::OneIn);
        }
        let (first, last) = match text.split_once("..") {
            None => (positive(text)?, positive(text)?),
            Some((first, "")) => (positive(first)?, u64::MAX),
            Some((first, last)) => (positive(first)?, positive(last)?),
        };
        if first > last {
            return Err(format!("`{text}` ends before it begins"));
        }
        Ok(Self::Between(first, last))
    }
}

impl Spec {
    /// The limit on a kind, if there is one.
    pub(super) fn limit(&self, kind: Kind) -> Option<u32> {
        self.limits.iter().find(|(limited, _)| *limited == kind).map(|(_, limit)| *limit)
    }

    /// Parses rules, separated by semicolons.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut spec = Self::default();
        let mut rules = text.split(';').map(str::trim).filter(|rule| !rule.is_empty()).peekable();
        if rules.peek().is_none() {
            return Err("it has no rules, as in `fault:post_send@3=QueueFull`".into());
        }
        for rule in rules {
            spec.add(rule).map_err(|what| format!("rule `{rule}`: {what}"))?;
        }
        Ok(spec)
    }

    fn add(&mut self, rule: &str) -> Result<(), String> {
        let (left, right) = match rule.split_once('=') {
            Some((left, right)) => (left.trim(), Some(right.trim())),
            None => (rule, None),
        };
        if let Some((what, when)) = left.split_once('@') {
            self.rules.push(parse_rule(rule, what.trim(), when.trim(), right)?);
            return Ok(());
        }
        let right = right.ok_or("it needs `@WHEN`, or `=` and a number")?;
        match left.strip_prefix("max_") {
            Some(kind) => self.limits.push((names::kind(kind)?, number(right)?)),
            None if left == "seed" => self.seed = number(right)?,
            None => return Err(format!("`{left}` needs `@WHEN`; without are `max_KIND`, `seed`")),
        }
        Ok(())
    }
}

fn parse_rule(text: &str, what: &str, when: &str, value: Option<&str>) -> Result<Rule, String> {
    let (name, of) = match what.split_once('#') {
        Some((name, object)) => (name.trim(), Some(number::<u32>(object)?)),
        None => (what, None),
    };
    let effect = effect(name, value)?;
    if of.is_some() && !has_object(effect) {
        return Err(format!("`{name}` is not about an object that has a number"));
    }
    Ok(Rule { text: text.to_owned(), number: of, when: When::parse(when)?, effect })
}

fn effect(name: &str, value: Option<&str>) -> Result<Effect, String> {
    if let Some((fate, what)) = name.split_once('-') {
        let fate = parse_fate(name, fate, value)?;
        return match what {
            "completion" => Ok(Effect::Complete(fate)),
            "event" => Ok(Effect::Event(fate)),
            _ => Err(unknown(name)),
        };
    }
    let verb = verb(name)?;
    let status = value.ok_or("it needs `=STATUS`, as in `=InsufficientResources`")?;
    Ok(Effect::Refuse(verb.name(), names::status(status)?))
}

fn parse_fate(name: &str, fate: &str, value: Option<&str>) -> Result<Fate, String> {
    let fate = match fate {
        "drop" => Fate::Drop,
        "duplicate" => Fate::Twice,
        "delay" => return Ok(Fate::Later(number(value.ok_or("it needs `=POLLS`")?)?)),
        _ => return Err(unknown(name)),
    };
    match value {
        Some(_) => Err(format!("`{name}` takes no `=`")),
        None => Ok(fate),
    }
}

fn verb(name: &str) -> Result<Verb, String> {
    let mut verbs = Verb::ALL.iter().filter(|verb| verb.can_fail());
    verbs.find(|verb| verb.name() == name).copied().ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> String {
    let verbs = Verb::ALL.iter().filter(|verb| verb.can_fail());
    let mut known: Vec<_> = verbs.map(|verb| format!("`{}`", verb.name())).collect();
    known.sort();
    known.dedup();
    let faults = "`drop-`, `duplicate-` and `delay-` with `completion` or `event`";
    format!("there is no `{name}`; there are {faults}, {}", known.join(", "))
}

fn has_object(effect: Effect) -> bool {
    let name = match effect {
        Effect::Refuse(name, _) => name,
        Effect::Complete(_) => return true,
        Effect::Event(_) => return false,
    };
    let of_name = Verb::ALL.iter().find(|verb| verb.name() == name);
    of_name.is_some_and(|verb| !matches!(verb.target(), Kind::Rnic | Kind::Cm | Kind::Ud))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(when: &str, until: u64) -> Vec<u64> {
        let when = When::parse(when).unwrap();
        (1..=until).filter(|n| when.has_come(*n, *n)).collect()
    }

    #[test]
    fn the_option_when_selects_the_calls() {
        assert_eq!(times("3", 9), [3]);
        assert_eq!(times("8..", 9), [8, 9]);
        assert_eq!(times("3..5", 9), [3, 4, 5]);
        assert_eq!(times("*4", 9), [4, 8]);
        assert_eq!(times("?5", 10), [5, 10]);
    }

    #[test]
    fn rules_are_read() {
        let text = "post_send@3=QueueFull; drop-completion#2@10; delay-completion@1..=5;\
                    max_qp=2;seed=7;";
        let spec = Spec::parse(text).unwrap();
        let effects: Vec<_> = spec.rules.iter().map(|r| (r.number, r.when, r.effect)).collect();
        assert_eq!(
            effects,
            [
                (None, When::Between(3, 3), Effect::Refuse("post_send", VpStatus::TooManyWrs)),
                (Some(2), When::Between(10, 10), Effect::Complete(Fate::Drop)),
                (None, When::Between(1, u64::MAX), Effect::Complete(Fate::Later(5))),
            ]
        );
        assert_eq!((spec.seed, spec.limit(Kind::Qp), spec.limit(Kind::Mr)), (7, Some(2), None));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, what) in [
            ("", "it has no rules"),
            ("post_snd@1=InUse", "there is no `post_snd`"),
            ("interrupt@1=InUse", "there is no `interrupt`"),
            ("post_send@1", "it needs `=STATUS`"),
            ("post_send@1=Full", "`Full` is no status"),
            ("post_send@0=InUse", "must not be 0"),
            ("post_send@x=InUse", "`x` is not a number"),
            ("post_send@5..3=InUse", "ends before it begins"),
            ("post_send=InUse", "`post_send` needs `@WHEN`"),
            ("create_qp#1@1=InUse", "not about an object"),
            ("drop-completion@1=2", "takes no `=`"),
            ("delay-completion@1", "it needs `=POLLS`"),
            ("delay-event@1", "it needs `=POLLS`"),
            ("drop-event@1=2", "takes no `=`"),
            ("drop-event#1@1", "not about an object"),
            ("drop-call@1", "there is no `drop-call`"),
            ("lose-event@1", "there is no `lose-event`"),
            ("max_port=1", "there is no limit `max_port`"),
            ("max_qp=-1", "`-1` is not a number"),
            ("nonsense", "it needs `@WHEN`"),
        ] {
            let error = Spec::parse(text).unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}

//! The syntax of `[[rule]]`. Plain data.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use toml::Spanned;
use ual_cm::policy::{Action, Match, Rule, RuleRole};
use ual_cm::{Crc, LocalStreams, Network};

/// `[[rule]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table with `match` and `action`")]
pub(super) struct RuleTable {
    #[serde(rename = "match")]
    matching: Spanned<Matching>,
    action: Spanned<Acting>,
}

impl RuleTable {
    /// The rule with its place, which `place` makes of an offset; or where it is wrong, and what.
    pub(super) fn named(self, place: impl Fn(usize) -> String) -> Result<Rule, (usize, String)> {
        let Self { matching, action } = self;
        let at = action.span().start;
        let place = place(matching.span().start);
        let action = action.into_inner().checked().map_err(|why| (at, why.to_owned()))?;
        Ok(Rule { place, matching: matching.into_inner().into(), action })
    }
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields, expecting = "a table, such as { role = \"accept\" }")]
struct Matching {
    peer: Option<Network>,
    port: Option<Ports>,
    role: Option<Role>,
    uid: Option<u32>,
    exe: Option<String>,
    class: Option<String>,
}

impl From<Matching> for Match {
    fn from(keys: Matching) -> Self {
        let Matching { peer, port, role, uid, exe, class } = keys;
        let role = role.map(|role| match role {
            Role::Connect => RuleRole::Connect,
            Role::Accept => RuleRole::Accept,
        });
        Self { peer, port: port.map(|ports| ports.0), role, uid, exe, class }
    }
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Role {
    Connect,
    Accept,
}

/// `7000`, `"7000"` or `"7000-7099"`.
struct Ports((u16, u16));

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(i64),
            Text(String),
            Other(serde::de::IgnoredAny),
        }
        let text = match Written::deserialize(input)? {
            Written::Number(number) => number.to_string(),
            Written::Text(text) => text,
            Written::Other(_) => "this".into(),
        };
        let (first, last) = text.split_once('-').unwrap_or((&text, &text));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(Self((first, last))),
            _ => Err(D::Error::custom(format!(
                "`{text}` is neither a port from 0 to 65535, as 7000, nor a range of them, the lower \
                 one first, as \"7000-7099\""
            ))),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields, expecting = "a table, such as { deny = \"the reason\" }")]
struct Acting {
    deny: Option<String>,
    device: Option<Vec<String>>,
    rate: Option<Rate>,
    dscp: Option<Dscp>,
    connections: Option<u32>,
    crc: Option<Crc>,
    local: Option<LocalStreams>,
}

impl Acting {
    fn checked(self) -> Result<Action, &'static str> {
        let Self { deny, device, rate, dscp, connections, crc, local } = self;
        let (rate, dscp) = (rate.map(|rate| rate.0), dscp.map(|dscp| dscp.0));
        let action = Action { deny, device, rate, dscp, connections, crc, local };
        let bare = Action { deny: None, ..action.clone() } == Action::default();
        match &action {
            Action { deny: None, .. } if bare => {
                Err("the rule does nothing; an action is one or more of `device`, `rate`, `dscp`, \
                     `connections`, `crc`, `local`, or `deny`")
            }
            Action { deny: Some(_), .. } if !bare => Err(
                "`deny` refuses the connection, so that no other action has an effect; keep one",
            ),
            Action { device: Some(names), .. } if names.is_empty() => {
                Err("`device` allows nothing; name devices or providers, or use `deny`")
            }
            Action { rate: Some(_), local: Some(LocalStreams::Require), .. } => {
                Err("`rate` needs TCP, and `local = \"require\"` a local stream; keep one")
            }
            _ => Ok(action),
        }
    }
}

/// Octets a second.
struct Rate(u64);

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let text = String::deserialize(input)?;
        octets_per_second(&text).map(Self).ok_or_else(|| {
            D::Error::custom(format!(
                "`{text}` is no rate; write a number of bits a second with its unit, as \"200Mbit\": \
                 from 8Kbit to 1000Gbit, in Kbit, Mbit or Gbit"
            ))
        })
    }
}

/// `"1.5Gbit"` in octets per second.
fn octets_per_second(text: &str) -> Option<u64> {
    let (number, unit) = [("Kbit", 1e3), ("Mbit", 1e6), ("Gbit", 1e9)]
        .into_iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?.trim_end(), unit)))?;
    let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let bits = number.parse::<f64>().ok().filter(|_| digits)? * unit;
    (8e3..=1e12).contains(&bits).then_some((bits / 8.0) as u64)
}

/// A code point.
struct Dscp(u8);

impl<'de> Deserialize<'de> for Dscp {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(input)?;
        let wrong = || D::Error::custom(format!("{number} is not a number between 0 and 63"));
        let within = u8::try_from(number).ok().filter(|dscp| *dscp < 64);
        within.map(Self).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_a_number_and_a_unit() {
        for (text, octets) in [
            ("8Kbit", Some(1_000)),
            ("200Mbit", Some(25_000_000)),
            ("1.5 Gbit", Some(187_500_000)),
            ("1000Gbit", Some(125_000_000_000)),
            ("1001Gbit", None),
            ("7Kbit", None),
            ("1e3Mbit", None),
            ("-1Mbit", None),
            ("infMbit", None),
            ("Mbit", None),
            ("1MB", None),
            ("1", None),
        ] {
            assert_eq!(octets_per_second(text), octets, "{text}");
        }
    }
}

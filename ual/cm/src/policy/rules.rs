//! Rules: what a connection may do, by peer, port, role and program. Plain data; the first rule that matches
//! decides. Rules are read once, with the configuration; each connection is compared with them once.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::{Crc, LocalStreams, Network, Policy};

/// Which end of a connection a rule is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleRole {
    /// The end that connects, or that begins on a converted socket.
    Connect,
    /// The end that accepts.
    Accept,
}

impl fmt::Display for RuleRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connect",
            Self::Accept => "accept",
        })
    }
}

/// The program that has the connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Program {
    /// Its effective user.
    pub uid: u32,
    /// Path of its executable file; empty if unknown.
    pub exe: String,
    /// The class that it declares (`$WARPLINE_CLASS`); empty: none.
    pub class: String,
}

/// A connection, as rules see it.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// Address of the peer.
    pub peer: IpAddr,
    /// Port of the listener, at either end.
    pub port: u16,
    /// Our end.
    pub role: RuleRole,
    /// Our program.
    pub program: &'a Program,
}

/// What a connection must be for a rule to apply; keys that are absent match everything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct Match {
    pub peer: Option<Network>,
    /// First and last.
    pub port: Option<(u16, u16)>,
    pub role: Option<RuleRole>,
    pub uid: Option<u32>,
    /// Path, with `*` for any text.
    pub exe: Option<String>,
    /// With `*` for any text.
    pub class: Option<String>,
}

/// The first key of a rule that does not match.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// The key.
    pub key: &'static str,
    /// What the rule has.
    pub wants: String,
    /// What the connection has.
    pub has: String,
}

impl Match {
    /// Why it does not match; `None`: it does.
    pub fn mismatch(&self, of: &Question<'_>) -> Option<Mismatch> {
        let differs = |key, wants: String, has: &dyn fmt::Display| {
            Some(Mismatch { key, wants, has: has.to_string() })
        };
        if let Some(peer) = self.peer.filter(|peer| !peer.contains(of.peer)) {
            return differs("peer", peer.to_string(), &of.peer);
        }
        if let Some((first, last)) = self.port.filter(|(f, l)| !(*f..=*l).contains(&of.port)) {
            return differs("port", ports(first, last), &of.port);
        }
        if let Some(role) = self.role.filter(|role| *role != of.role) {
            return differs("role", role.to_string(), &of.role);
        }
        let Program { uid, exe, class } = of.program;
        if let Some(wanted) = self.uid.filter(|wanted| wanted != uid) {
            return differs("uid", wanted.to_string(), uid);
        }
        if let Some(pattern) = self.exe.as_ref().filter(|pattern| !fits(pattern, exe)) {
            return differs("exe", pattern.clone(), exe);
        }
        let pattern = self.class.as_ref().filter(|pattern| !fits(pattern, class))?;
        differs("class", pattern.clone(), class)
    }

    /// Whether it can be decided without a connection.
    pub fn is_about_the_program(&self) -> bool {
        self.peer.is_none() && self.port.is_none() && self.role.is_none()
    }
}

/// Ports as the configuration has them.
pub fn ports(first: u16, last: u16) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

/// Whether a text fits a pattern, in which `*` stands for any text.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    let mut parts: Vec<_> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    // The first place of each part is the best: it leaves the most text to the others.
    for part in parts {
        let Some((_, behind)) = text.split_once(part) else { return false };
        text = behind;
    }
    text.ends_with(last)
}

/// What a rule does with a connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Action {
    /// Refuse it, for this reason.
    pub deny: Option<String>,
    /// Only adapters with one of these names, or of a provider with one.
    pub device: Option<Vec<String>>,
    /// Octets a second that it may send, at most.
    pub rate: Option<u64>,
    /// Differentiated services code point.
    pub dscp: Option<u8>,
    /// Connections of this process that meet this rule at once, at most.
    pub connections: Option<u32>,
    /// In place of the policy's.
    pub crc: Option<Crc>,
    /// In place of the policy's.
    pub local: Option<LocalStreams>,
}

impl Action {
    /// The policy of a connection that meets the rule.
    pub fn apply(&self, policy: &mut Policy) {
        policy.crc = self.crc.unwrap_or(policy.crc);
        policy.local = self.local.unwrap_or(policy.local);
        policy.dscp = self.dscp.unwrap_or(policy.dscp);
        policy.rate = self.rate.or(policy.rate);
    }

    /// The first thing in it that a provider with a connection manager of its own cannot do.
    pub(crate) fn beyond_native(&self) -> Option<&'static str> {
        let demands_local = self.local == Some(LocalStreams::Require);
        [
            (self.rate.is_some(), "rate"),
            (self.dscp.is_some(), "dscp"),
            (self.crc.is_some(), "crc"),
            (demands_local, "local"),
        ]
        .into_iter()
        .find_map(|(has, key)| has.then_some(key))
    }
}

/// A rule of the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// `FILE:LINE`.
    pub place: String,
    /// Which connections.
    pub matching: Match,
    /// What becomes of them.
    pub action: Action,
}

/// The rules in force, in their order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rules(pub Vec<Arc<Rule>>);

impl Rules {
    /// The rule that a connection meets.
    pub fn of(&self, question: &Question<'_>) -> Option<&Arc<Rule>> {
        self.0.iter().find(|rule| rule.matching.mismatch(question).is_none())
    }

    /// The names of devices that a program may open, if the first rule that is about programs alone, and about
    /// this one, has any.
    pub fn devices(&self, program: &Program) -> Option<&[String]> {
        let anywhere = Question {
            peer: IpAddr::from([0, 0, 0, 0]),
            port: 0,
            role: RuleRole::Connect,
            program,
        };
        let about = |rule: &&Arc<Rule>| {
            rule.matching.is_about_the_program() && rule.matching.mismatch(&anywhere).is_none()
        };
        self.0.iter().find(about)?.action.device.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, fit) in [
            ("", "", true),
            ("", "x", false),
            ("*", "", true),
            ("*", "/bin/x", true),
            ("/bin/x", "/bin/x", true),
            ("/bin/x", "/bin/xy", false),
            ("*/mpirun", "/usr/bin/mpirun", true),
            ("*/mpirun", "mpirun", false),
            ("*/mpirun", "/usr/bin/mpirun2", false),
            ("/usr/*", "/usr/bin/x", true),
            ("/usr/*", "/opt/usr/x", false),
            ("/usr/*/x*", "/usr/bin/xyz", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("*a*", "bab", true),
            ("*ab*ab", "ab", false),
            ("**", "x", true),
        ] {
            assert_eq!(fits(pattern, text), fit, "{pattern} {text}");
        }
    }
}

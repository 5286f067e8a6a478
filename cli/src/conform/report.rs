//! The report: a verdict for every requirement, and the octets of every failure. No state.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::{Value, json};

use super::args::ConformArgs;
use super::catalogue::Requirement;
use super::record::{Entry, Finding, Way};
use super::session::Stand;
use super::verdict::{Role, Verdict};
use crate::error::CliResult;

/// Octets of one transfer that the text shows.
const SHOWN: usize = 96;
/// Transfers of one failure that the text shows.
const TRANSFERS: usize = 12;

/// The wire does not show it.
const UNTESTED: &str = "not testable";
/// A known peculiarity of implementations, which this peer has or has not.
const SEEN: &str = "seen";
const NOT_SEEN: &str = "not seen";

/// A case that was played, or why it has no verdict.
pub(super) struct Played {
    pub(super) name: &'static str,
    pub(super) ids: &'static [&'static str],
    pub(super) verdict: Verdict,
    pub(super) findings: Vec<Finding>,
    pub(super) entries: Vec<Entry>,
}

impl Played {
    /// Its verdict for each requirement.
    fn says(&self) -> impl Iterator<Item = (&'static str, &Verdict)> {
        let own = self.ids.iter().map(|id| (*id, &self.verdict));
        own.chain(self.findings.iter().flat_map(|f| f.ids.iter().map(|id| (*id, &f.verdict))))
    }

    fn fails(&self) -> bool {
        self.says().any(|(_, verdict)| matches!(verdict, Verdict::Fail(_)))
    }
}

/// The verdict of all cases for one requirement.
struct Row<'a> {
    requirement: &'a Requirement,
    word: &'static str,
    why: Vec<String>,
    cases: Vec<&'static str>,
}

pub(super) struct Report {
    played: Vec<Played>,
    requirements: Vec<Requirement>,
    /// With `--only`: these.
    only: Vec<String>,
    /// With `--case`: only the verdicts of these cases.
    picked: bool,
    role: Role,
    /// Whether a case for peers of a role shows a requirement, and why none does.
    has_case: fn(&str, Role) -> bool,
    unseen: fn(&str, Role) -> &'static str,
    /// Cases that were not played, and the last one before the peer stopped serving.
    unplayed: Option<(usize, &'static str)>,
    head: Value,
}

impl Report {
    pub(super) fn new<B: Stand>(
        bench: &B,
        played: Vec<Played>,
        unplayed: usize,
        args: &ConformArgs,
    ) -> Self {
        let role = if bench.role() == Role::Responder { "responder" } else { "initiator" };
        let mut head = bench.head();
        head["address"] = bench.address().to_string().into();
        head["role"] = role.into();
        Self {
            played,
            requirements: B::requirements(),
            only: args.only.clone(),
            picked: !args.case.is_empty(),
            role: bench.role(),
            has_case: B::has_case,
            unseen: B::unseen,
            unplayed: bench.progress().gone.map(|last| (unplayed, last)).filter(|_| unplayed > 0),
            head,
        }
    }

    /// Requirements that are not met.
    pub(super) fn failures(&self) -> usize {
        count(&self.rows(), "fail")
    }

    /// What was not played, and why.
    pub(super) fn not_played(&self) -> Option<String> {
        let (count, last) = self.unplayed?;
        let cases = crate::output::count(count as u64, "case");
        let why = match self.role {
            Role::Initiator => "no longer connected",
            Role::Responder | Role::Both => "accepted no connection",
        };
        Some(format!("{cases} not played: the peer {why} after \"{last}\""))
    }

    fn rows(&self) -> Vec<Row<'_>> {
        let mut verdicts: BTreeMap<&str, Vec<(&'static str, &Verdict)>> = BTreeMap::new();
        for played in &self.played {
            for (id, verdict) in played.says() {
                verdicts.entry(id).or_default().push((played.name, verdict));
            }
        }
        let wanted = |r: &&Requirement| {
            let asked = self.only.is_empty() || self.only.contains(&r.id);
            asked && (!self.picked || verdicts.contains_key(r.id.as_str()))
        };
        let unplayed = self.unplayed.map(|(_, last)| last);
        let row = |requirement| self.row(requirement, &verdicts, unplayed);
        self.requirements.iter().filter(wanted).map(row).collect()
    }

    fn row<'a>(
        &self,
        requirement: &'a Requirement,
        verdicts: &BTreeMap<&str, Vec<(&'static str, &Verdict)>>,
        unplayed: Option<&str>,
    ) -> Row<'a> {
        let all = verdicts.get(requirement.id.as_str()).map_or(&[][..], |all| all);
        let (mut failed, mut skipped, mut cases) = (Vec::new(), Vec::new(), Vec::new());
        for (case, verdict) in all {
            let (list, text) = match verdict {
                Verdict::Fail(text) => (&mut failed, format!("{case}: {text}")),
                Verdict::Skip(text) => (&mut skipped, text.clone()),
                Verdict::Pass => {
                    cases.push(*case);
                    continue;
                }
            };
            if !list.contains(&text) {
                list.push(text);
            }
        }
        let passed = !cases.is_empty();
        let peculiarity = requirement.id.starts_with("IOP");
        let (word, why) = match (failed.is_empty(), passed) {
            (false, _) if peculiarity => (SEEN, failed),
            (true, true) if peculiarity => (NOT_SEEN, Vec::new()),
            (false, _) => {
                cases = all
                    .iter()
                    .filter(|(_, v)| matches!(v, Verdict::Fail(_)))
                    .map(|c| c.0)
                    .collect();
                ("fail", failed)
            }
            (true, true) => ("pass", Vec::new()),
            (true, false) if skipped.is_empty() => {
                let why = match unplayed.filter(|_| (self.has_case)(&requirement.id, self.role)) {
                    Some(last) => format!("not played: the peer was gone after \"{last}\""),
                    None => (self.unseen)(&requirement.id, self.role).to_owned(),
                };
                (UNTESTED, vec![why])
            }
            (true, false) => (UNTESTED, skipped),
        };
        cases.dedup();
        Row { requirement, word, why, cases }
    }

    /// As text.
    pub(super) fn text(&self, out: &mut dyn Write) -> CliResult<()> {
        let word = |key: &str| self.head[key].as_str().unwrap_or_default().to_owned();
        writeln!(out, "peer at {}: {}, as {}", word("address"), word("kind"), word("role"))?;
        self.failed_cases(out)?;
        let rows = self.rows();
        for row in rows.iter().filter(|row| row.word == "fail") {
            let Requirement { id, level, section, .. } = row.requirement;
            writeln!(out, "fail          {id:<9} {level:<7} {section}: {}", briefly(&row.why))?;
        }
        let mut reasons: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for row in rows.iter().filter(|row| row.word == UNTESTED) {
            reasons.entry(row.why.join("; ")).or_default().push(&row.requirement.id);
        }
        for word in ["pass", SEEN, NOT_SEEN] {
            let of = rows.iter().filter(|row| row.word == word);
            let ids: Vec<_> = of.map(|row| row.requirement.id.as_str()).collect();
            writeln!(out, "{word:<13} {}", ids.join(" "))?;
        }
        for (why, ids) in reasons {
            writeln!(out, "not testable  {why}: {}", ids.join(" "))?;
        }
        let cases = self.played.iter().filter(|p| !matches!(p.verdict, Verdict::Skip(_))).count();
        writeln!(
            out,
            "\n{}, {} pass, {} fail, {} cannot be tested",
            crate::output::count(cases as u64, "case"),
            crate::output::count(count(&rows, "pass") as u64, "requirement"),
            count(&rows, "fail"),
            count(&rows, UNTESTED),
        )?;
        if let Some(text) = self.not_played() {
            writeln!(out, "{text}")?;
        }
        Ok(())
    }

    /// Each failure with its octets; equal failures are counted, not repeated.
    fn failed_cases(&self, out: &mut dyn Write) -> CliResult<()> {
        let mut counts: BTreeMap<Vec<&str>, usize> = BTreeMap::new();
        for played in self.played.iter().filter(|played| played.fails()) {
            let beside = played.findings.iter().filter(|f| matches!(f.verdict, Verdict::Fail(_)));
            let mut fresh = matches!(played.verdict, Verdict::Fail(_));
            for finding in beside {
                let times = counts.entry(finding.ids.clone()).or_default();
                *times += 1;
                fresh |= *times == 1;
            }
            if fresh {
                failed_case(played, out)?;
            }
        }
        for (ids, times) in counts.iter().filter(|(_, times)| **times > 1) {
            writeln!(out, "\n{} in {times} cases", ids.join(" "))?;
        }
        Ok(writeln!(out)?)
    }

    /// As JSON.
    pub(super) fn json(&self, out: &mut dyn Write) -> CliResult<()> {
        let rows = self.rows();
        let requirements: Vec<_> = rows
            .iter()
            .map(|row| {
                json!({
                    "id": row.requirement.id, "level": row.requirement.level,
                    "section": row.requirement.section,
                    "verdict": row.word, "why": row.why, "cases": row.cases,
                })
            })
            .collect();
        let cases: Vec<_> = self.played.iter().map(case_json).collect();
        let report = json!({
            "peer": self.head,
            "counts": {
                "pass": count(&rows, "pass"), "fail": count(&rows, "fail"),
                "not testable": count(&rows, UNTESTED),
                "cases not played": self.unplayed.map_or(0, |(count, _)| count),
            },
            "requirements": requirements,
            "cases": cases,
        });
        Ok(writeln!(out, "{report:#}")?)
    }
}

fn count(rows: &[Row<'_>], word: &str) -> usize {
    rows.iter().filter(|row| row.word == word).count()
}

/// One line for a case, printed as it is played.
pub(super) fn line_of(played: &Played) -> String {
    let name = played.name;
    match &played.verdict {
        Verdict::Fail(why) => format!("fail {name}: {why}"),
        _ if played.fails() => format!("fail {name}: in a requirement that it does not test"),
        Verdict::Pass => format!("pass {name}"),
        Verdict::Skip(why) => format!("skip {name}: {why}"),
    }
}

/// The first reasons.
fn briefly(why: &[String]) -> String {
    let more = match why.len().saturating_sub(3) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    why[..why.len().min(3)].join("; ") + &more
}

fn failed_case(played: &Played, out: &mut dyn Write) -> CliResult<()> {
    writeln!(out, "\nFAIL  {}", played.name)?;
    for (ids, text) in failures(played) {
        writeln!(out, "      {}: {text}", ids.join(" "))?;
    }
    for entry in played.entries.iter().take(TRANSFERS) {
        writeln!(out, "      {}", line(entry))?;
    }
    if let more @ 1.. = played.entries.len().saturating_sub(TRANSFERS) {
        writeln!(out, "      and {more} more")?;
    }
    Ok(())
}

/// Failures of a case, with the requirements of each.
fn failures(played: &Played) -> Vec<(Vec<&'static str>, &str)> {
    let own = (played.ids.to_vec(), &played.verdict);
    let all = played.findings.iter().map(|finding| (finding.ids.clone(), &finding.verdict));
    std::iter::once(own)
        .chain(all)
        .filter_map(|(ids, verdict)| match verdict {
            Verdict::Fail(text) => Some((ids, text.as_str())),
            _ => None,
        })
        .collect()
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

fn line(entry: &Entry) -> String {
    if entry.way == Way::Event {
        return format!("{} {}", entry.way.sign(), entry.text);
    }
    let shown = &entry.octets[..entry.octets.len().min(SHOWN)];
    let more = match entry.length - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more octets"),
    };
    format!("{} {}{more}", entry.way.sign(), hex(shown))
}

fn case_json(played: &Played) -> Value {
    let verdict = |verdict: &Verdict| match verdict {
        Verdict::Pass => json!({"verdict": "pass"}),
        Verdict::Fail(why) => json!({"verdict": "fail", "why": why}),
        Verdict::Skip(why) => json!({"verdict": UNTESTED, "why": why}),
    };
    let mut value = verdict(&played.verdict);
    value["name"] = played.name.into();
    value["ids"] = json!(played.ids);
    if played.fails() {
        let beside = played.findings.iter().filter(|f| f.verdict != Verdict::Pass);
        let beside: Vec<_> = beside
            .map(|finding| {
                let mut value = verdict(&finding.verdict);
                value["ids"] = json!(finding.ids);
                value
            })
            .collect();
        let octets: Vec<_> = played.entries.iter().map(entry_json).collect();
        value["beside"] = beside.into();
        value["octets"] = octets.into();
    }
    value
}

fn entry_json(entry: &Entry) -> Value {
    match entry.way {
        Way::Sent => json!({"sent": hex(&entry.octets), "length": entry.length}),
        Way::Received => json!({"received": hex(&entry.octets), "length": entry.length}),
        Way::Event => json!({"event": entry.text}),
    }
}

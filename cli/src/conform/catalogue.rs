//! Catalogue of conformance cases and requirements, and why the wire cannot show some of them. Constants.

use serde::Deserialize;

use super::case::Case;
use super::{
    ending, extensions, framing, initiator, negotiation, reads, responder, tagged, untagged,
};

/// All cases, in the order in which they are played.
pub(super) fn cases() -> impl Iterator<Item = &'static Case> {
    [
        responder::CASES,
        negotiation::CASES,
        initiator::CASES,
        framing::CASES,
        untagged::CASES,
        tagged::CASES,
        reads::CASES,
        extensions::CASES,
        ending::CASES,
    ]
    .into_iter()
    .flatten()
}

/// One of the project's requirements.
#[derive(Debug, Deserialize)]
pub(super) struct Requirement {
    pub(super) id: String,
    pub(super) section: String,
    pub(super) level: String,
}

/// The requirements of iWARP, from the built-in list.
pub(super) fn requirements() -> Vec<Requirement> {
    listed().into_iter().filter(|requirement| !requirement.section.starts_with("IBTA")).collect()
}

/// The built-in list.
pub(super) fn listed() -> Vec<Requirement> {
    #[derive(Deserialize)]
    struct File {
        requirement: Vec<Requirement>,
    }
    let text = include_str!("requirements.toml");
    toml::from_str::<File>(text).map(|file| file.requirement).unwrap_or_default()
}

/// Requirements that are checked in every FPDU, Read Response or Terminate, besides those of the cases.
pub(super) const ON_THE_WAY: &[&str] = &[
    "MPA-02", "MPA-09", "MPA-10", "MPA-11", "MPA-22", "MPA-26", "MPA-36", "MPA-38", "CONN-19",
    "DDP-05", "DDP-16", "RDMAP-20", "RDMAP-21", "RDMAP-22", "RDMAP-30", "RDMAP-31", "VERBS-10",
    "IOP-10", "IOP-11",
];

const LOCAL: &str = "a matter between the peer's stack and its application";
const TCP: &str = "a matter of the peer's TCP, or of a path that loses and reorders";
const CHOICE: &str = "the standard leaves the choice to the peer";
const HOST: &str = "a matter of the peer's machine and its administration";
const FAILURE: &str = "needs a failure inside the peer";
const TWO: &str = "needs two connections of the peer's that share something";
const OTHERS: &str = "a note about other implementations";
const TEXT: &str = "an open point of the texts";
const MSS: &str = "needs to know the segment size of the peer's TCP";

/// Why the wire cannot show a requirement that has no case.
pub(super) fn hidden(id: &str) -> &'static str {
    match id {
        "MPA-17" | "MPA-18" | "MPA-19" | "MPA-20" | "MPA-21" | "MPA-32" => MSS,
        "MPA-29" => "shows only when the peer's last FPDU ends at a multiple of 512",
        "MPA-30" => "needs a peer that asks for markers",
        "MPA-35" | "MPA-40" | "CONN-14" | "DDP-23" => TCP,
        "CONN-15" => "needs an application of the peer's that begins with a stream of its own",
        "CONN-18" | "CONN-23" | "DDP-22" | "RDMAP-19" => CHOICE,
        "CONN-25" | "DDP-17" | "RDMAP-18" | "RDMAP-29" => LOCAL,
        "CONN-32" | "RDMAP-23" | "RDMAP-28" | "ERR-27" => FAILURE,
        "CONN-35" => "about SCTP",
        "ERR-03" => "needs a peer that asks for markers",
        "ERR-20" => "needs a peer whose IRD is 0",
        "EXT-12" | "SEC-02" | "SEC-09" | "SEC-11" | "SEC-16" => TWO,
        "SEC-07" => "needs many STags of the peer's",
        "MPA-43" | "SEC-08" | "SEC-12" | "SEC-13" | "SEC-15" | "SEC-17" | "SEC-19" => HOST,
        "VERBS-06" | "VERBS-12" => FAILURE,
        id if id.starts_with("VERBS") => LOCAL,
        id if id.starts_with("IOP") => OTHERS,
        id if id.starts_with("AMB") => TEXT,
        _ => "no case tests it",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_requirement_has_a_case_or_a_reason() {
        let all = requirements();
        assert!(all.len() >= 200, "{}", all.len());
        let shown: HashSet<_> =
            cases().flat_map(|case| case.ids).chain(ON_THE_WAY).copied().collect();
        for requirement in &all {
            let id = requirement.id.as_str();
            let reason = hidden(id);
            assert!(shown.contains(id) || reason != "no case tests it", "{id}");
        }
        let known: HashSet<_> = all.iter().map(|r| r.id.as_str()).collect();
        for id in shown {
            assert!(known.contains(id), "{id} is not a requirement");
        }
    }

    #[test]
    fn names_of_cases_are_unique_in_their_role() {
        let mut seen = HashSet::new();
        for case in cases() {
            assert!(seen.insert((case.name, format!("{:?}", case.role))), "{}", case.name);
        }
    }
}

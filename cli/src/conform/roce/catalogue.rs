//! Catalogue of the RoCE cases and requirements, and why the wire cannot show some of them. Constants.

use super::{
    Case, access, atomics, caller, datagrams, manager, messages, order, packets, reads, requester,
    requests,
};
use crate::conform::catalogue::{Requirement, listed};

/// All cases, in the order in which they are played.
pub(super) fn cases() -> Vec<&'static Case> {
    [
        manager::CASES,
        caller::CASES,
        packets::CASES,
        order::CASES,
        messages::CASES,
        access::CASES,
        reads::CASES,
        atomics::CASES,
        requests::CASES,
        datagrams::CASES,
        requester::CASES,
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The requirements of RoCE v2, from the built-in list.
pub(super) fn requirements() -> Vec<Requirement> {
    listed().into_iter().filter(|requirement| requirement.section.starts_with("IBTA")).collect()
}

/// Requirements that are checked in every packet, acknowledgement, response or refusal, besides those of the cases.
pub(super) const ON_THE_WAY: &[&str] = &["IBRC-26", "IBRC-28", "IBRC-30", "IBRC-35", "IBRC-40"];

const OURS: &str =
    "a choice of this implementation's, which the wire does not show as right or wrong";
const UNRELIABLE: &str = "the tester makes no unreliable connections";

/// Why the wire cannot show a requirement that has no case.
pub(super) fn hidden(id: &str) -> &'static str {
    match id {
        "ROCE-08" | "IBRC-20" | "IBRC-21" | "IBRC-24" | "IBRC-25" => OURS,
        "ROCE-11" => "a socket of the tester's sends no UDP checksum of 0",
        "IBRC-22" => "how fast a peer sends is not judged",
        "IBUD-04" => "the tester joins no multicast group",
        id if id.starts_with("IBUC") => UNRELIABLE,
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
        assert!(all.len() >= 70, "{}", all.len());
        let cases = cases();
        let shown: HashSet<_> = cases.iter().flat_map(|case| case.ids).chain(ON_THE_WAY).collect();
        for requirement in &all {
            let id = requirement.id.as_str();
            let reason = hidden(id);
            assert!(shown.contains(&id) != (reason != "no case tests it"), "{id}");
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

//! The default matrix of `warpline perf`, as in `docs/performance.md`. No state.

use super::args::{Wait, WhatArgs, usual_sizes};
use super::case::{Case, Mode, Op};

/// All cases, those with the same references next to each other.
pub(super) fn cases(what: &WhatArgs) -> Vec<Case> {
    let mut cases = Vec::new();
    for mode in [Mode::Bw, Mode::Lat, Mode::Rate] {
        for &size in usual_sizes(mode) {
            for how in what.waits() {
                for op in [Op::Write, Op::Read, Op::Send] {
                    for &crc in what.crcs() {
                        let case = Case { crc: Some(crc), ..Case::new(op, mode, size) };
                        cases.push(case.waiting(how));
                    }
                }
            }
        }
    }
    let extra = [
        // Lists of work requests.
        Case { list: 32, depth: 256, ..Case::new(Op::Write, Mode::Rate, 8) },
        Case { list: 32, depth: 256, ..Case::new(Op::Send, Mode::Rate, 8) },
        Case { list: 32, depth: 256, ..Case::new(Op::Send, Mode::Rate, 64) },
        // Cases of the other targets.
        Case::new(Op::Write, Mode::Bw, 1 << 10),
        Case { depth: 1, ..Case::new(Op::Write, Mode::Bw, 4 << 10) },
        Case::new(Op::Send, Mode::Lat, 64 << 10),
        Case { wait: true, spin_us: Some(0), ..Case::new(Op::Send, Mode::Lat, 8) },
        Case { wait: true, ..Case::new(Op::Write, Mode::Connect, 8) },
        // Event loops, which wait for the descriptor.
        Case::new(Op::Send, Mode::Lat, 8).waiting(Some(Wait::Fd)),
    ];
    let waits = what.waits();
    let crcs = what.crcs();
    cases.extend(extra.into_iter().filter(|case| {
        let waits = match what.wait {
            None => waits.iter().any(|how| how.is_some() == case.wait),
            how => case.waiting(how) == *case,
        };
        waits && case.crc.is_some_and(|crc| crcs.contains(&crc))
    }));
    // Of those that wait for memory, few are possible.
    cases.retain(|case| case.check().is_ok());
    let carried = |case| what.locals().iter().map(move |&local| Case { local, ..case });
    cases.into_iter().flat_map(carried).collect()
}

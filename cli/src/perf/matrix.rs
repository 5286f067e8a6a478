//! What `perf` measures when nobody says what: the matrix of `docs/performance.md`. No state.

use super::args::{WhatArgs, usual_sizes};
use super::case::{Case, Mode, Op};

/// All cases, those with the same references next to each other.
pub(super) fn cases(what: &WhatArgs) -> Vec<Case> {
    let mut cases = Vec::new();
    for mode in [Mode::Bw, Mode::Lat, Mode::Rate] {
        for &size in usual_sizes(mode) {
            for wait in what.waits() {
                for op in [Op::Write, Op::Read, Op::Send] {
                    for &crc in what.crcs() {
                        cases.push(Case { crc, wait, ..Case::new(op, mode, size) });
                    }
                }
            }
        }
    }
    let extra = [
        // Posts in lists.
        Case { list: 32, depth: 256, ..Case::new(Op::Write, Mode::Rate, 8) },
        Case { list: 32, depth: 256, ..Case::new(Op::Send, Mode::Rate, 8) },
        Case { list: 32, depth: 256, ..Case::new(Op::Send, Mode::Rate, 64) },
        // The rest of the targets.
        Case::new(Op::Write, Mode::Bw, 1 << 10),
        Case { depth: 1, ..Case::new(Op::Write, Mode::Bw, 4 << 10) },
        Case::new(Op::Send, Mode::Lat, 64 << 10),
        Case { wait: true, spin_us: Some(0), ..Case::new(Op::Send, Mode::Lat, 8) },
        Case { wait: true, ..Case::new(Op::Write, Mode::Connect, 8) },
    ];
    let waits = what.waits();
    cases.extend(
        extra
            .into_iter()
            .filter(|case| waits.contains(&case.wait) && what.crcs().contains(&case.crc)),
    );
    cases
}

//! Two snapshots as tables for people: processes, then connections. Pure text.

use state_page::layout::state;
use state_page::read::QueuePair;

use super::pages::{Seen, Snapshot};
use super::program::called;
use super::rates::{Earlier, Rate};
use super::role;
use crate::output::{count, table};

/// Most connections that are printed of one process; there may be thousands.
const MOST: usize = 1000;
/// Most characters of a program with its arguments.
const LINE: usize = 200;
/// Most files that cannot be used and are named; any user can make such files.
const MOST_TROUBLES: usize = 20;

/// The tables.
pub(crate) fn text(before: &Snapshot, snapshot: &Snapshot) -> String {
    let earlier = Earlier::new(before, snapshot);
    let mut processes =
        vec![cells(["process", "connections", "in", "out", "messages/s", "registered"])];
    for seen in &snapshot.processes {
        processes.push(process(seen, &earlier));
    }
    let mut out = table(&processes);
    for seen in snapshot.processes.iter().filter(|seen| !seen.page.queue_pairs.is_empty()) {
        out += &connections(seen, &earlier);
    }
    for (file, what) in snapshot.troubles.iter().take(MOST_TROUBLES) {
        out += &format!("\n{file}: {what}\n");
    }
    let more = snapshot.troubles.len().saturating_sub(MOST_TROUBLES);
    if more > 0 {
        out += &format!("\nand {}: `--json` has all\n", count(more as u64, "more such file"));
    }
    out
}

fn process(seen: &Seen, earlier: &Earlier<'_>) -> Vec<String> {
    let (of, page) = (&seen.page.process, &seen.page);
    let mut all = Rate::default();
    page.queue_pairs.iter().for_each(|qp| all += earlier.rate(seen, qp));
    let registered =
        page.devices.iter().fold(0u64, |sum, (_, of)| sum.saturating_add(of.region_octets));
    let connected = page.queue_pairs.iter().filter(|qp| qp.state == state::RTS).count();
    vec![
        format!("{} {}", of.pid, program(&of.exe)),
        connected.to_string(),
        octets(all.octets_received) + "/s",
        octets(all.octets_sent) + "/s",
        format!("{:.0}", all.messages),
        octets(registered as f64),
    ]
}

fn connections(seen: &Seen, earlier: &Earlier<'_>) -> String {
    let (of, page) = (&seen.page.process, &seen.page);
    let mut rows = vec![cells([
        "peer",
        "QP",
        "state",
        "in",
        "out",
        "messages/s",
        "SQ",
        "RQ",
        "stalls/s",
        "role",
    ])];
    for qp in page.queue_pairs.iter().take(MOST) {
        let mut row = connection(qp, earlier.rate(seen, qp));
        row.push(role(qp).to_owned());
        rows.push(row);
    }
    let name = called(format!("{} {}", of.pid, of.exe), &seen.arguments, LINE);
    let mut out = format!("\n{name}\n{}", table(&rows));
    let more = page.queue_pairs.len().saturating_sub(MOST);
    if more > 0 {
        out += &format!("and {}: `--json` has all\n", count(more as u64, "more connection"));
    }
    if of.unpublished > 0 {
        out += &format!(
            "and {}, for which the page has no room\n",
            count(of.unpublished, "queue pair")
        );
    }
    out
}

/// The line of a connection.
pub(crate) fn connection(qp: &QueuePair, rate: Rate) -> Vec<String> {
    let peer = qp.remote.map_or("-".to_owned(), |address| address.to_string());
    let mut row = vec![peer, qp.qp.to_string()];
    let receives = if qp.recv_depth == 0 {
        "shared".to_owned()
    } else {
        format!("{}/{}", qp.recvs_posted, qp.recv_depth)
    };
    match qp.is_written() {
        true => row.extend([
            state::name(qp.state).to_owned(),
            octets(rate.octets_received) + "/s",
            octets(rate.octets_sent) + "/s",
            format!("{:.0}", rate.messages),
            format!("{}/{}", qp.sends_outstanding, qp.send_depth),
            receives,
            format!("{:.0}", rate.stalls),
        ]),
        // Its provider publishes neither state nor counters.
        false => row.extend(std::iter::repeat_n("?".to_owned(), 7)),
    }
    row
}

/// The program's name without its directory.
pub(crate) fn program(exe: &str) -> &str {
    exe.rsplit('/').next().unwrap_or(exe)
}

/// Octets with a decimal prefix.
pub(crate) fn octets(octets: f64) -> String {
    let (mut value, mut prefix) = (octets, "");
    for next in ["k", "M", "G", "T"] {
        if value < 1000.0 {
            break;
        }
        (value, prefix) = (value / 1000.0, next);
    }
    match prefix {
        "" => format!("{value:.0} B"),
        _ => format!("{value:.1} {prefix}B"),
    }
}

fn cells<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_have_prefixes() {
        assert_eq!([0.0, 999.0, 1500.0, 2.5e9].map(octets), ["0 B", "999 B", "1.5 kB", "2.5 GB"]);
        assert_eq!([program("/usr/bin/x"), program("x"), program("")], ["x", "x", ""]);
    }
}

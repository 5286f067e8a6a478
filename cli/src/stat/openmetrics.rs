//! Formats the state pages as OpenMetrics text: for a file that node_exporter collects, or for Prometheus
//! itself. Pure text.
//!
//! Sums per process and peer address, so that the number of series is bounded; after the first [`PEERS`]
//! addresses of a process, the others are summed as `other`. The sums omit connections that have ended:
//! `rate()` takes that for a reset, as when a process ends.

use std::collections::BTreeMap;
use std::fmt::Write;

use state_page::layout::{DROP_REASONS, state};
use state_page::read::{DeviceState, QueuePair};
use ual::CmCounters;

use super::pages::{Seen, Snapshot, face};
use super::table::program;

/// Peer addresses of one process that have series of their own.
const PEERS: usize = 50;

/// A metric of connections.
struct Metric {
    name: &'static str,
    kind: &'static str,
    unit: &'static str,
    help: &'static str,
    of: fn(&QueuePair) -> Vec<(&'static str, u64)>,
}

const CONNECTIONS: &[Metric] = &[
    Metric {
        name: "warpline_connections",
        kind: "gauge",
        unit: "",
        help: "Connections that are established.",
        of: |qp| vec![("", u64::from(qp.state == state::RTS))],
    },
    Metric {
        name: "warpline_payload_bytes",
        kind: "counter",
        unit: "bytes",
        help: "Payload of RDMA messages.",
        of: |qp| vec![("sent", qp.octets_sent), ("received", qp.octets_received)],
    },
    Metric {
        name: "warpline_messages",
        kind: "counter",
        unit: "",
        help: "RDMA messages.",
        of: |qp| vec![("sent", qp.messages_sent), ("received", qp.messages_received)],
    },
    Metric {
        name: "warpline_fpdus",
        kind: "counter",
        unit: "",
        help: "FPDUs.",
        of: |qp| vec![("sent", qp.fpdus_sent), ("received", qp.fpdus_received)],
    },
    Metric {
        name: "warpline_calls",
        kind: "counter",
        unit: "",
        help: "System calls that sent or received.",
        of: |qp| vec![("sent", qp.send_calls), ("received", qp.recv_calls)],
    },
    Metric {
        name: "warpline_send_stalls",
        kind: "counter",
        unit: "",
        help: "Times that the socket was full.",
        of: |qp| vec![("", qp.send_stalls)],
    },
    Metric {
        name: "warpline_ord_stalls",
        kind: "counter",
        unit: "",
        help: "Times that the send queue waited because ORD was used up.",
        of: |qp| vec![("", qp.ord_stalls)],
    },
    Metric {
        name: "warpline_posts_refused",
        kind: "counter",
        unit: "",
        help: "Work requests that a full queue refused.",
        of: |qp| vec![("", u64::from(qp.posts_refused))],
    },
    Metric {
        name: "warpline_receive_waits",
        kind: "counter",
        unit: "",
        help: "Messages that had to wait for a receive.",
        of: |qp| vec![("", qp.waited_for_receive)],
    },
    Metric {
        name: "warpline_sends_outstanding",
        kind: "gauge",
        unit: "",
        help: "Requests of send queues under way.",
        of: |qp| vec![("", u64::from(qp.sends_outstanding))],
    },
];

/// The text, with its end marker.
pub(crate) fn text(snapshot: &Snapshot, per_connection: bool) -> String {
    let mut out = String::new();
    let groups = groups(snapshot, per_connection);
    for metric in CONNECTIONS {
        head(&mut out, metric.name, metric.kind, metric.unit, metric.help);
        for (labels, queue_pairs) in &groups {
            let mut sums: Vec<(&str, u64)> = Vec::new();
            for (direction, value) in queue_pairs.iter().flat_map(|qp| (metric.of)(qp)) {
                match sums.iter_mut().find(|(known, _)| *known == direction) {
                    Some((_, sum)) => *sum = sum.wrapping_add(value),
                    None => sums.push((direction, value)),
                }
            }
            for (direction, sum) in sums {
                let direction = match direction {
                    "" => String::new(),
                    direction => format!(",direction=\"{direction}\""),
                };
                sample(&mut out, metric.name, metric.kind, &format!("{labels}{direction}"), sum);
            }
        }
    }
    devices(&mut out, snapshot);
    out + "# EOF\n"
}

/// Queue pairs by the labels of their series.
fn groups(snapshot: &Snapshot, per_connection: bool) -> BTreeMap<String, Vec<&QueuePair>> {
    let mut groups: BTreeMap<String, Vec<&QueuePair>> = BTreeMap::new();
    for seen in &snapshot.processes {
        let mut peers: BTreeMap<String, usize> = BTreeMap::new();
        for qp in seen.page.queue_pairs.iter().filter(|qp| qp.is_written()) {
            let peer = qp.remote.map_or(String::new(), |address| address.ip().to_string());
            let known = peers.len();
            let place = *peers.entry(peer.clone()).or_insert(known);
            let peer = if place < PEERS || per_connection { peer } else { "other".into() };
            let mut labels = of_process(seen);
            let _ = write!(labels, ",device=\"{}\",peer_ip=\"{peer}\"", device(seen, qp.device));
            if per_connection {
                let port = qp.remote.map_or(0, |address| address.port());
                let _ = write!(labels, ",peer_port=\"{port}\",qp=\"{}\"", qp.qp);
            }
            groups.entry(labels).or_default().push(qp);
        }
    }
    groups
}

/// A gauge of adapters: name, unit, help, value.
type Gauge = (&'static str, &'static str, &'static str, fn(&DeviceState) -> u64);

fn devices(out: &mut String, snapshot: &Snapshot) {
    let all = || {
        snapshot.processes.iter().flat_map(|seen| {
            seen.page.devices.iter().map(move |(_, device)| {
                let mut labels = of_process(seen);
                let (name, face) = (escaped(&device.name), face(device.face));
                let _ = write!(labels, ",device=\"{name}\",face=\"{face}\"");
                (labels, device)
            })
        })
    };
    let gauges: [Gauge; 3] = [
        ("warpline_registered_bytes", "bytes", "Registered memory.", |device| device.region_octets),
        ("warpline_memory_regions", "", "Memory regions.", |device| device.regions),
        ("warpline_queue_pairs", "", "Queue pairs.", |device| device.qps),
    ];
    for (name, unit, help, of) in gauges {
        head(out, name, "gauge", unit, help);
        all().for_each(|(labels, device)| sample(out, name, "gauge", &labels, of(device)));
    }
    let name = "warpline_sleeps";
    head(out, name, "counter", "", "Times that a thread slept for want of completions.");
    all().for_each(|(labels, device)| sample(out, name, "counter", &labels, device.sleeps));
    let name = "warpline_connection_management";
    head(out, name, "counter", "", "What connection management has done, by outcome.");
    for (labels, device) in all() {
        for (outcome, count) in CmCounters::NAMES.iter().zip(device.cm) {
            sample(out, name, "counter", &format!("{labels},outcome=\"{outcome}\""), count);
        }
    }
    drops(out, all());
}

/// Only of adapters that receive packets themselves, and have dropped some.
fn drops<'a>(out: &mut String, all: impl Iterator<Item = (String, &'a DeviceState)>) {
    let name = "warpline_packets_dropped";
    head(out, name, "counter", "", "Packets that arrived and were dropped, by reason.");
    for (labels, device) in all {
        let counts = DROP_REASONS.iter().zip(device.dropped).filter(|(_, count)| *count != 0);
        for (reason, count) in counts {
            sample(out, name, "counter", &format!("{labels},reason=\"{reason}\""), count);
        }
    }
}

fn head(out: &mut String, name: &str, kind: &str, unit: &str, help: &str) {
    let _ = writeln!(out, "# TYPE {name} {kind}");
    if !unit.is_empty() {
        let _ = writeln!(out, "# UNIT {name} {unit}");
    }
    let _ = writeln!(out, "# HELP {name} {help}");
}

fn sample(out: &mut String, name: &str, kind: &str, labels: &str, value: u64) {
    let total = if kind == "counter" { "_total" } else { "" };
    let _ = writeln!(out, "{name}{total}{{{labels}}} {value}");
}

fn of_process(seen: &Seen) -> String {
    let of = &seen.page.process;
    format!("pid=\"{}\",exe=\"{}\"", of.pid, escaped(program(&of.exe)))
}

fn device(seen: &Seen, index: u32) -> String {
    let found = seen.page.devices.iter().find(|(known, _)| *known == index);
    found.map_or(String::new(), |(_, device)| escaped(&device.name))
}

/// Escapes a label's value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use state_page::layout::flag;
    use state_page::read::{Page, Process};

    /// A process with a connection to each of 10,000 addresses.
    #[test]
    fn the_number_of_series_is_bounded() {
        let queue_pairs = (0..10_000u32).map(|number| QueuePair {
            flags: flag::WRITTEN,
            qp: number,
            remote: Some((std::net::Ipv4Addr::from_bits(number), 7174).into()),
            ..QueuePair::read(&[])
        });
        let devices = vec![(0, DeviceState::read(&[]))];
        let (process, queue_pairs) = (Process::read(&[]), queue_pairs.collect());
        let page = Page { process, devices, queue_pairs, changing: 0 };
        let snapshot = Snapshot::of(vec![Seen { socket: "1.sock".into(), page }]);
        let series = |per_connection| {
            let text = text(&snapshot, per_connection);
            text.lines().filter(|line| !line.starts_with('#')).count()
        };
        // As docs/operating.md says.
        assert_eq!(series(false), 51 * 14 + 16);
        assert!(series(true) > 10_000 * 14);
    }
}

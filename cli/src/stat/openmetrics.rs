//! Formats the state pages as OpenMetrics text: for a file that node_exporter collects, or for Prometheus
//! itself. Pure text.
//!
//! Sums per process and peer address. So that the number of series is bounded, [`PEERS`] addresses, in equal parts of all
//! processes, have series of their own; the others of a process are summed as `other`, and processes beyond
//! [`PROCESSES`] as one. The sums omit connections that have ended: `rate()` takes that for a reset, as when a process
//! ends.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use state_page::layout::{DROP_REASONS, state};
use state_page::read::{DeviceState, QueuePair};
use ual::CmCounters;

use super::pages::{Seen, Snapshot, face};
use super::table::program;

/// Peer addresses of all processes that have series of their own.
const PEERS: usize = 50;
/// Adapters of processes that have series of their own.
const PROCESSES: usize = 36;
/// Labels of the sums of the other processes.
const OTHERS: &str = "pid=\"other\",exe=\"other\",device=\"other\"";

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
        help: "FPDUs of iWARP, packets of RoCE.",
        of: |qp| vec![("sent", qp.fpdus_sent), ("received", qp.fpdus_received)],
    },
    Metric {
        name: "warpline_repeats",
        kind: "counter",
        unit: "",
        help: "Times that requests on RoCE were sent again.",
        of: |qp| on_roce(qp, qp.repeats),
    },
    Metric {
        name: "warpline_rnr_naks",
        kind: "counter",
        unit: "",
        help: "RNR NAKs of peers on RoCE, which had no receive.",
        of: |qp| on_roce(qp, qp.not_ready),
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

/// No sample of other transports.
fn on_roce(qp: &QueuePair, count: u32) -> Vec<(&'static str, u64)> {
    qp.is_roce().then_some(("", count.into())).into_iter().collect()
}

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

/// A bounded number of sets of labels.
struct Sets {
    most: usize,
    known: BTreeSet<String>,
}

impl Sets {
    fn new(most: usize) -> Self {
        Self { most, known: BTreeSet::new() }
    }

    /// The labels, if they may have series of their own.
    fn admit(&mut self, labels: String) -> Option<String> {
        if self.known.len() < self.most && !self.known.contains(&labels) {
            self.known.insert(labels.clone());
        }
        self.known.contains(&labels).then_some(labels)
    }
}

/// Queue pairs by the labels of their series.
fn groups(snapshot: &Snapshot, per_connection: bool) -> BTreeMap<String, Vec<&QueuePair>> {
    let mut groups: BTreeMap<String, Vec<&QueuePair>> = BTreeMap::new();
    let mut processes = Sets::new(PROCESSES);
    let part = (PEERS / snapshot.processes.len().clamp(1, PROCESSES)).max(1);
    let mut left = PEERS;
    for seen in &snapshot.processes {
        let mut peers = Sets::new(part.min(left));
        for qp in seen.page.queue_pairs.iter().filter(|qp| qp.is_written()) {
            let labels = format!("{},device=\"{}\"", of_process(seen), device(seen, qp.device));
            let peer = qp.remote.map_or(String::new(), |address| address.ip().to_string());
            let own = format!("{labels},peer_ip=\"{peer}\"");
            let labels = if per_connection {
                let port = qp.remote.map_or(0, |address| address.port());
                format!("{own},peer_port=\"{port}\",qp=\"{}\"", qp.qp)
            } else {
                let others = |labels: &str| format!("{labels},peer_ip=\"other\"");
                let of_process = || processes.admit(others(&labels));
                peers.admit(own).or_else(of_process).unwrap_or_else(|| others(OTHERS))
            };
            groups.entry(labels).or_default().push(qp);
        }
        left -= peers.known.len();
    }
    groups
}

/// A gauge of adapters: name, unit, help, value.
type Gauge = (&'static str, &'static str, &'static str, fn(&DeviceState) -> u64);

fn devices(out: &mut String, snapshot: &Snapshot) {
    let all = adapters(snapshot);
    let sum = |adapters: &[&DeviceState], of: fn(&DeviceState) -> u64| {
        adapters.iter().fold(0u64, |sum, device| sum.wrapping_add(of(device)))
    };
    let gauges: [Gauge; 3] = [
        ("warpline_registered_bytes", "bytes", "Registered memory.", |device| device.region_octets),
        ("warpline_memory_regions", "", "Memory regions.", |device| device.regions),
        ("warpline_queue_pairs", "", "Queue pairs.", |device| device.qps),
    ];
    for (name, unit, help, of) in gauges {
        head(out, name, "gauge", unit, help);
        all.iter().for_each(|(labels, of_set)| sample(out, name, "gauge", labels, sum(of_set, of)));
    }
    let name = "warpline_sleeps";
    head(out, name, "counter", "", "Times that a thread slept for want of completions.");
    for (labels, adapters) in &all {
        sample(out, name, "counter", labels, sum(adapters, |device| device.sleeps));
    }
    let name = "warpline_connection_management";
    head(out, name, "counter", "", "What connection management has done, by outcome.");
    for (labels, adapters) in &all {
        for (n, outcome) in CmCounters::NAMES.iter().enumerate() {
            let count = adapters.iter().fold(0u64, |sum, device| sum.wrapping_add(device.cm[n]));
            sample(out, name, "counter", &format!("{labels},outcome=\"{outcome}\""), count);
        }
    }
    drops(out, &all);
}

/// Only of adapters that receive packets themselves, and have dropped some. The adapters of a process share its sockets,
/// and each has the count of all, so the largest is taken; of the processes summed as one, too, which is then too little.
fn drops(out: &mut String, all: &BTreeMap<String, Vec<&DeviceState>>) {
    let name = "warpline_packets_dropped";
    head(out, name, "counter", "", "Packets that arrived and were dropped, by reason.");
    for (labels, adapters) in all {
        for (n, reason) in DROP_REASONS.iter().enumerate() {
            let count = adapters.iter().map(|device| device.dropped[n]).max().unwrap_or(0);
            if count != 0 {
                sample(out, name, "counter", &format!("{labels},reason=\"{reason}\""), count);
            }
        }
    }
}

/// Adapters by the labels of their series. A process may have opened one device several times.
fn adapters(snapshot: &Snapshot) -> BTreeMap<String, Vec<&DeviceState>> {
    let mut all: BTreeMap<String, Vec<&DeviceState>> = BTreeMap::new();
    let mut sets = Sets::new(PROCESSES);
    for seen in &snapshot.processes {
        for (_, device) in &seen.page.devices {
            let (name, face) = (escaped(&device.name), face(device.face));
            let own = format!("{},device=\"{name}\",face=\"{face}\"", of_process(seen));
            let labels = sets.admit(own).unwrap_or_else(|| format!("{OTHERS},face=\"other\""));
            all.entry(labels).or_default().push(device);
        }
    }
    all
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

    /// Processes with 10,000 connections in all, each to another address.
    fn snapshot(processes: u32) -> Snapshot {
        let seen = |pid: u32| {
            let address = |n: u32| std::net::Ipv4Addr::from_bits(n * processes + pid);
            let queue_pairs = (0..10_000 / processes).map(|n| QueuePair {
                flags: flag::WRITTEN,
                qp: n,
                octets_sent: 1,
                remote: Some((address(n), 7174).into()),
                ..QueuePair::read(&[])
            });
            // Two adapters of one device.
            let device = DeviceState { dropped: [1; DROP_REASONS.len()], ..DeviceState::read(&[]) };
            let devices = [0, 1].map(|index| (index, device.clone())).into();
            let (process, queue_pairs) =
                (Process { pid, ..Process::read(&[]) }, queue_pairs.collect());
            let page = Page { process, devices, queue_pairs, changing: 0 };
            Seen { socket: std::path::Path::new("1.sock").into(), page, arguments: Vec::new() }
        };
        Snapshot::of((0..processes).map(seen).collect())
    }

    #[test]
    fn the_number_of_series_is_bounded() {
        for processes in [1, 3, 36, 37, 200, 10_000] {
            let snapshot = snapshot(processes);
            let text = text(&snapshot, false);
            let series: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
            // As docs/operating.md says.
            assert!(series.len() <= 87 * 14 + 37 * 20, "{processes}: {}", series.len());
            let names = series.iter().map(|line| line.rsplit_once(' ').unwrap().0);
            assert_eq!(
                names.collect::<BTreeSet<_>>().len(),
                series.len(),
                "{processes}: no two alike"
            );
            // Nothing is lost in the sums.
            let sent = series.iter().filter(|line| {
                line.starts_with("warpline_payload_bytes_total") && line.contains("\"sent\"")
            });
            let value = |line: &&str| line.rsplit(' ').next().unwrap().parse::<u32>().unwrap();
            assert_eq!(sent.map(value).sum::<u32>(), 10_000 / processes * processes);
        }
        let all = text(&snapshot(1), true);
        assert!(all.lines().count() > 10_000 * 14);
    }
}

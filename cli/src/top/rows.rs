//! The rows of `warpline top`: processes, each followed by its connections; sorted and filtered. Pure.

use std::cmp::Ordering;
use std::collections::HashSet;

use clap::ValueEnum;
use state_page::layout::state;
use state_page::read::QueuePair;

use crate::stat::id::Id;
use crate::stat::pages::{Seen, Snapshot};
use crate::stat::rates::{Earlier, Rate};

/// What rows are sorted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Sort {
    /// Octets in both directions
    Traffic,
    /// Octets received
    In,
    /// Octets sent
    Out,
    /// Messages in both directions
    Messages,
    /// Outstanding requests of the send queue
    Sq,
    /// Times that the socket was full or ORD was used up
    Stalls,
    /// Number of the process, address of the peer
    Name,
}

impl Sort {
    pub(super) fn next(self) -> Self {
        let all = Self::value_variants();
        let at = all.iter().position(|sort| *sort == self).unwrap_or(0);
        all[(at + 1) % all.len()]
    }

    pub(super) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn value(self, rate: Rate, outstanding: u32) -> f64 {
        match self {
            Self::Traffic => rate.octets_received + rate.octets_sent,
            Self::In => rate.octets_received,
            Self::Out => rate.octets_sent,
            Self::Messages => rate.messages,
            Self::Sq => f64::from(outstanding),
            Self::Stalls => rate.stalls,
            Self::Name => 0.0,
        }
    }
}

/// Which rows, in which order.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) sort: Sort,
    pub(super) reverse: bool,
    pub(super) filter: String,
    /// Processes without their connections.
    pub(super) folded: HashSet<Id>,
}

pub(super) struct ProcessRow<'a> {
    pub(super) seen: &'a Seen,
    /// The sum over all its connections.
    pub(super) rate: Rate,
    pub(super) connected: usize,
    outstanding: u32,
    connections: Vec<ConnectionRow<'a>>,
}

pub(super) struct ConnectionRow<'a> {
    pub(super) seen: &'a Seen,
    pub(super) qp: &'a QueuePair,
    pub(super) rate: Rate,
}

pub(super) enum Row<'a> {
    Process(ProcessRow<'a>),
    Connection(ConnectionRow<'a>),
}

impl Row<'_> {
    pub(super) fn id(&self) -> Id {
        match self {
            Self::Process(of) => Id::process(of.seen),
            Self::Connection(of) => Id::queue_pair(of.seen, of.qp),
        }
    }
}

/// All rows.
pub(super) fn rows<'a>(before: &Snapshot, snapshot: &'a Snapshot, order: &Order) -> Vec<Row<'a>> {
    let earlier = Earlier::new(before, snapshot);
    let filter = order.filter.to_lowercase();
    let of = |seen| process(seen, &earlier, &filter);
    let mut processes: Vec<_> = snapshot.processes.iter().filter_map(of).collect();
    let value = |of: &ProcessRow<'_>| order.sort.value(of.rate, of.outstanding);
    processes.sort_by(|a, b| {
        let name = || a.seen.page.process.pid.cmp(&b.seen.page.process.pid);
        order.compare(value(a), value(b), name)
    });
    let mut rows = Vec::new();
    for mut process in processes {
        let mut connections = std::mem::take(&mut process.connections);
        let is_folded = order.folded.contains(&Id::process(process.seen));
        rows.push(Row::Process(process));
        if is_folded {
            continue;
        }
        let value = |of: &ConnectionRow<'_>| order.sort.value(of.rate, of.qp.sends_outstanding);
        connections.sort_by(|a, b| {
            let name = || (a.qp.remote, a.qp.qp).cmp(&(b.qp.remote, b.qp.qp));
            order.compare(value(a), value(b), name)
        });
        rows.extend(connections.into_iter().map(Row::Connection));
    }
    rows
}

impl Order {
    /// The largest first, equal ones by name.
    fn compare(&self, a: f64, b: f64, name: impl Fn() -> Ordering) -> Ordering {
        let order = b.total_cmp(&a).then_with(name);
        if self.reverse { order.reverse() } else { order }
    }
}

/// `None`: the filter excludes it and all its connections.
fn process<'a>(seen: &'a Seen, earlier: &Earlier<'_>, filter: &str) -> Option<ProcessRow<'a>> {
    let (of, all) = (&seen.page.process, &seen.page.queue_pairs);
    let matches = |text: String| text.to_lowercase().contains(filter);
    let is_wanted = matches(format!("{} {}", of.pid, of.exe));
    let (mut rate, mut connections) = (Rate::default(), Vec::new());
    for qp in all {
        let its = earlier.rate(seen, qp);
        rate += its;
        if is_wanted || matches(names(qp)) {
            connections.push(ConnectionRow { seen, qp, rate: its });
        }
    }
    let connected = all.iter().filter(|qp| qp.state == state::RTS).count();
    let outstanding = all.iter().fold(0, |sum: u32, qp| sum.saturating_add(qp.sends_outstanding));
    (is_wanted || !connections.is_empty()).then_some(ProcessRow {
        seen,
        rate,
        connected,
        outstanding,
        connections,
    })
}

/// The texts of a connection that a filter can match.
fn names(qp: &QueuePair) -> String {
    let address =
        |of: Option<std::net::SocketAddr>| of.map_or_else(String::new, |of| of.to_string());
    format!("{} {} {}", address(qp.remote), address(qp.local), state::name(qp.state))
}

//! The page of one connection: its parameters, rates, counts, and its explanation. It keeps the last figures of a
//! connection that has ended. Pure.

use state_page::layout::{end, flag, state};
use state_page::read::QueuePair;

use crate::output::{folded, table};
use crate::stat::id::Id;
use crate::stat::pages::{Seen, Snapshot, face};
use crate::stat::rates::{Earlier, Rate};
use crate::stat::table::octets;

pub(super) struct Page {
    pub(super) id: Id,
    pub(super) seen: Seen,
    pub(super) qp: QueuePair,
    rate: Rate,
    /// The queue pair or its process is gone.
    has_ended: bool,
    is_asked: bool,
    explanation: Option<String>,
    /// Lines above the screen.
    pub(super) scroll: usize,
}

impl Page {
    pub(super) fn new(seen: &Seen, qp: &QueuePair, rate: Rate) -> Self {
        Self {
            id: Id::queue_pair(seen, qp),
            seen: seen.clone(),
            qp: qp.clone(),
            rate,
            has_ended: false,
            is_asked: false,
            explanation: None,
            scroll: 0,
        }
    }

    pub(super) fn update(&mut self, before: &Snapshot, snapshot: &Snapshot) {
        match self.id.find(&snapshot.processes) {
            Some((seen, qp)) => {
                self.rate = Earlier::new(before, snapshot).rate(seen, qp);
                (self.seen, self.qp) = (seen.clone(), qp.clone());
            }
            None => (self.has_ended, self.rate) = (true, Rate::default()),
        }
    }

    /// The connection, if it is to be explained now. What has ended does not change, so it is explained once.
    pub(super) fn question(&mut self) -> Option<(Id, Seen, QueuePair)> {
        let changes = self.qp.state == state::RTS && !self.has_ended;
        let is_known = self.qp.is_written() && self.qp.began != 0;
        if self.is_asked || !is_known || !changes && self.explanation.is_some() {
            return None;
        }
        self.is_asked = true;
        Some((self.id.clone(), self.seen.clone(), self.qp.clone()))
    }

    pub(super) fn explained(&mut self, text: String) {
        self.is_asked = false;
        // A sample that the end cut short shows less than the one before it.
        if !self.has_ended || self.explanation.is_none() {
            self.explanation = Some(text);
        }
    }

    /// Its lines, of at most `width` columns where words allow it.
    pub(super) fn lines(&self, width: usize, is_stopped: bool) -> Vec<String> {
        let mut text = self.header(is_stopped);
        text += "\n";
        text += &match self.qp.is_written() {
            true => table(&self.figures()) + "\n" + &self.queues(),
            false => "its provider publishes no counters: only the built-in ones do\n".to_owned(),
        };
        text += "\n";
        text += match &self.explanation {
            Some(text) => text,
            None if self.qp.began == 0 => "it was never connected\n",
            None if !self.qp.is_written() => "",
            None => "sampling the connection ...\n",
        };
        let wrapped = text.lines().map(|line| folded(line, width, indent(line)));
        wrapped.flat_map(|lines| lines.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
    }

    fn header(&self, is_stopped: bool) -> String {
        let (qp, process) = (&self.qp, &self.seen.page.process);
        let address = |of: Option<std::net::SocketAddr>| of.map_or("-".into(), |of| of.to_string());
        let device = self.seen.page.devices.iter().find(|(index, _)| *index == qp.device);
        let device = device.map_or_else(String::new, |(_, device)| {
            format!(" of {} ({})", device.name, face(device.face))
        });
        let now = match (self.has_ended, is_stopped) {
            (true, _) => "it has ended; the last figures:",
            (_, true) => "the process is stopped",
            _ => state::name(qp.state),
        };
        format!(
            "{} {}, QP {}{device}\n{} with {}: {now}\n{}{}\n",
            process.pid,
            process.exe,
            qp.qp,
            address(qp.local),
            address(qp.remote),
            self.parameters(),
            note(qp),
        )
    }

    fn parameters(&self) -> String {
        let qp = &self.qp;
        if qp.is_roce() {
            return roce(qp);
        }
        let on = |is: bool| if is { "on" } else { "off" };
        let carrier = match (qp.has(flag::LOCAL_STREAM), qp.why_tcp.as_str()) {
            (true, _) => "local stream".to_owned(),
            (_, "") => "TCP".to_owned(),
            (_, why) => format!("TCP ({why})"),
        };
        format!(
            "{carrier}, FPDUs of {} octets, CRC {}, markers {}, IRD {}, ORD {}",
            qp.mulpdu,
            on(qp.has(flag::CRC)),
            on(qp.has(flag::MARKERS_SENT | flag::MARKERS_RECEIVED)),
            qp.ird(),
            qp.ord()
        )
    }

    fn figures(&self) -> Vec<Vec<String>> {
        let (qp, rate) = (&self.qp, self.rate);
        let row = |cells: [String; 5]| cells.to_vec();
        let titles = [
            "",
            "per second",
            "octets",
            "messages",
            if self.qp.is_roce() { "packets" } else { "FPDUs" },
        ]
        .map(str::to_owned);
        vec![
            row(titles),
            row([
                "in".into(),
                octets(rate.octets_received),
                qp.octets_received.to_string(),
                qp.messages_received.to_string(),
                qp.fpdus_received.to_string(),
            ]),
            row([
                "out".into(),
                octets(rate.octets_sent),
                qp.octets_sent.to_string(),
                qp.messages_sent.to_string(),
                qp.fpdus_sent.to_string(),
            ]),
        ]
    }

    fn queues(&self) -> String {
        let qp = &self.qp;
        let receives = match qp.recv_depth {
            0 => "shared".to_owned(),
            depth => format!("{} of {depth}", qp.recvs_posted),
        };
        format!(
            "SQ {} of {}, RQ {receives}; refused posts {}, ORD stalls {}, {}, waits for a receive {}\n",
            qp.sends_outstanding,
            qp.send_depth,
            qp.posts_refused,
            qp.ord_stalls,
            match qp.is_roce() {
                true => format!("repeats {}, RNR NAKs of the peer {}", qp.repeats, qp.not_ready),
                false => format!("socket full {}", qp.send_stalls),
            },
            qp.waited_for_receive
        )
    }
}

/// What the program says of the connection.
fn note(qp: &QueuePair) -> String {
    if qp.note.is_empty() { String::new() } else { format!("\n{}", qp.note) }
}

/// The parameters of a connection on RoCE, and why it ended.
fn roce(qp: &QueuePair) -> String {
    let (own, peer) = qp.numbers();
    let ended = end::name(qp.terminate).map_or_else(String::new, |why| format!("\nended: {why}"));
    format!(
        "RoCE v2, path MTU {}, QPN {own:#x} with {peer:#x}, IRD {}, ORD {}{ended}",
        qp.mulpdu,
        qp.ird(),
        qp.ord()
    )
}

/// Where the second line of a wrapped line begins: behind the label of a line of `explain`.
fn indent(line: &str) -> usize {
    if line.starts_with("   ") { 10 } else { 2 }
}

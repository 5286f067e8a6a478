//! The figures of a connection between two moments. Plain numbers.

use state_page::layout::{end, flag, state};
use state_page::read::QueuePair;
use ual::observe::questions::{RoundTrip, Tcp};
use ual::vp_api::Terminate;

use super::glance::Glance;
use super::peer::Peer;
use super::processor::Processor;
use super::watch::Moment;

/// What `explain` cannot tell on RoCE.
const NOT_ON_ROCE: &str = "on RoCE these causes are not judged: depth, small messages, receiver's processor, socket, \
     CRC or FPDU size, sleeping, engine only";

/// From this share of the time on, in which a thread is ready to run and has no processor, that is said.
pub(crate) const STARVED: f64 = 0.2;

/// Bound of a count, so that sums of counts do not overflow: the page may be scribbled.
const MOST: u64 = u64::MAX >> 8;

/// The figures of TCP between two moments: counts and times since `begin`, other values as at the end.
fn between(begin: Tcp, end: Tcp) -> Tcp {
    Tcp {
        retransmitted: end.retransmitted.saturating_sub(begin.retransmitted),
        busy_us: end.busy_us.saturating_sub(begin.busy_us),
        rwnd_limited_us: end.rwnd_limited_us.saturating_sub(begin.rwnd_limited_us),
        sndbuf_limited_us: end.sndbuf_limited_us.saturating_sub(begin.sndbuf_limited_us),
        ..end
    }
}

/// Shares of the time that a `stats` wrapper measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Verbs {
    /// In verbs, without waits.
    pub(crate) called: f64,
    /// Waiting for completions.
    pub(crate) waited: f64,
}

/// Results of the samples of the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Samples {
    pub(crate) taken: u64,
    /// The send queue was empty.
    pub(crate) sq_empty: u64,
    /// The send queue was full.
    pub(crate) sq_full: u64,
    /// No receive was posted.
    pub(crate) rq_empty: u64,
    /// Messages had moved since the sample before.
    pub(crate) moved: u64,
    /// Requests were outstanding, and none was completed since the sample before.
    pub(crate) stuck: u64,
    /// Requests were outstanding, and nothing had moved.
    pub(crate) frozen: u64,
    /// None was outstanding, and a thread waited for completions, or polled and found none.
    pub(crate) looking: u64,
    /// The process was stopped.
    pub(crate) stopped: u64,
}

impl Samples {
    pub(super) fn add(&mut self, before: &QueuePair, now: &QueuePair, glance: Glance) {
        self.taken += 1;
        self.sq_empty += u64::from(now.sends_outstanding == 0);
        self.sq_full += u64::from(now.sends_outstanding >= now.send_depth.max(1));
        self.rq_empty += u64::from(now.recv_depth > 0 && now.recvs_posted == 0);
        self.moved += u64::from(now.visits != before.visits);
        let completed = now.messages_sent != before.messages_sent;
        let outstanding = now.sends_outstanding > 0;
        self.stuck += u64::from(outstanding && !completed);
        let frozen = outstanding && now.visits == before.visits && !glance.stopped;
        self.frozen += u64::from(frozen);
        self.looking += u64::from(!outstanding && glance.looking);
        self.stopped += u64::from(glance.stopped);
    }
}

/// The figures; counts are those of the sampled time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Evidence {
    /// Process, program, queue pair and peer, for people.
    pub(crate) name: String,
    pub(crate) pid: u32,
    pub(crate) device: u32,
    pub(crate) qp: u32,
    pub(crate) seconds: f64,
    pub(crate) samples: Samples,
    pub(crate) messages_sent: u64,
    pub(crate) messages_received: u64,
    pub(crate) responses_sent: u64,
    pub(crate) octets_sent: u64,
    pub(crate) octets_received: u64,
    pub(crate) fpdus_sent: u64,
    pub(crate) fpdus_received: u64,
    pub(crate) send_calls: u64,
    pub(crate) receive_calls: u64,
    pub(crate) send_stalls: u64,
    pub(crate) ord_stalls: u64,
    pub(crate) posts_refused: u64,
    pub(crate) waited_for_receive: u64,
    pub(crate) visits: u64,
    /// Those of the adapter, in proportion to this connection's visits.
    pub(crate) sleeps: u64,
    /// Likewise.
    pub(crate) engine_served: u64,
    /// Likewise: polls that found no completion.
    pub(crate) vain_polls: u64,
    /// Times that the program asked to be notified of completions, since its adapter was opened.
    pub(crate) arms: u64,
    pub(crate) send_depth: u32,
    pub(crate) recv_depth: u32,
    pub(crate) ord: u32,
    pub(crate) mulpdu: u32,
    pub(crate) crc: bool,
    pub(crate) markers: bool,
    pub(crate) local_stream: bool,
    /// The transport is RoCE; what follows is of RoCE only.
    pub(crate) roce: bool,
    pub(crate) repeats: u64,
    pub(crate) rnr_naks: u64,
    /// Why the connection ended: an `end` of the state page; 0: it has not, or in order.
    pub(crate) ended: u32,
    /// Both ends have one address, or it is loopback.
    pub(crate) same_host: bool,
    /// Why it is TCP: a code of docs/same-host.md.
    pub(crate) why_tcp: Option<String>,
    /// What the program says of the connection.
    pub(crate) note: Option<String>,
    /// The last Terminate: whether this end sent it, layer, type and code.
    pub(crate) terminate: Option<(bool, u8, u8, u8)>,
    pub(crate) connected: bool,
    pub(crate) tcp: Option<Tcp>,
    pub(crate) round_trip: Option<RoundTrip>,
    /// The process at the other end.
    pub(crate) peer: Option<Peer>,
    pub(crate) verbs: Option<Verbs>,
    pub(crate) processor: Option<Processor>,
    /// The share of the time in which the busiest thread was ready to run and had no processor.
    pub(crate) starved: f64,
    /// Why the process did not respond, or sampling ended early.
    pub(crate) notes: Vec<String>,
}

impl Evidence {
    pub(super) fn between(begin: &Moment, end: &Moment, samples: Samples) -> Self {
        let (a, b) = (&begin.queue_pair, &end.queue_pair);
        let more = |of: fn(&QueuePair) -> u64| of(b).wrapping_sub(of(a)).min(MOST);
        let seconds = end.at.duration_since(begin.at).as_secs_f64().max(1e-6);
        let visits = more(|of| of.visits);
        let all_visits = end.visits.wrapping_sub(begin.visits);
        let of_adapter = |begin: u64, end: u64| {
            let share = if all_visits == 0 { 1.0 } else { visits as f64 / all_visits as f64 };
            (end.wrapping_sub(begin) as f64 * share.min(1.0)) as u64
        };
        let peer = b.remote.map_or("no peer".to_owned(), |address| address.to_string());
        let verbs = end.verbs.as_ref().zip(begin.verbs.as_ref()).map(|(end, begin)| {
            let (called, waited) = end.since(begin);
            Verbs { called: called / seconds, waited: waited / seconds }
        });
        let threads = end.threads.as_ref().zip(begin.threads.as_ref());
        let notes = begin.notes.iter().chain(&end.notes);
        let mut notes: Vec<_> = notes.cloned().collect();
        notes.dedup();
        notes.extend(ended(b));
        if b.is_roce() {
            notes.push(NOT_ON_ROCE.to_owned());
        }
        let processor = threads.map(|(end, begin)| end.since(begin));
        let starved = processor.map_or(0.0, |of| (of.waited / seconds).min(1.0));
        if starved > STARVED {
            let share = 100.0 * starved;
            notes.push(format!(
                "for {share:.0} % of the time the busiest thread was ready to run and had no processor"
            ));
        }
        Self {
            name: format!("{} {}, QP {} with {peer}", end.pid, end.exe, b.qp),
            pid: end.pid,
            device: b.device,
            qp: b.qp,
            seconds,
            samples,
            messages_sent: more(|of| of.messages_sent),
            messages_received: more(|of| of.messages_received),
            responses_sent: more(|of| of.responses_sent),
            octets_sent: more(|of| of.octets_sent),
            octets_received: more(|of| of.octets_received),
            fpdus_sent: more(|of| of.fpdus_sent),
            fpdus_received: more(|of| of.fpdus_received),
            send_calls: more(|of| of.send_calls),
            receive_calls: more(|of| of.recv_calls),
            send_stalls: more(|of| of.send_stalls),
            ord_stalls: more(|of| of.ord_stalls),
            posts_refused: b.posts_refused.wrapping_sub(a.posts_refused).into(),
            waited_for_receive: more(|of| of.waited_for_receive),
            visits,
            sleeps: of_adapter(begin.sleeps, end.sleeps),
            engine_served: of_adapter(begin.engine_served, end.engine_served),
            vain_polls: of_adapter(begin.vain_polls, end.vain_polls),
            arms: end.arms,
            send_depth: b.send_depth,
            recv_depth: b.recv_depth,
            ord: b.ord(),
            mulpdu: b.mulpdu,
            crc: b.has(flag::CRC),
            markers: b.has(flag::MARKERS_SENT | flag::MARKERS_RECEIVED),
            local_stream: b.has(flag::LOCAL_STREAM),
            roce: b.is_roce(),
            repeats: b.repeats.wrapping_sub(a.repeats).into(),
            rnr_naks: b.not_ready.wrapping_sub(a.not_ready).into(),
            ended: if b.is_roce() { b.terminate } else { 0 },
            same_host: is_same_host(b),
            why_tcp: Some(b.why_tcp.clone()).filter(|why| !why.is_empty()),
            note: Some(b.note.clone()).filter(|note| !note.is_empty()),
            terminate: if b.is_roce() { None } else { terminate(b.terminate) },
            connected: b.state == state::RTS,
            tcp: end.tcp.zip(begin.tcp).map(|(end, begin)| between(begin, end)),
            round_trip: end.round_trip,
            peer: None,
            verbs,
            processor,
            starved,
            notes,
        }
    }

    /// Names and values, for people and for `--json`.
    pub(crate) fn figures(&self) -> Vec<(&'static str, String)> {
        let per_second = |count: u64| format!("{:.0}/s", count as f64 / self.seconds);
        let samples = |count: u64| format!("in {count} of {} samples", self.samples.taken);
        let share = |seconds: f64| format!("{:.0} %", 100.0 * seconds / self.seconds);
        let units = if self.roce {
            ["packets sent", "packets received"]
        } else {
            ["FPDUs sent", "FPDUs received"]
        };
        let mut all = vec![
            ("messages sent", per_second(self.messages_sent)),
            ("messages received", per_second(self.messages_received)),
            ("octets sent", per_second(self.octets_sent)),
            ("octets received", per_second(self.octets_received)),
            (units[0], per_second(self.fpdus_sent)),
            (units[1], per_second(self.fpdus_received)),
            ("send calls", per_second(self.send_calls)),
            ("ORD used up", per_second(self.ord_stalls)),
        ];
        if self.roce {
            all.push(("repeats", per_second(self.repeats)));
            all.push(("RNR NAKs of the peer", per_second(self.rnr_naks)));
            all.push(("no request completed", samples(self.samples.stuck)));
        } else {
            // On RoCE these are not counted by connection.
            all.push(("receive calls", per_second(self.receive_calls)));
            all.push(("socket full", per_second(self.send_stalls)));
            all.push(("sleeps", per_second(self.sleeps)));
            all.push(("visits", per_second(self.visits)));
            all.push(("visits by the engine", per_second(self.engine_served)));
        }
        all.push(("polls in vain", per_second(self.vain_polls)));
        all.push(("waits for messages", samples(self.samples.looking)));
        all.push(("send queue empty", samples(self.samples.sq_empty)));
        all.push(("send queue full", samples(self.samples.sq_full)));
        all.push(("depths", format!("{} and {}", self.send_depth, self.recv_depth)));
        if let Some(note) = &self.note {
            all.push(("the program says", note.clone()));
        }
        if let Some(of) = &self.processor {
            all.push(("busiest thread ran", share(of.ran)));
            all.push(("and was ready to run", share(of.waited)));
        }
        if let Some(of) = &self.round_trip {
            all.push(("round trip", format!("{} us", of.recent_us)));
            all.push(("shortest round trip", format!("{} us", of.shortest_us)));
        }
        if let Some(tcp) = &self.tcp {
            let time = |us: u64| share(us as f64 / 1e6);
            all.push(("round trip", format!("{} us, +- {} us", tcp.rtt_us, tcp.rtt_variation_us)));
            all.push(("shortest round trip", format!("{} us", tcp.min_rtt_us)));
            all.push(("delivery rate", format!("{} octets/s", tcp.delivery_rate)));
            all.push(("retransmitted", format!("{} segments", tcp.retransmitted)));
            all.push(("octets under way", time(tcp.busy_us)));
            all.push(("peer's window closed", time(tcp.rwnd_limited_us)));
            all.push(("send buffer full", time(tcp.sndbuf_limited_us)));
        }
        all
    }
}

fn is_same_host(of: &QueuePair) -> bool {
    match (of.local, of.remote) {
        (Some(local), Some(remote)) => local.ip() == remote.ip() || remote.ip().is_loopback(),
        _ => false,
    }
}

/// That a connection is none any more, and why if the page has it.
fn ended(of: &QueuePair) -> Option<String> {
    if of.state == state::RTS {
        return None;
    }
    let why = if of.is_roce() {
        end::name(of.terminate).map(str::to_owned)
    } else {
        let text =
            |(sent, layer, etype, code)| Terminate::new(sent, layer, etype, code).to_string();
        terminate(of.terminate).map(text)
    };
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    Some(format!("the connection has ended, its state is {}{why}", state::name(of.state)))
}

fn terminate(word: u32) -> Option<(bool, u8, u8, u8)> {
    let [sent_or_received, layer, etype, code] = word.to_be_bytes();
    (sent_or_received != 0).then_some((sent_or_received == 1, layer, etype, code))
}

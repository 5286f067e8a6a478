//! Causes in who waits for whom: a stopped process, an end that waits for the other, a thread without a rest. Pure.

use super::{Shown, local, part, percent, queue};
use crate::explain::evidence::Evidence;

/// From this share of the time on a thread has no rest.
const BUSY: f64 = 0.9;
/// So many octets on a path are a stream.
pub(super) const MANY: f64 = 16e3;
/// A visit of a connection costs as much as so many polls that find nothing.
const VISIT: f64 = 8.0;

impl Evidence {
    /// The share of the samples in which nothing was outstanding and a thread looked for completions.
    fn looking(&self) -> f64 {
        part(self.samples.looking, self.samples.taken)
    }

    /// The share of the samples in which the process was stopped.
    pub(super) fn stopped(&self) -> f64 {
        part(self.samples.stopped, self.samples.taken)
    }

    /// Receives are posted, perhaps to a shared queue, so that a message of the peer completes something.
    fn expects(&self) -> bool {
        self.recv_depth == 0 || part(self.samples.rq_empty, self.samples.taken) < 0.5
    }

    /// The share of the time in which this end waited for messages of the peer, and the peer could have sent them: without
    /// that which messages take on the path.
    pub(super) fn waiting(&self) -> f64 {
        if !self.expects() || self.peer.as_ref().is_some_and(|peer| peer.looks()) {
            return 0.0;
        }
        let free = if self.is_passive() { 1.0 - self.moving() } else { 1.0 - self.in_flight() };
        let path = self.messages_received as f64 * self.shortest_trip() / self.seconds;
        (self.looking().min(free) - path - self.asleep()).max(0.0)
    }

    /// The share of the time in which the peer did not serve requests, nothing was in flight, and the threads of both ends
    /// had processors.
    fn unserved(&self) -> f64 {
        let frozen = part(self.samples.frozen, self.samples.taken);
        (frozen - self.starved - self.peer_starved()).min(1.0 - self.in_flight()).max(0.0)
    }

    /// The share of the time in which the busiest thread of the peer was ready to run and had no processor.
    pub(crate) fn peer_starved(&self) -> f64 {
        self.peer.as_ref().map_or(0.0, |peer| peer.waited / self.seconds)
    }

    /// Octets on the path at a time. If they are few, an acknowledgement that the peer's TCP delays, for up to 40 ms, makes
    /// the round trip long, and nobody waits for it.
    pub(super) fn on_path(&self) -> f64 {
        let octets = self.octets_sent.max(self.octets_received) as f64 / self.seconds;
        self.trips().map_or(0.0, |(recent, _)| octets * recent)
    }

    /// The share of the time in which TCP had many octets in flight.
    pub(super) fn in_flight(&self) -> f64 {
        let carries = !self.local_stream && self.on_path() > MANY;
        let busy = self.tcp.filter(|_| carries).map_or(0, |tcp| tcp.busy_us);
        (busy as f64 / 1e6 / self.served()).min(1.0)
    }

    /// Round trips: a recent one and the shortest, in seconds.
    pub(super) fn trips(&self) -> Option<(f64, f64)> {
        let (recent, shortest) = match (&self.tcp, &self.round_trip) {
            (Some(tcp), _) => (tcp.rtt_us, tcp.min_rtt_us),
            (None, Some(of)) => (of.recent_us, of.shortest_us),
            (None, None) => return None,
        };
        (shortest > 0).then_some((recent as f64 / 1e6, shortest as f64 / 1e6))
    }

    fn shortest_trip(&self) -> f64 {
        self.trips().map_or(0.0, |(_, shortest)| shortest)
    }

    /// The busiest thread has no rest.
    fn is_at_limit(&self) -> bool {
        self.processor.is_some() && self.running() > BUSY
    }

    /// The busiest thread has no rest although nothing is under way, and it does not look for completions.
    pub(super) fn computes(&self) -> bool {
        self.is_at_limit() && self.looking() < 0.5
    }

    /// Nothing is under way, and it is not known why: the program sleeps until it is notified of a completion, which it
    /// may also do while it has nothing to send; and the peer is not seen.
    pub(super) fn is_unknown(&self) -> bool {
        let seen = self.looking() > 0.2 || self.computes() || self.verbs.is_some();
        self.connected
            && self.arms > 0
            && self.peer.is_none()
            && self.expects()
            && !seen
            && self.stopped() < 0.5
    }
}

/// What is said instead of a cause, if there is none because it is not known.
pub(crate) fn unknown(of: &Evidence) -> Option<String> {
    let idle = of.idle();
    (of.is_unknown() && idle > super::LEAST).then(|| {
        format!(
            "nothing was under way for {} of the time, and the program sleeps until it is notified: whether it has nothing \
             to send or waits for its peer is not known here; see `warpline explain` at the peer",
            percent(idle)
        )
    })
}

pub(super) fn stopped(of: &Evidence) -> Shown {
    let shows = format!(
        "process {} was stopped in {} of {} samples",
        of.pid, of.samples.stopped, of.samples.taken
    );
    (of.samples.stopped > 0).then(|| (of.stopped(), shows, format!("kill -CONT {}", of.pid)))
}

pub(super) fn peer(of: &Evidence) -> Shown {
    if !of.connected || of.waited_for_receive > 0 || of.repeats > 0 || of.rnr_naks > 0 {
        return None;
    }
    let waiting = of.waiting();
    // The peer needs a moment for each message.
    let gap = waiting * of.served() / of.messages_sent.max(of.messages_received).max(1) as f64;
    let waiting = waiting * gap / (gap + queue::POSTING);
    let unserved = of.unserved();
    let (share, what) = match waiting >= unserved {
        true => (
            waiting,
            format!(
                "nothing was outstanding, and this end waited for messages, in {} of {} samples",
                of.samples.looking, of.samples.taken
            ),
        ),
        false => (
            unserved,
            format!(
                "requests were outstanding, and nothing was sent or arrived, in {} of {} samples",
                of.samples.frozen, of.samples.taken
            ),
        ),
    };
    let (fault, remedy) = match &of.peer {
        Some(peer) => peer.fault(of.seconds).unwrap_or_else(|| {
            let shows = format!("its process is {} {}", peer.pid, peer.exe);
            (shows, format!("`warpline explain {}`", peer.pid))
        }),
        None => (
            "its process is not seen from here".to_owned(),
            "see `warpline explain` at the peer: it is stopped or busy, or has nothing to send"
                .to_owned(),
        ),
    };
    Some((share, format!("{what}; {fault}"), remedy))
}

pub(super) fn limit(of: &Evidence) -> Shown {
    let processor = of.processor.filter(|_| of.is_at_limit() && of.connected)?;
    // A thread that polls has no rest, either.
    let (polls, visits) = (of.vain_polls as f64, VISIT * of.visits as f64);
    let useful = if polls > 0.0 { visits / (polls + visits) } else { 1.0 };
    // What other causes say more exactly.
    let others = [
        local::small_messages,
        local::framing,
        local::same_host,
        local::engine_only,
        queue::program,
    ];
    let others = if of.roce { &others[4..] } else { &others[..] };
    let named: f64 = others.iter().filter_map(|cause| cause(of)).map(|(share, ..)| share).sum();
    let shows = format!(
        "thread {} ran for {} of the time; it served the connection {} times and polled in vain {} times",
        processor.thread,
        percent(of.running()),
        of.visits,
        of.vain_polls
    );
    let remedy = format!(
        "profile it: perf record -g -t {}; less work in it, or several connections in several threads",
        processor.thread
    );
    Some((of.running() * useful - named, shows, remedy))
}

#[cfg(test)]
mod tests {
    use super::super::{Cause, verdicts};
    use crate::explain::evidence::{Evidence, Samples};
    use crate::explain::peer::Peer;

    #[test]
    fn a_peer_is_not_at_fault_while_an_end_has_no_processor() {
        let is_named = |starved, waited| {
            let samples = Samples { taken: 10, frozen: 5, ..Samples::default() };
            let peer = Some(Peer { waited, ..Peer::default() });
            let (connected, seconds, roce) = (true, 1.0, true);
            let of = Evidence {
                connected,
                seconds,
                roce,
                samples,
                starved,
                peer,
                ..Evidence::default()
            };
            verdicts(&of).iter().any(|of| of.cause == Cause::WaitsForPeer)
        };
        assert!(is_named(0.0, 0.0));
        assert!(!is_named(0.4, 0.0));
        assert!(!is_named(0.0, 0.4));
    }
}

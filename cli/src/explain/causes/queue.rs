//! Causes in how the program uses the send queue: too little in it, too small, or too few RDMA Reads at once. Pure.

use ual::observe::questions::Tcp;

use super::{Shown, part, percent, waits};
use crate::explain::evidence::Evidence;
use crate::output::count;

/// By how much a round trip may exceed the shortest one without a queue on the path, in seconds.
const QUEUED: f64 = 1e-3;
/// The time that it may take to post and send a message, in seconds.
pub(super) const POSTING: f64 = 200e-6;

impl Evidence {
    /// The share of the samples in which the send queue was empty.
    fn empty(&self) -> f64 {
        part(self.samples.sq_empty, self.samples.taken)
    }

    /// The share of the time in which this end had nothing under way.
    pub(super) fn idle(&self) -> f64 {
        // Without TCP a request leaves the queue when the peer, or its ring, has it.
        let over_tcp = self.tcp.is_some() && !self.local_stream;
        let carries = self.is_passive() || over_tcp && self.on_path() > waits::MANY;
        self.empty().min(1.0 - if carries { self.busy() } else { 0.0 })
    }

    /// This end only receives, or responds to the peer's RDMA Reads.
    pub(super) fn is_passive(&self) -> bool {
        self.messages_sent < self.messages_received / 4
            || self.messages_sent == 0 && self.responses_sent > 0
    }

    /// The share of the time in which TCP delayed the send queue.
    fn held_up(&self) -> f64 {
        let limited =
            self.tcp.map_or(0, |tcp| tcp.rwnd_limited_us.saturating_add(tcp.sndbuf_limited_us));
        limited as f64 / 1e6 / self.seconds
    }
}

pub(super) fn nothing_to_send(of: &Evidence) -> Shown {
    let other = of.waited_for_receive > 0 || of.computes() || of.is_unknown();
    if !of.connected || of.is_passive() || other {
        return None;
    }
    // Other causes of the same idle time are subtracted.
    let others = of.asleep() + of.outside().unwrap_or(0.0) + of.waiting() + of.stopped();
    let idle = of.idle() - others;
    // A short gap before each message is the time that posting takes.
    let gap = idle.max(0.0) * of.served() / of.messages_sent.max(1) as f64;
    let share = idle * gap / (gap + POSTING);
    let shows = format!(
        "the send queue was empty in {} of {} samples, and nothing was under way for {} of the time; {} messages \
         were sent",
        of.samples.sq_empty,
        of.samples.taken,
        percent(of.idle()),
        of.messages_sent
    );
    let waits = of.peer.as_ref().filter(|peer| peer.looks());
    let shows = match waits {
        Some(peer) => {
            format!("{shows}; process {} at the other end waits for messages, too", peer.pid)
        }
        None => shows,
    };
    Some((share, shows, "post more requests before the first completes, and in lists".into()))
}

pub(super) fn depth(of: &Evidence) -> Shown {
    // A queue that is full because the socket or ORD is would be full at any depth.
    let stalled = of.send_stalls > of.messages_sent / 4 || of.ord_stalls > of.messages_sent / 4;
    if of.messages_sent == 0 || stalled || of.held_up() > 0.2 || of.send_depth == 0 {
        return None;
    }
    let full = part(of.samples.sq_full, of.samples.taken);
    let refused = part(of.posts_refused, of.posts_refused + of.messages_sent);
    // A round trip that is much longer than the shortest one waits in queues on the path: no depth helps.
    let trip = |tcp: Tcp| (tcp.rtt_us as f64 / 1e6).min(tcp.min_rtt_us as f64 / 1e6 + QUEUED);
    let trip = of.tcp.map_or(0.0, trip);
    let rate = of.messages_sent as f64 / of.seconds;
    // Requests that stay in the queue for longer than a round trip wait for something else than depth.
    let waits_for_path = (1.5 * rate * trip / f64::from(of.send_depth)).min(1.0);
    let shows = format!(
        "the send queue takes {}, was full in {} of {} samples and refused {}; a round trip takes {:.0} us",
        count(of.send_depth.into(), "request"),
        of.samples.sq_full,
        of.samples.taken,
        count(of.posts_refused, "post"),
        trip * 1e6
    );
    let remedy = format!(
        "a depth of {} or more (IT-API: max_dto_request, verbs: max_send_wr), and as many requests under way",
        of.send_depth.saturating_mul(4)
    );
    Some((full.max(refused) * waits_for_path, shows, remedy))
}

pub(super) fn ord(of: &Evidence) -> Shown {
    let share = part(of.ord_stalls, of.messages_sent.max(1)).min(1.0) * of.moving();
    let shows = format!(
        "the send queue waited {} times, in {} messages, because {} RDMA Reads were under way",
        of.ord_stalls, of.messages_sent, of.ord
    );
    let remedy = format!("a larger ORD here (it is {}), and as large an IRD at the peer", of.ord);
    (of.ord_stalls > 0).then_some((share, shows, remedy))
}

impl Evidence {
    /// The share of the time that the program spent outside verbs; `None`: it is not measured.
    pub(super) fn outside(&self) -> Option<f64> {
        let verbs = self.verbs?;
        Some((1.0 - verbs.called - verbs.waited).max(0.0))
    }
}

pub(super) fn program(of: &Evidence) -> Shown {
    let (verbs, outside) = (of.verbs?, of.outside()?);
    let shows = format!(
        "the program spent {} of the time in verbs and {} waiting for completions",
        percent(verbs.called),
        percent(verbs.waited)
    );
    let remedy = format!("profile the program: perf record -g -p {}", of.pid);
    // A thread that has no processor is not at fault.
    let own = (outside - of.starved).max(0.0);
    (of.connected && of.empty() > 0.5).then(|| (own.min(of.empty()), shows, remedy))
}

#[cfg(test)]
mod tests {
    use super::program;
    use crate::explain::evidence::{Evidence, Samples, Verbs};

    #[test]
    fn a_program_is_not_at_fault_while_it_has_no_processor() {
        let share = |starved| {
            let samples = Samples { taken: 10, sq_empty: 9, ..Samples::default() };
            let verbs = Some(Verbs { called: 0.25, waited: 0.25 });
            let of = Evidence { connected: true, samples, verbs, starved, ..Evidence::default() };
            program(&of).map(|(share, ..)| share)
        };
        assert_eq!(share(0.0), Some(0.5));
        assert_eq!(share(0.25), Some(0.25));
        assert_eq!(share(0.75), Some(0.0));
    }
}

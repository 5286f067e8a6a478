//! Causes on RoCE: what acknowledgements, repetitions and the end of the connection show. Pure.

use state_page::layout::end;

use super::{Shown, part, peer};
use crate::explain::evidence::{Evidence, STARVED};

impl Evidence {
    /// The share of the samples in which requests were outstanding and none was completed since the one before.
    fn stuck(&self) -> f64 {
        part(self.samples.stuck, self.samples.taken)
    }
}

pub(super) fn application(of: &Evidence) -> Shown {
    let remedy = "post more receives before they are needed, or use a shared receive queue";
    if of.ended == end::NOT_READY {
        let shows = "the connection has ended: the peer had no receive for a Send for too long";
        let remedy =
            "at the peer, post more receives before they are needed, or use a shared receive queue";
        return Some((1.0, shows.into(), remedy.into()));
    }
    if of.rnr_naks > 0 {
        let shows = format!(
            "the peer reported {} times that it had no receive (RNR NAK), for {} messages",
            of.rnr_naks, of.messages_sent
        );
        let share = part(of.rnr_naks, of.rnr_naks + of.messages_sent).max(of.stuck());
        return Some((share, shows, format!("at the peer, {remedy}")));
    }
    let empty = part(of.samples.rq_empty, of.samples.taken);
    let waited = part(of.waited_for_receive, of.messages_received.max(1));
    let shows = format!(
        "{} messages arrived before a receive was posted; none was posted in {} of {} samples",
        of.waited_for_receive, of.samples.rq_empty, of.samples.taken
    );
    (of.waited_for_receive > 0).then(|| (empty.max(waited), shows, remedy.into()))
}

pub(super) fn silent(of: &Evidence) -> Shown {
    let remedy = "check that the peer's process runs and serves its connections, and that UDP port 4791 is open on \
                  the path";
    let with_fault = |shows: String| match of.peer.as_ref().and_then(|peer| peer.fault(of.seconds))
    {
        Some((fault, remedy)) => (format!("{shows}; {fault}"), remedy),
        None => (shows, remedy.to_owned()),
    };
    if of.ended == end::NO_REPLY {
        let shows = "the connection has ended: the peer acknowledged no repetition of a request";
        let (shows, remedy) = with_fault(shows.to_owned());
        return Some((1.0, shows, remedy));
    }
    let shows = format!(
        "no packet of the peer arrived, and {} packets were sent; {} of them were repeated",
        of.fpdus_sent, of.repeats
    );
    let (shows, remedy) = with_fault(shows);
    // While nothing is outstanding, probes are repeated.
    let share = (of.stuck() + of.idle()).min(1.0);
    (of.fpdus_received == 0 && of.repeats > 0).then_some((share, shows, remedy))
}

pub(super) fn full(of: &Evidence) -> Shown {
    // Requests wait for something else. Threads of both ends take part in each round trip: without a processor they are
    // late.
    let starved = of.peer_starved().max(of.starved);
    if starved > STARVED
        || of.repeats > 0
        || of.rnr_naks > 0
        || of.ord_stalls > of.messages_sent / 4
    {
        return None;
    }
    let (queued, recent, shortest) = peer::queued(of)?;
    let busy = 1.0 - part(of.samples.sq_empty, of.samples.taken);
    let shows = peer::path_is_full(of, recent, shortest, busy);
    Some((busy * queued, shows, peer::FULL.into()))
}

pub(super) fn network(of: &Evidence) -> Shown {
    // Other causes of repetitions come first.
    if of.repeats == 0 || of.rnr_naks > 0 || of.fpdus_received == 0 {
        return None;
    }
    let shows = format!(
        "requests were sent again {} times, and {} packets were sent",
        of.repeats, of.fpdus_sent
    );
    let remedy = "check the path for loss (ip -s link, ethtool -S), and the receive buffers at the peer \
                  (net.core.rmem_max)";
    // A loss costs a window of packets, or a time-out.
    let lost = (20.0 * part(of.repeats, of.fpdus_sent.max(1))).min(1.0);
    Some((lost.max(of.stuck()), shows, remedy.into()))
}

pub(super) fn refused(of: &Evidence) -> Shown {
    let why = match of.ended {
        end::REFUSED_BY_PEER | end::REFUSED | end::LOCAL_FAULT | end::TOO_LONG => {
            end::name(of.ended)?
        }
        _ => return None,
    };
    let remedy = match of.ended {
        end::TOO_LONG => "a smaller path MTU, or the same MTU at all interfaces of the path",
        _ => "check keys, addresses, lengths and access rights of the requests",
    };
    Some((1.0, format!("the connection has ended: {why}"), remedy.into()))
}

#[cfg(test)]
mod tests {
    use state_page::layout::end;

    use super::super::{Cause, verdicts};
    use crate::explain::evidence::{Evidence, Samples};

    fn causes(of: Evidence) -> Vec<Cause> {
        let samples = Samples { taken: 100, stuck: 90, moved: 100, ..Samples::default() };
        let of = Evidence { roce: true, seconds: 1.0, connected: true, samples, ..of };
        verdicts(&of).iter().map(|of| of.cause).collect()
    }

    #[test]
    fn a_peer_without_receives_a_silent_one_and_loss_differ() {
        let of = Evidence { fpdus_sent: 100, repeats: 3, ..Evidence::default() };
        assert_eq!(causes(of.clone()), [Cause::PeerSilent]);
        // Only probes are under way.
        let samples = Samples { taken: 100, sq_empty: 100, looking: 100, ..Samples::default() };
        let idle = Evidence { roce: true, seconds: 1.0, connected: true, samples, ..of.clone() };
        assert_eq!(verdicts(&idle).first().map(|of| of.cause), Some(Cause::PeerSilent));
        let of = Evidence { fpdus_received: 9, ..of };
        assert_eq!(causes(of.clone()), [Cause::Network]);
        assert_eq!(causes(Evidence { rnr_naks: 7, ..of }), [Cause::ReceiverApplication]);
    }

    #[test]
    fn the_end_of_a_connection_is_its_cause() {
        let ends = [
            (end::NO_REPLY, Cause::PeerSilent),
            (end::NOT_READY, Cause::ReceiverApplication),
            (end::REFUSED, Cause::Refused),
            (end::REFUSED_BY_PEER, Cause::Refused),
            (end::LOCAL_FAULT, Cause::Refused),
            (end::TOO_LONG, Cause::Refused),
        ];
        for (ended, cause) in ends {
            assert_eq!(causes(Evidence { ended, ..Evidence::default() }), [cause]);
        }
    }

    #[test]
    fn no_cause_of_tcp_is_named() {
        let of = Evidence { same_host: true, messages_sent: 1000, ..Evidence::default() };
        let of = Evidence { send_calls: 1000, octets_sent: 8000, markers: true, ..of };
        assert_eq!(causes(of), []);
    }
}

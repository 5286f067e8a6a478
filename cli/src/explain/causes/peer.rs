//! Causes at the peer, on the path to it, and in the socket between: what TCP and the Terminate report. Pure.

use super::waits::MANY;
use super::{Shown, part, percent};
use crate::explain::evidence::Evidence;

pub(super) fn application(of: &Evidence) -> Shown {
    let remedy = "post more receives before they are needed, or use a shared receive queue";
    // RFC 5041 section 8.2: DDP, untagged buffer, MSN out of range or no buffer available.
    if let Some((sent, 1, 2, 2)) = of.terminate {
        let who = if sent { "this end" } else { "the peer" };
        let shows = format!(
            "the connection has ended with a Terminate from {who}: a Send found no receive posted"
        );
        return Some((1.0, shows, remedy.into()));
    }
    let empty = part(of.samples.rq_empty, of.samples.taken);
    let waited = part(of.waited_for_receive, of.messages_received.max(1));
    let shows = format!(
        "{} messages arrived before a receive was posted; none was posted in {} of {} samples",
        of.waited_for_receive, of.samples.rq_empty, of.samples.taken
    );
    (of.waited_for_receive > 0).then(|| (empty.max(waited).min(1.0), shows, remedy.into()))
}

pub(super) fn processor(of: &Evidence) -> Shown {
    let tcp = of.tcp?;
    let share = tcp.rwnd_limited_us as f64 / 1e6 / of.seconds;
    let shows = format!("the peer's TCP window was closed for {} of the time", percent(share));
    if is_queued(of) {
        return None;
    }
    if let Some((fault, remedy)) = of.peer.as_ref().and_then(|peer| peer.fault(of.seconds)) {
        return Some((share, format!("{shows}; {fault}"), remedy));
    }
    let remedy = "see `warpline explain` at the peer; it should poll more often, or on another processor; \
                  a stopped process reads nothing";
    Some((share, shows, remedy.into()))
}

/// By how much a round trip on a full path exceeds the shortest one: as a multiple, and in seconds.
const TIMES: f64 = 4.0;
const QUEUED: f64 = 1e-3;

/// The share of a round trip that packets wait in queues on the path, if it is far above the shortest.
pub(super) fn queued(of: &Evidence) -> Option<(f64, f64, f64)> {
    let (recent, shortest) = of.trips()?;
    let is_far = recent > TIMES * shortest && recent > shortest + QUEUED;
    let is_far = is_far && of.on_path() > MANY;
    is_far.then(|| (1.0 - shortest / recent, recent, shortest))
}

/// Most of the time octets wait on the path: then a window or a buffer that is used up is no cause.
fn is_queued(of: &Evidence) -> bool {
    full(of).is_some_and(|(share, ..)| share > 0.5)
}

pub(super) fn full(of: &Evidence) -> Shown {
    let tcp = of.tcp.filter(|tcp| 2 * tcp.rtt_variation_us < tcp.rtt_us)?;
    let (queued, recent, shortest) = queued(of)?;
    let busy = (tcp.busy_us as f64 / 1e6 / of.seconds).min(1.0);
    Some((busy * queued, path_is_full(of, recent, shortest, busy), FULL.into()))
}

/// What to do about a full path.
pub(super) const FULL: &str =
    "a faster path; see what else uses it (ip -s link, tc -s qdisc at each hop)";

/// The figures.
pub(super) fn path_is_full(of: &Evidence, recent: f64, shortest: f64, busy: f64) -> String {
    // TCP knows what arrived; this end what it gave to TCP, which keeps up to a full send buffer.
    let given = || of.octets_sent.max(of.octets_received) as f64 / of.seconds;
    let octets = of.tcp.map_or_else(given, |tcp| tcp.delivery_rate as f64);
    format!(
        "the path carries {octets:.0} B/s: octets were under way for {} of the time, and a round trip takes {:.0} us, the \
         shortest {:.0} us",
        percent(busy),
        1e6 * recent,
        1e6 * shortest
    )
}

pub(super) fn socket(of: &Evidence) -> Shown {
    let tcp = of.tcp.filter(|_| !is_queued(of))?;
    let share = tcp.sndbuf_limited_us as f64 / 1e6 / of.seconds;
    let shows = format!(
        "TCP waited for this end's send buffer for {} of the time; the socket was full {} times",
        percent(share),
        of.send_stalls
    );
    Some((share, shows, "a larger `[softrdma] socket_buffer`, or net.ipv4.tcp_wmem".into()))
}

pub(super) fn network(of: &Evidence) -> Shown {
    let tcp = of.tcp?;
    let segments = (of.octets_sent / tcp.mss.max(1)).max(of.send_calls).max(1);
    let lost = part(tcp.retransmitted, segments);
    // What the peer's window and the send buffer do not explain.
    let limited = tcp.rwnd_limited_us.saturating_add(tcp.sndbuf_limited_us);
    let waits = tcp.busy_us.saturating_sub(limited) as f64 / 1e6 / of.seconds;
    // TCP halves its window with each loss: at 5 % the path decides alone.
    let share = waits.min(1.0) * (20.0 * lost).min(1.0);
    let shows = format!(
        "{} of about {segments} segments were sent again; the round trip takes {} us, +- {} us; the congestion \
         window is {} segments",
        tcp.retransmitted, tcp.rtt_us, tcp.rtt_variation_us, tcp.congestion_window
    );
    let remedy =
        "check the path for loss (ip -s link, ethtool -S); another `[softrdma] congestion`";
    (tcp.retransmitted > 1).then(|| (share, shows, remedy.into()))
}

#[cfg(test)]
mod tests {
    use ual::observe::questions::Tcp;

    use super::super::{Cause, verdicts};
    use crate::explain::evidence::Evidence;

    #[test]
    fn a_stream_that_waits_for_its_send_buffer() {
        let stream = |sndbuf_limited_us| {
            let tcp = Tcp { mss: 1448, busy_us: 990_000, sndbuf_limited_us, ..Tcp::default() };
            let (connected, seconds, tcp) = (true, 1.0, Some(tcp));
            Evidence { connected, seconds, tcp, send_stalls: 500, ..Evidence::default() }
        };
        let causes = |of: &Evidence| verdicts(of).iter().map(|of| of.cause).collect::<Vec<_>>();
        assert_eq!(causes(&stream(600_000)), [Cause::Socket]);
        assert_eq!(causes(&stream(100_000)), []);
    }
}

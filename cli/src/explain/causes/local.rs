//! Causes in what this end does for each message: system calls, FPDUs, sleeps, and who serves the connection. Pure.

use super::costs::{Costs, SLEEP};
use super::{Shown, part};
use crate::explain::evidence::Evidence;

/// Messages below this are small, and FPDUs below it.
const SMALL: u64 = 4096;

pub(super) fn small_messages(of: &Evidence) -> Shown {
    let mean = (of.octets_sent + of.octets_received) / of.messages_sent.max(1);
    let calls = part(of.send_calls, of.messages_sent);
    // Messages that each wait for a reply cannot be posted in lists.
    let alternates = of.messages_received > of.messages_sent / 2;
    if of.messages_sent == 0 || mean >= SMALL || calls < 0.5 || alternates || of.local_stream {
        return None;
    }
    let costs = Costs::of(of);
    let shows = format!(
        "{} messages of {mean} octets on average, with {calls:.1} system calls each",
        of.messages_sent
    );
    let remedy = "post lists, or set `IT_COALESCE_WR_FLAG`, and signal only some requests";
    let share = costs.share(costs.send_calls) * of.running().min(of.busy());
    Some((share, shows, remedy.into()))
}

pub(super) fn framing(of: &Evidence) -> Shown {
    let small = of.mulpdu > 0 && u64::from(of.mulpdu) < SMALL;
    if of.local_stream || !(small || of.markers) {
        return None;
    }
    let costs = Costs::of(of);
    let on = |is: bool| if is { "on" } else { "off" };
    let shows = format!(
        "FPDUs have {} octets at most, {:.0} pass per second; CRC is {}, markers are {}",
        of.mulpdu,
        (of.fpdus_sent + of.fpdus_received) as f64 / of.seconds,
        on(of.crc),
        on(of.markers)
    );
    let remedy =
        "jumbo frames (MTU 9000); `crc = \"off\"` and `markers = \"off\"` where both ends may";
    let share = costs.share(costs.framing) * of.running().min(of.busy());
    Some((share, shows, remedy.into()))
}

pub(super) fn same_host(of: &Evidence) -> Shown {
    let costs = Costs::of(of);
    let reason = of.why_tcp.as_deref().unwrap_or("not known");
    let shows =
        format!("both ends are on this host, and the stream uses TCP; the reason is `{reason}`");
    let remedy = "`local = \"auto\"` in the policy of both ends; docs/same-host.md has the reasons";
    // Without TCP the threads would do more in the same time, also while TCP has nothing under way.
    let share = costs.share(costs.tcp) * of.running().min(of.moving());
    (of.same_host && !of.local_stream).then(|| (share, shows, remedy.into()))
}

impl Evidence {
    /// The share of the time that sleeping and waking up takes, if the program sleeps for most messages.
    pub(super) fn asleep(&self) -> f64 {
        let messages = self.messages_sent + self.messages_received;
        if part(self.sleeps, messages) < 0.25 {
            return 0.0;
        }
        // On a busy machine a thread that is woken waits for a processor, too.
        let waited = self.processor.map_or(0.0, |of| of.waited);
        let awake = self.processor.map_or(0.0, |of| of.ran / self.seconds);
        let share = (self.sleeps as f64 * SLEEP + waited) / self.seconds;
        share.min(1.0 - awake).max(0.0)
    }
}

pub(super) fn sleeping(of: &Evidence) -> Shown {
    let messages = of.messages_sent + of.messages_received;
    let shows = format!(
        "{} sleeps for {messages} messages; each takes about {:.0} us until the thread runs again",
        of.sleeps,
        1e6 * SLEEP
    );
    let share = of.asleep();
    (share > 0.0).then(|| (share, shows, "a larger `[softrdma] spin_us`, or poll".into()))
}

pub(super) fn engine_only(of: &Evidence) -> Shown {
    let by_engine = part(of.engine_served, of.visits).min(1.0);
    let shows = format!(
        "the library's own thread served the connection in {} of {} visits: the program does not poll",
        of.engine_served.min(of.visits),
        of.visits
    );
    let remedy = "poll or wait for completions while messages are under way";
    let share = by_engine * of.moving();
    // A program that polls, but has no processor for it, receives nothing most of the time.
    let polls = of.receive_calls > 4 * of.visits;
    (by_engine > 0.8 && !polls).then(|| (share, shows, remedy.into()))
}

#[cfg(test)]
mod tests {
    use ual::observe::questions::Tcp;

    use super::super::{Cause, verdicts};
    use crate::explain::evidence::Evidence;
    use crate::explain::processor::Processor;

    /// Its thread runs all the time, whatever it sends.
    fn polls(fpdus_sent: u64) -> Evidence {
        let tcp = Tcp { mss: 1448, busy_us: 1_000_000, ..Tcp::default() };
        Evidence {
            connected: true,
            seconds: 1.0,
            mulpdu: 1442,
            crc: true,
            fpdus_sent,
            octets_sent: 1442 * fpdus_sent,
            messages_sent: fpdus_sent / 45,
            send_calls: fpdus_sent / 40,
            visits: fpdus_sent / 40,
            vain_polls: 1_000_000,
            tcp: Some(tcp),
            processor: Some(Processor { ran: 1.0, ..Processor::default() }),
            ..Evidence::default()
        }
    }

    #[test]
    fn a_program_that_polls_is_not_slow_because_of_what_it_seldom_does() {
        let causes = |of| verdicts(&of).iter().map(|of| of.cause).collect::<Vec<_>>();
        assert_eq!(causes(polls(829)), []);
        assert_eq!(causes(polls(100_000)), [Cause::Framing]);
    }
}

//! The client of `warpline ping`. One thread, which owns the source, which the peer reads, and the sink, which
//! it writes. If the peer dies or stops responding, the present round trip counts as lost.

use std::io::Write;
use std::time::{Duration, Instant};

use itapi::{Completion, ConnectParams, Ep, Error, Established, Evd, Ia, Lmr, Operation, Pz, Work};

use serde_json::{Value, json};

use super::args::PingArgs;
use super::stats::Stats;
use super::target;
use super::wire::{INFO_LEN, Info, pattern};
use crate::error::{CliError, CliResult, Exit};
use crate::output;
use crate::signals;

/// How often a wait checks for the user's interrupt.
const GLANCE: Duration = Duration::from_millis(100);

/// How long the reason of a broken connection may arrive after its completions.
const REASON: Duration = Duration::from_millis(500);

/// Pings until the count is reached or the peer is lost.
pub(super) fn run(args: &PingArgs, host: &str, out: &mut dyn Write) -> CliResult<()> {
    signals::catch()?;
    let ia = super::open(args)?;
    let pz = ia.pz()?;
    let mut pinger = Pinger::connect(&ia, &pz, host, args)?;
    if !args.quiet && !args.json {
        writeln!(out, "{}", pinger.describe(args))?;
    }
    let mut stats = Stats::default();
    let result = pinger.rounds(args, &mut stats, out);
    if result.is_ok() {
        // All round trips are complete; how the connection ends changes nothing.
        let _ = pinger.ep.disconnect();
    }
    if args.json {
        writeln!(out, "{:#}", pinger.json(args, &stats))?;
    } else {
        writeln!(out, "{stats}")?;
    }
    match result {
        Ok(()) if stats.flawless() => Ok(()),
        Ok(()) => Err(CliError::new(Exit::Failed, "the octets returned differ from those sent")
            .at(format!("ping {}", pinger.peer))
            .because("the peer or the path changes octets, or the peer is not an rping server")),
        Err(error) => Err(error),
    }
}

struct Pinger {
    ep: Ep,
    evd: Evd,
    source: Lmr,
    sink: Lmr,
    established: Established,
    peer: String,
}

impl Pinger {
    fn connect(ia: &Ia, pz: &Pz, host: &str, args: &PingArgs) -> CliResult<Self> {
        let evd = ia.evd(64)?;
        let ep = pz.ep(&evd).depth(16, 4).build()?;
        // Each side posts one receive at a time; a spare one costs nothing.
        for buffer in pz.buffers(2, INFO_LEN)? {
            ep.post_recv(buffer)?;
        }
        let size = args.size as usize;
        let source = pz.lmr(size).remote_read().register()?;
        let sink = pz.lmr(size).remote_write().register()?;
        let established = establish(&ep, host, args)?;
        let peer = established.ends.remote.to_string();
        Ok(Self { ep, evd, source, sink, established, peer })
    }

    fn describe(&self, args: &PingArgs) -> String {
        let Established { crc, revision, rtr, ends, local, .. } = &self.established;
        let rtr = rtr.map_or_else(String::new, |kind| format!(", peer-to-peer by {kind:?}"));
        let mpa = match revision {
            // The device connects by itself.
            0 => String::new(),
            _ => format!(", MPA revision {revision}{rtr}, {}", output::carrier(*local)),
        };
        let crc = output::crc(*revision, *crc);
        format!("PING {} from {}: {} octets, {crc}{mpa}", ends.remote, ends.local, args.size)
    }

    /// JSON of the connection and the results.
    fn json(&self, args: &PingArgs, stats: &Stats) -> Value {
        let Established { crc, revision, ends, local, .. } = &self.established;
        let mut all = json!({
            "peer": ends.remote.address.to_string(),
            "local": ends.local.address.to_string(),
            "octets": args.size,
            "crc": *crc && *revision != 0,
            "mpa_revision": revision,
            // docs/same-host.md lists the codes of reasons.
            "local_stream": local.map_or_else(|why| why.code().into(), |()| Value::Bool(true)),
        });
        if let (Some(all), Value::Object(stats)) = (all.as_object_mut(), stats.json()) {
            all.extend(stats);
        }
        all
    }

    fn rounds(&mut self, args: &PingArgs, stats: &mut Stats, out: &mut dyn Write) -> CliResult<()> {
        let mut number = 0;
        while (args.count == 0 || number < args.count) && !signals::caught() {
            let started = Instant::now();
            stats.sent += 1;
            let (time, same) = self.round(number, args)?;
            stats.add(time);
            stats.different += u64::from(!same);
            if !args.quiet && !args.json {
                let us = time.as_secs_f64() * 1e6;
                let note = if same { "" } else { "  DIFFERENT" };
                writeln!(
                    out,
                    "{} octets from {}: ping={number} time={us:.1} us{note}",
                    args.size, self.peer
                )?;
                out.flush()?;
            }
            number += 1;
            if number != args.count {
                self.pause(started + args.interval)?;
            }
        }
        Ok(())
    }

    /// One round trip: its time, and whether the octets are the same.
    fn round(&mut self, number: u64, args: &PingArgs) -> CliResult<(Duration, bool)> {
        let text = pattern(number, args.size);
        self.source.write_at(0, &text)?;
        self.sink.write_at(0, &vec![0; text.len()])?;
        let started = Instant::now();
        self.offer(&self.source)?;
        self.go_ahead(args.timeout, "to read the source")?;
        self.offer(&self.sink)?;
        self.go_ahead(args.timeout, "to write the sink")?;
        let time = started.elapsed();
        if !args.verify {
            return Ok((time, true));
        }
        let mut back = vec![0; text.len()];
        self.sink.read_at(0, &mut back)?;
        Ok((time, back == text))
    }

    /// Sends the peer the range of a buffer.
    fn offer(&self, lmr: &Lmr) -> CliResult<()> {
        let info = Info::from(lmr.remote()).encode();
        self.ep.post(Work::send(&info)).map_err(|e| self.broken(e))?;
        Ok(())
    }

    /// Waits for the peer's Send.
    fn go_ahead(&self, timeout: Duration, step: &str) -> CliResult<()> {
        let deadline = Instant::now() + timeout;
        loop {
            let Some(completion) = self.glance(deadline)? else {
                if signals::caught() {
                    return Err(self.interrupted(step));
                }
                if Instant::now() < deadline {
                    continue;
                }
                return Err(CliError::new(Exit::Failed, format!("no reply within {timeout:?}"))
                    .at(format!("ping {}, waiting for the peer {step}", self.peer))
                    .because(
                        "the peer is stopped, or the path is cut, or it is not an rping server",
                    )
                    .hint("check the peer; a slow path needs a larger --timeout"));
            };
            completion.check().map_err(|e| self.broken(e))?;
            if completion.operation != Operation::Recv {
                continue;
            }
            let octets = completion.octets as usize;
            if let Some(buffer) = completion.into_buffer() {
                self.ep.post_recv(buffer).map_err(|e| self.broken(e))?;
            }
            if octets == INFO_LEN {
                return Ok(());
            }
            return Err(CliError::new(
                Exit::Failed,
                format!("the peer sent {octets} octets, not 16"),
            )
            .at(format!("ping {}", self.peer))
            .because("it is not an rping server"));
        }
    }

    /// Waits for the time of the next round trip, or the end of the connection.
    fn pause(&self, until: Instant) -> CliResult<()> {
        loop {
            match self.glance(until)? {
                Some(completion) => completion.check().map_err(|e| self.broken(e))?,
                None if Instant::now() >= until || signals::caught() => return Ok(()),
                None => {}
            }
        }
    }

    /// The next completion, if it comes before `until` and within a short time.
    fn glance(&self, until: Instant) -> CliResult<Option<Completion>> {
        let left = until.saturating_duration_since(Instant::now());
        self.evd.wait(left.min(GLANCE)).map_err(|e| self.broken(e))
    }

    fn interrupted(&self, step: &str) -> CliError {
        CliError::new(Exit::Failed, "interrupted")
            .at(format!("ping {}, waiting for the peer {step}", self.peer))
    }

    fn broken(&self, error: Error) -> CliError {
        let reason = match self.ep.ended(REASON) {
            Ok(Some(end)) => CliError::connection(Exit::Failed, &end),
            _ => CliError::new(Exit::Failed, error.to_string()),
        };
        reason
            .at(format!("ping {}; the round trip under way is lost", self.peer))
            .or_because("the peer ended")
            .or_hint("see the peer's output")
    }
}

/// Connects to the first address that responds.
fn establish(ep: &Ep, host: &str, args: &PingArgs) -> CliResult<Established> {
    let mut addresses = target::peer(host, args)?.into_iter().peekable();
    loop {
        let Some(address) = addresses.next() else {
            return Err(CliError::new(Exit::Network, format!("{host} has no address")));
        };
        let mut params = ConnectParams::new(address);
        params.remote_name = host_name(host).map(str::to_owned);
        match ep.connect_with(params) {
            Err(Error::Connection(_)) if addresses.peek().is_some() => ep.reset()?,
            result => return Ok(result?),
        }
    }
}

/// The host name that the user typed, unless it is an address.
fn host_name(target: &str) -> Option<&str> {
    let host = target.split_once(':').map_or(target, |(host, _)| host);
    let named = !target.starts_with('[') && host.parse::<std::net::IpAddr>().is_err();
    (named && target.matches(':').count() <= 1).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_but_not_addresses() {
        assert_eq!(host_name("alpha:7174"), Some("alpha"));
        for address in ["127.0.0.1:1", "::1", "[::1]:5", "fe80::1"] {
            assert_eq!(host_name(address), None, "{address}");
        }
    }
}

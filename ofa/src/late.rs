//! Receives posted late: what happens to a Send that finds none. An iWARP RNIC ends the stream; in
//! InfiniBand the sender tries again.
//!
//! Programs that use the rendezvous expect the latter: their queue pairs hold such Sends for a
//! while. Those of connection identifiers do so if `WARPLINE_VERBS_LATE_RECEIVES` is set, to a number of
//! seconds; 0 turns it off for all. `cm=SECONDS` is for those of connection identifiers only.

use std::sync::OnceLock;
use std::time::Duration;

use kal_os::fork::PerProcess;
use vp_api::{Capabilities, Unready};

use crate::fork::Here;

const NAME: &str = "WARPLINE_VERBS_LATE_RECEIVES";
/// The default for the rendezvous.
const USUAL: Duration = Duration::from_secs(60);
/// Octets held per queue pair.
const OCTETS: u32 = 256 << 10;

/// The setting of a new queue pair.
pub(crate) fn unready(capabilities: Capabilities, meets: bool) -> Unready {
    static ASKED: PerProcess<OnceLock<Option<Asked>>> = PerProcess::new();
    let asked = ASKED.get::<Here>();
    let asked = asked.get_or_init(|| std::env::var(NAME).ok().and_then(|text| parse(&text)));
    let usual = if meets { USUAL } else { Duration::ZERO };
    let asked = asked.filter(|asked| !(meets && asked.only_cm)).map(|asked| asked.time);
    match asked.unwrap_or(usual) {
        Duration::ZERO => Unready::Terminate,
        time if capabilities.contains(Capabilities::HOLD) => Unready::Hold { octets: OCTETS, time },
        _ => Unready::Terminate,
    }
}

/// What the variable asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Asked {
    time: Duration,
    only_cm: bool,
}

fn parse(text: &str) -> Option<Asked> {
    let of_cm = text.trim().strip_prefix("cm=");
    let seconds = of_cm.unwrap_or(text).trim().parse::<f64>().ok();
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    if time.is_none() {
        eprintln!("warpline: {NAME}: `{text:.100}` is no number of seconds, and is ignored");
    }
    time.map(|time| Asked { time, only_cm: of_cm.is_some() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_understood() {
        let asked = |millis, only_cm| Some(Asked { time: Duration::from_millis(millis), only_cm });
        assert_eq!(parse("7"), asked(7000, false));
        assert_eq!(parse("0.5"), asked(500, false));
        assert_eq!(parse("0"), asked(0, false));
        assert_eq!(parse("cm=2"), asked(2000, true));
        assert_eq!(parse("-1"), None);
        assert_eq!(parse("ever"), None);
    }

    #[test]
    fn a_device_without_the_capability_is_not_used() {
        assert_eq!(unready(Capabilities::empty(), true), Unready::Terminate);
    }
}

//! Causes that are at the other end, on the path to it, or in the processes: on each carrier, with a control on each.

use super::ends::{Ends, Net, Path};
use super::load::{DEVICE, FLOW, Load, Manner, Op, STREAM, Serve};
use super::{PARKS, PATIENT, SELDOM};

/// A carrier of connections.
#[derive(Clone, Copy, PartialEq)]
enum By {
    Tcp,
    Roce,
    Local,
}

const ALL: [By; 3] = [By::Tcp, By::Roce, By::Local];
/// A request, and the next when the reply has come.
const ASKS: Load = Load { op: Op::Echo, size: 8, at_once: 1, ..STREAM };
const REPLIES: Serve = Serve { receives: 16, manner: Manner::Echo };
const LATE: Serve = Serve { receives: 16, manner: Manner::Late };

impl By {
    /// Two ends; `None`: the test is skipped.
    fn ends(self, path: Path, serve: Serve, load: Load) -> Option<Ends> {
        let test = "explain causes on each carrier";
        Some(match self {
            Self::Tcp => Ends::start(Net::two(test, 9000, path)?, PATIENT, &[], serve, load),
            Self::Roce => {
                let variables = [(DEVICE, "vp_roce")];
                Ends::start(Net::two(test, 9000, path)?, PATIENT, &variables, serve, load)
            }
            Self::Local => {
                Ends::start(Net::Host, PATIENT, &[("WARPLINE_LOCAL", "require")], serve, load)
            }
        })
    }
}

/// The first cause of the client on each carrier, with its figures.
fn first(cause: &str, on: &[By], path: Path, serve: Serve, load: Load) -> Vec<(Ends, String)> {
    let all = on.iter().filter_map(|by| by.ends(path, serve, load));
    all.map(|ends| (ends.is(cause), ends)).map(|(shows, ends)| (ends, shows)).collect()
}

fn never(cause: &str, path: Path, serve: Serve, load: Load) {
    ALL.iter().filter_map(|by| by.ends(path, serve, load)).for_each(|ends| ends.is_not(cause));
}

#[test]
fn an_end_waits_for_a_slow_peer() {
    for (on, wait) in [(&ALL[..], true), (&[By::Tcp], false)] {
        let waits = Load { wait, ..ASKS };
        for (ends, shows) in first("waits for its peer", on, Path::Plain, LATE, waits) {
            let peer = format!("{} ", ends.server.id());
            assert!(shows.contains(&peer), "{peer}: {shows}");
        }
    }
}

#[test]
fn an_end_that_pauses_itself_does_not_wait_for_its_peer() {
    let seldom = Load { rest_us: 20_000, ..ASKS };
    let cause = "waits for its peer";
    first("nothing to send", &ALL, Path::Plain, REPLIES, seldom)
        .iter()
        .for_each(|(ends, _)| ends.is_not(cause));
    never(cause, Path::Plain, PARKS, SELDOM);
}

#[test]
fn a_stopped_peer_is_named_with_what_continues_it() {
    for by in ALL {
        let Some(ends) = by.ends(Path::Plain, REPLIES, ASKS) else { return };
        ends.converse();
        Ends::stop(&ends.server);
        // On RoCE nothing is acknowledged.
        let cause = if by == By::Roce { "silent peer" } else { "waits for its peer" };
        let shows = ends.is(cause);
        assert!(shows.contains(&format!("{} ", ends.server.id())), "{shows}");
        assert!(shows.contains("is stopped"), "{shows}");
    }
}

#[test]
fn a_stopped_process_is_the_first_cause() {
    for by in ALL {
        let Some(ends) = by.ends(Path::Plain, PARKS, SELDOM) else { return };
        ends.is_not("stopped process");
        Ends::stop(&ends.client);
        ends.is("stopped process");
    }
}

#[test]
fn a_full_path() {
    let cause = "full path";
    for (_, shows) in first(cause, &[By::Tcp, By::Roce], Path::Routed, PARKS, FLOW) {
        assert!(shows.contains("B/s") && shows.contains("the shortest"), "{shows}");
    }
    never(cause, Path::Plain, PARKS, FLOW);
}

#[test]
fn a_thread_without_a_rest() {
    let works = Load { size: 4096, at_once: 1, work_us: 10_000, ..STREAM };
    let cause = "processor's limit";
    for (_, shows) in first(cause, &ALL, Path::Plain, PARKS, works) {
        assert!(shows.starts_with("thread ") && shows.contains(" % of the time"), "{shows}");
    }
    never(cause, Path::Plain, PARKS, SELDOM);
    // It polls all the time, and has nothing else to do.
    never(cause, Path::Plain, LATE, ASKS);
}
